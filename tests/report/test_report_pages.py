"""The page of one run: what it shows, what it warns of, and that it loads nothing."""

import json
import math
import re
import shutil
from functools import partial

import pytest
import torch
from made_runs import copy_with_record, record_as_stopped
from reading_pages import charts, own, words
from tampering import edit_lines, edit_log, read_events, write_events

import tacit
from tacit.errors import StorageError
from tacit.report import RecordedRun, derive_spending, write_comparison, write_report
from tacit.report.html import frame
from tacit.report.wording import attacks

HOSTILE = '<img src=x onerror="alert(1)"> & <script>'


def page(run, tmp_path):
    return write_report(run, tmp_path / "report.html").read_text()


def test_a_report_shows_all_of_a_run(runs, tmp_path):
    html = page(runs["dsgt"], tmp_path)
    said = words(html)
    for part in (
        "dsgt on digits · 6 agents",
        "✓ RELEASE",
        "ε = 4 per record at δ = 0.001",
        "add-or-remove-one adjacency · by privacy loss distributions (PLD)",
        "derived from 20 queries in the ledger",
        "times as likely, plus a probability of δ = 0.001",
        "6 links; density 0.4, algebraic connectivity 1 (0.167 when normalised",
        "20 queries of each agent’s data were planned for ε = 4. The model has 650 parameters.",
        "20 of 20 planned",
        "expected samples/s",
        "replace-one, pld",
        "which agrees with the ledger",
        "What ε means",
        "Errata that apply",
        "mean accuracy",
        "consensus distance",
        "of 4 allowed",
    ):
        assert part in said, part
    assert "NOT A RELEASE" not in said
    assert set(charts(html)) == {"accuracy", "graph", "consensus", "epsilon", "partition"}


def test_charts_hold_what_the_run_holds(runs, tmp_path):
    run = runs["dsgt"]
    drawn = charts(page(run, tmp_path))
    *_, agents, mean = drawn["accuracy"]["data"]
    assert mean["y"] == pytest.approx(run.scores.mean.tolist())
    count = len(run.scores.rounds)
    assert agents["y"][count + 1 : 2 * count + 1] == pytest.approx(run.scores.values[:, 1].tolist())
    assert drawn["graph"]["data"][1]["marker"]["color"] == pytest.approx(run.scores.final.tolist())
    assert drawn["partition"]["data"][0]["z"] == [list(row) for row in run.plan.counts]
    assert drawn["epsilon"]["layout"]["shapes"][0]["y0"] == 4
    distance = drawn["consensus"]["data"][0]["y"]
    assert distance[0] is None  # a common start, which a logarithmic axis cannot show
    assert distance[-1] == run.history[-1].consensus_distance
    assert drawn["consensus"]["layout"]["yaxis"]["type"] == "log"


def test_the_page_loads_nothing_and_allows_nothing_to_be_loaded(runs, tmp_path):
    for html in (page(runs["dsgt"], tmp_path), write_comparison(list(runs.values()), tmp_path / "c.html").read_text()):
        assert "default-src 'none'" in html
        assert not re.search(r"https?:|//[a-z]+\.[a-z]|@import|url\(", own(html))
        assert not re.search(r"\ssrc=", own(html))
        assert re.findall(r"href=\"([^\"]*)\"", own(html)) == ["data:,"]
        assert html.count("* plotly.js v") == 1


def test_the_page_states_its_own_size(runs, tmp_path):
    html = page(runs["dsgt"], tmp_path)
    stated = float(re.search(r"one file of\s+([\d.]+).MB", html)[1])
    assert stated == pytest.approx((tmp_path / "report.html").stat().st_size / 1e6, abs=0.01)


def test_text_of_a_run_is_only_text(folders, tmp_path):
    owners = [f"{HOSTILE}{i}" for i in range(6)]
    folder = copy_with_record(folders["dsgt"], tmp_path / "runs" / HOSTILE.replace("/", ""), owners)
    events = read_events(folder)
    events[0] |= {"dataset": HOSTILE, "algorithm": HOSTILE, "engine": HOSTILE}
    write_events(folder, events)
    (folder / "config.toml").write_text(
        f"graph = {json.dumps(HOSTILE)}\n{json.dumps(HOSTILE)} = {json.dumps(HOSTILE)}\n"
    )
    run = RecordedRun.load(folder)
    assert run.name == HOSTILE
    for html in (page(run, tmp_path), write_comparison([run, run], tmp_path / "c.html").read_text()):
        assert "<img" not in own(html)
        assert html.count("<script") == page(RecordedRun.load(folders["dsgt"]), tmp_path).count("<script")
        assert "&lt;img src=x onerror=&quot;alert(1)&quot;&gt; &amp; &lt;script&gt;" in html
        assert "<" not in re.sub(r"</?(b|br|extra)>", "", json.dumps(charts(html)))


def test_a_seeded_run_is_marked_wherever_it_claims_something(runs, tmp_path):
    said = words(page(runs["seeded"], tmp_path))
    assert "✕ NOT A RELEASE" in said
    assert "✓ RELEASE" not in said
    assert "no budget: σ was given, not a release" in said
    assert "Not a release." in said
    assert "pld, against everybody else together; not a release" in said
    assert "which this run did not have" in said


def test_a_run_without_privacy_guarantees_nothing(runs, tmp_path):
    html = page(runs["open"], tmp_path)
    said = words(html)
    assert "✕ NOT A RELEASE NO PRIVACY ε: none, there is no guarantee" in said
    assert "What ε means" not in said
    assert "none" in said
    assert set(charts(html)) == {"accuracy", "graph", "consensus", "partition"}


def test_one_agent_has_a_report_too(runs, tmp_path):
    html = page(runs["alone"], tmp_path)
    said = words(html)
    assert "One agent holds all data." in said
    assert "There is only one agent." in said
    assert [trace["name"] for trace in charts(html)["accuracy"]["data"]] == ["accuracy"]


def as_site(folder, tmp_path):
    """Return a run of one agent as the own view of `north`, one of three sites."""
    copied = shutil.copytree(folder.parent, tmp_path / "site") / folder.name
    events = read_events(copied)
    site = {"agent": 1, "members": ["south", "north", "east"], "neighbors": [0, 2], "agreement": "0" * 64}
    events[0] |= {"site": site}
    write_events(copied, events)
    return RecordedRun.load(copied)


def test_the_page_of_a_site_speaks_of_the_site_and_of_what_its_neighbours_see(folders, tmp_path):
    said = words(page(as_site(folders["alone"], tmp_path), tmp_path))
    assert "north, one of 3 sites" in said.split("started")[0]
    assert "split:" not in said.split("started")[0]
    assert "Suppose someone sees every message" in said
    assert "published model" not in said
    assert "A site does not know the models of all others." in said
    assert "Highest ε: north, against everybody else together" in said
    assert "highest ε north: ε=" in said


@pytest.mark.parametrize("name", ["dsgt", "seeded", "alone"])
def test_bounds_on_a_page_are_never_rounded_down(runs, tmp_path, name):
    said = words(page(runs[name], tmp_path))
    kept = derive_spending(runs[name]).guarantee
    even, caught = attacks(kept.epsilon, kept.delta)
    stated = [float(share) / 100 for share in re.findall(r"([\d.]+)\s%", said.split("What ε means")[1])[:2]]
    times = float(re.search(r"at most ([\d,.]+) \(e to the ε\)", said)[1].replace(",", ""))
    for claimed, bound in ((times, math.exp(kept.epsilon)), (stated[0], even), (stated[1], caught)):
        assert bound <= claimed * (1 + 1e-9)
        assert claimed < 1.02 * bound + 0.001


def test_the_line_in_the_chart_of_ε_is_what_was_planned_and_not_a_budget_over_all_runs(runs, tmp_path):
    (label,) = charts(page(runs["dsgt"], tmp_path))["epsilon"]["layout"]["annotations"]
    assert label["text"] == "planned ε = 4"


def test_pooled_data_is_hidden_from_those_who_see_the_model_and_not_from_the_one_who_pools_it(runs, tmp_path):
    said = words(page(runs["alone"], tmp_path))
    assert "What someone can learn from the published model is limited" in said
    assert "Nothing is hidden from whoever pools the data and trains on it." in said
    assert "Suppose someone sees the published model" in said
    assert "other agents" not in said
    assert "sees every message" not in said
    several = words(page(runs["dsgt"], tmp_path))
    assert "What all other agents together can learn from the messages that they received is limited" in several
    assert "pools the data" not in several


def test_an_unfinished_run_says_so(folder, tmp_path):
    (folder / "summary.json").unlink()
    write_events(folder, read_events(folder)[:10])
    record_as_stopped(folder, 8)
    said = words(page(RecordedRun.load(folder), tmp_path))
    assert "This run is not finished: the last snapshot is of round 8 of 20." in said
    assert "derived from all 20 queries of the plan, of which the ledger holds 8" in said
    assert "It is charged its whole plan, since the decision to stop may depend on its results." in said
    assert "8 of 20 rounds so far" in said


def test_a_run_without_snapshots_has_a_report(folder, tmp_path):
    (folder / "summary.json").unlink()
    write_events(folder, read_events(folder)[:1])
    html = page(RecordedRun.load(folder), tmp_path)
    assert set(charts(html)) == {"graph", "partition"}
    assert "Nothing was scored" in words(html)


def test_losses_are_shown_if_there_are_no_classes(folder, tmp_path):
    plan, *rest = read_events(folder)
    rest = [event | {"accuracy": None} if event["event"] == "snapshot" else event for event in rest]
    rest[-3]["loss"][0] = None  # one agent diverged
    write_events(folder, [plan | {"counts": None}, *rest])
    (folder / "summary.json").unlink()
    html = page(RecordedRun.load(folder), tmp_path)
    assert "Loss of every agent" in html
    assert charts(html)["partition"]["data"][0]["type"] == "bar"
    assert charts(html)["accuracy"]["data"][-1]["y"][-1] is None


def test_a_summary_that_states_another_epsilon_is_exposed(folder, tmp_path):
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(summary | {"epsilon": 1.0}))
    said = words(page(RecordedRun.load(folder), tmp_path))
    assert "summary.json states ε = 1, but 4 follows from the ledger" in said
    assert "does NOT agree with the ledger" in said


def test_a_copied_folder_without_its_ledger_shows_no_epsilon(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "elsewhere" / "dsgt")
    run = RecordedRun.load(copy)
    said = words(page(run, tmp_path))
    assert "✕ ε NOT KNOWN ε could not be derived there is no ledger beside the run" in said
    assert "✓ RELEASE" not in said
    assert "What ε means" not in said
    assert not re.search(r"ε (=|spent) ?\d", said.split("All settings")[0])
    beside = words(write_comparison([run, RecordedRun.load(folder)], tmp_path / "c.html").read_text())
    assert "ε could not be derived: dsgt (there is no ledger beside the run)." in beside
    assert "not known" in beside


PLAIN = tacit.privacy.Mechanism.plain(sample_rate=0.1, lot=5).to_json()
OTHERS = {
    "the ledger holds 2 queries of this run, but its events record 20": lambda row: (
        None if row["kind"] == "query" and row["number"] > 2 else row
    ),
    "the run is not in the ledger beside it": lambda row: (
        row | {"run": "other", "together": "other"} if row["kind"] == "open" else row
    ),
    "the ledger beside the run has a different run of this name": lambda row: (
        row | {"token": "other"} if row["kind"] == "open" else row
    ),
    "names other data owners than its plan": lambda row: (
        row | {"lines": [{**line, "owner": f"{line['owner']}!"} for line in row["lines"]]}
        if row["kind"] == "open"
        else row
    ),
    "disagree on whether there was noise": lambda row: (
        row | {"lines": [{**line, "mechanism": PLAIN, "release": False} for line in row["lines"]]}
        if row["kind"] == "open"
        else row
    ),
}


@pytest.mark.parametrize("why", OTHERS)
def test_a_ledger_that_is_not_the_run_s_gives_no_epsilon(folder, tmp_path, why):
    edit_log(folder.parent / "ledger.sqlite", OTHERS[why])
    said = words(page(RecordedRun.load(folder), tmp_path))
    assert "ε could not be derived" in said
    assert why in said
    assert "✓ RELEASE" not in said


def test_epsilon_is_the_ledger_s_where_events_and_summary_state_a_smaller_one(folder, tmp_path):
    plan, *rest = read_events(folder)
    write_events(folder, [plan | {"sample_rates": [rate / 10 for rate in plan["sample_rates"]]}, *rest])
    summary = json.loads((folder / "summary.json").read_text())
    small = {"epsilon": 0.26, "epsilon_per_agent": [0.26] * 6}
    (folder / "summary.json").write_text(json.dumps(summary | small))
    said = words(page(RecordedRun.load(folder), tmp_path))
    assert "ε = 4 per record at δ = 0.001" in said
    assert "summary.json states ε = 0.26, but 4 follows from the ledger" in said
    assert "The plan in events.jsonl and the ledger disagree: sampling rates. ε is derived from the ledger." in said
    both = words(write_comparison([RecordedRun.load(folder)] * 2, tmp_path / "c.html").read_text())
    assert "events.jsonl and the ledger disagree on the plan" in both


def test_a_run_that_only_its_own_plan_calls_a_release_is_not_one(folder, tmp_path):
    edit_lines(folder.parent / "ledger.sqlite", lambda _, line: line | {"release": False})
    said = words(page(RecordedRun.load(folder), tmp_path))
    assert "✕ NOT A RELEASE" in said
    assert "✓ RELEASE" not in said
    assert "disagree: whether it is a release" in said


def test_equal_agents_share_a_row_of_the_plan(runs, tmp_path):
    def rows(name):
        plan = page(runs[name], tmp_path).split("The plan")[1].split("The ledger")[0]
        return re.findall(r'<th scope="row">(.*?)</th>', plan)

    assert rows("dsgt") == ["all agents"]
    assert rows("seeded") == ["0, 2, 4", "1, 3, 5"]


def test_what_all_owners_are_called_is_said_once(folder, tmp_path):
    plan, *rest = read_events(folder)
    rates = [0.2 + 0.01 * agent for agent in range(6)]
    write_events(folder, [plan | {"sample_rates": rates}, *rest])

    def at_its_rate(place, line):
        mechanism = line["mechanism"]
        return line | {"mechanism": mechanism | {"sampler": mechanism["sampler"] | {"rate": rates[place]}}}

    edit_lines(folder.parent / "ledger.sqlite", at_its_rate)
    (folder / "summary.json").unlink()
    ledger = page(RecordedRun.load(folder), tmp_path).split("The ledger")[1].split("What ε means")[0]
    assert ledger.count("digits/A(t=0.8)/seed 0/6 agents/") == 1
    assert re.findall(r'<th scope="row">(.*?)</th>', ledger) == [f"agent {agent}" for agent in range(6)]


def test_tables_are_shown_whole_and_very_long_ones_folded(tmp_path, runs):
    style = page(runs["dsgt"], tmp_path).split("<style>")[1].split("</style>")[0]
    assert not re.search(r"\.scroll[^}]*(max-height|overflow:|overflow-y)", style)
    rows = [(str(row), "x") for row in range(60)]
    assert "details" not in frame.table(("a", "b"), rows[:50])
    folded = frame.table(("a", "b"), rows)
    assert folded.count("<tr><th scope") == 62
    assert "<summary>10 more rows</summary>" in folded


def test_a_heat_map_starts_at_zero(folder, tmp_path):
    plan, *rest = read_events(folder)
    write_events(folder, [plan | {"counts": [[100, 110]] * 6}, *rest])
    (cells,) = charts(page(RecordedRun.load(folder), tmp_path))["partition"]["data"]
    assert (cells["zmin"], cells["zmax"]) == (0, 110)


def test_a_failed_write_leaves_what_was_there(runs, tmp_path, monkeypatch):
    path = tmp_path / "made" / "report.html"
    write_report(runs["open"], path)
    before = path.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tacit.io.files.os.fsync", full)
    with pytest.raises(StorageError, match=r"report\.html: cannot be written: No space left on device"):
        write_report(runs["dsgt"], path)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]


def test_a_page_names_whom_the_run_protects(tmp_path):
    inputs = torch.randn(120, 4, generator=torch.Generator().manual_seed(0))
    table = tacit.data.DataSet.from_records(
        name="ward", train=(inputs, (inputs.sum(1) > 0).long()), classes=2, units=[number // 3 for number in range(120)]
    )
    tacit.train(
        tacit.DSGD(),
        model=partial(torch.nn.Linear, 4, 2),
        data=table.split(2, tacit.data.IID()),
        graph=tacit.graphs.ring(2),
        privacy=tacit.Privacy(noise_multiplier=2.0, delta=1e-3, clip=1.0, lot_size=5, unit=tacit.Unit("patient", 2)),
        rounds=2,
        lr=0.1,
        run="wards",
        runs=tmp_path / "runs",
    )
    said = words(page(RecordedRun.load(tmp_path / "runs" / "wards"), tmp_path))
    for part in (
        "whether or not any single patient is among",
        "40 patients in all",
        "Each patient joins a lot with probability q. The sum of the gradients of its records (2 at most) is clipped",
        "knows all patients but one",
        "ε covers single patients",
    ):
        assert part in said
    assert "single record" not in said
    assert json.loads((tmp_path / "runs" / "wards" / "summary.json").read_text())["unit"] == "patient"
