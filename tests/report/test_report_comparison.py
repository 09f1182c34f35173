"""Pages that compare runs."""

import re
import shutil

import pytest
from reading_pages import charts, words
from tampering import edit_lines, read_events, write_events

from tacit.errors import InvalidInput
from tacit.privacy import epsilon
from tacit.privacy.accounting import ceil_digits
from tacit.report import RecordedRun, write_comparison


def test_runs_of_very_different_length_are_laid_over_each_other_by_share(runs, folder, tmp_path):
    plan, *rest = read_events(folder)
    write_events(folder, [plan | {"rounds": 100}, *rest])
    drawn = charts(write_comparison([runs["dsgt"], RecordedRun.load(folder)], tmp_path / "c.html").read_text())
    for name in ("accuracy", "consensus", "epsilon"):
        axis = drawn[name]["layout"]["xaxis"]
        assert axis["title"]["text"] == "share of the run’s rounds"
        assert axis["range"][1] < 1.1
        ends = [trace["x"][-1] for trace in drawn[name]["data"] if trace.get("showlegend", True)]
        assert ends == [1.0, 0.2]


def test_runs_on_the_same_records_are_noticed_however_these_were_split(runs, folder, tmp_path):
    plan, *rest = read_events(folder)
    for owners, warned in (
        ([owner.replace("seed 0", "seed 1") for owner in plan["owners"]], True),
        ([owner.replace("digits", "letters") for owner in plan["owners"]], False),
    ):
        write_events(folder, [plan | {"owners": owners}, *rest])
        said = words(write_comparison([runs["dsgt"], RecordedRun.load(folder)], tmp_path / "c.html").read_text())
        assert ("queried the same records, split among agents in different ways" in said) == warned
        assert "same owners’ data" not in said


def test_a_comparison_overlays_runs_of_different_lengths(runs, tmp_path):
    html = write_comparison(
        [runs[name] for name in ("dsgt", "dinno", "seeded", "open")], tmp_path / "c.html"
    ).read_text()
    said, drawn = words(html), charts(html)
    assert "4 runs" in said
    assert said.count("NOT A RELEASE") == 2
    assert "queried the same owners’ data" in said
    assert set(drawn) == {"accuracy", "spread", "tradeoff", "consensus", "epsilon"}
    lines = {t["name"]: t for t in drawn["accuracy"]["data"] if t.get("showlegend", True)}
    assert {name: line["x"][-1] for name, line in lines.items()} == {"dsgt": 20, "dinno": 8, "seeded": 20, "open": 12}
    assert drawn["accuracy"]["layout"]["xaxis"]["range"][1] > 20
    assert [t["name"] for t in drawn["epsilon"]["data"]] == ["dsgt", "dinno", "seeded (not a release)"]
    assert drawn["tradeoff"]["layout"]["xaxis"]["title"]["text"] == "ε spent, against everybody else together"
    for setting in ("algorithm", "rounds", "source"):
        assert f'<th scope="row">{setting}</th>' in html
    assert '<th scope="row">seed</th>' not in html


def epsilon_together(said):
    return float(
        re.search(
            r"together spend (?:at most )?ε = (\S+) \(add-or-remove-one\) against everybody else together per record at δ = 0.001",
            said,
        )[1]
    )


def test_a_comparison_says_what_the_runs_spend_together(runs, folder, tmp_path):
    one, two = runs["dsgt"], RecordedRun.load(folder)
    said = words(write_comparison([one, runs["dinno"]], tmp_path / "c.html").read_text())
    lines = [run.record.account.lines[0] for run in (one, runs["dinno"])]
    events = [line.event(run.charged) for line, run in zip(lines, (one, runs["dinno"]), strict=True)]
    assert epsilon_together(said) == ceil_digits(epsilon(events, delta=1e-3)) > 4
    assert "On digits, dsgt and dinno together spend" in said
    assert "if no run was planned after seeing another’s results" in said

    edit_lines(
        folder.parent / "ledger.sqlite",
        lambda _, line: line | {"partition": "otherwise", "owner": line["owner"].replace("seed 0", "seed 1")},
    )
    plan, *rest = read_events(folder)
    owners = [owner.replace("seed 0", "seed 1") for owner in plan["owners"]]
    write_events(folder, [plan | {"owners": owners}, *rest])
    two = RecordedRun.load(folder)
    said = words(write_comparison([one, two], tmp_path / "c.html").read_text())
    line = one.record.account.lines[0]  # all are alike
    assert epsilon_together(said) == ceil_digits(epsilon([line.event(40)], delta=1e-3))
    assert "together spend at most" in said


def test_a_comparison_with_a_run_without_privacy_or_without_a_ledger_guarantees_nothing_together(
    runs, folder, tmp_path
):
    said = words(write_comparison([runs["dsgt"], runs["seeded"], runs["open"]], tmp_path / "c.html").read_text())
    assert "dsgt, seeded and open together spend ε = ∞" in said
    said = words(write_comparison([runs["dsgt"], runs["open"]], tmp_path / "c.html").read_text())
    assert "dsgt and open together spend ε = ∞: a run without privacy has read these records" in said
    copy = RecordedRun.load(shutil.copytree(folder, tmp_path / "elsewhere" / "dsgt"))
    said = words(write_comparison([runs["dsgt"], copy], tmp_path / "c.html").read_text())
    assert "what dsgt and dsgt (2) together spend is not known" in said


def test_epsilons_in_different_terms_are_not_compared_silently(runs, folder, tmp_path):
    events = read_events(folder)
    events[0] |= {"delta": 1e-5}
    write_events(folder, events)
    (folder / "summary.json").unlink()
    html = write_comparison([runs["dsgt"], RecordedRun.load(folder)], tmp_path / "c.html").read_text()
    assert "cannot be compared as they are" in words(html)
    assert "dsgt (2)" in words(html)


def test_a_comparison_needs_a_run(tmp_path):
    with pytest.raises(InvalidInput, match="no run to compare"):
        write_comparison([], tmp_path / "c.html")
