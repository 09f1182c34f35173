"""One run has one ε, the ledger's, of the agent for whom it is highest and rounded up: the same in every place that shows it."""

import json
import re
from contextlib import closing

import pytest
from tampering import read_events, write_events

from tacit.privacy import DurableLedger
from tacit.privacy.accounting import ceil_digits, epsilon
from tacit.runs import Runner
from tacit.runs.config import RunConfig

# Agents of so many different sizes that it would take too long to derive ε of each exactly.
SETTINGS = {"agents": 20, "split": "dirichlet:2", "lot_size": 8.0, "rounds": 6, "evaluate_every": 3, "seed": 3}
SETTINGS |= {"delta": 1e-3, "lr": 1.0}
PROMISES = {"σ given": {"noise_multiplier": 1.2}, "ε given": {"epsilon": 4.0}}
BOTH = ["σ given", pytest.param("ε given", marks=pytest.mark.slow)]


def most_by_hand(ledger_file, run):
    """Derive ε of every owner by itself, and return the largest."""
    with closing(DurableLedger(ledger_file, read_only=True)) as ledger:
        account = ledger.account(run)
        assert len({line.mechanism for line in account.lines}) > 12
        return max(epsilon([line.event(account.charged)], delta=1e-3) for line in account.lines)


def words(path):
    body = re.sub(r"<(style|script)\b.*?</\1>", "", path.read_text(), flags=re.S)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


def shown(tacit, folder):
    """Return ε of the run `one` by where it is shown once the run is over."""
    code, out, _ = tacit("list")
    assert code == 0
    table = next(line for line in out.splitlines() if line.startswith("one "))
    (row,) = (row for row in json.loads(tacit("list", "--json")[1])["runs"] if row["run"] == "one")
    assert tacit("report", "one")[0] == 0
    assert tacit("compare", "one", "two", "-o", "both.html")[0] == 0
    page, both = words(folder / "report.html"), words(folder.parent.parent / "both.html")
    ledger = next(line for line in tacit("ledger", "one")[1].splitlines() if line.startswith("one "))
    rows = [row for row in json.loads(tacit("ledger", "one", "--json")[1])["spent"] if row["run"] == "one"]
    return {
        "list": float(table.split()[-2]),
        "list --json": row["epsilon"],
        "page, claim": float(re.search(r"ε = (\S+) per record at δ", page)[1]),
        "page, tile": float(re.search(r"ε per record, spent (\S+)", page)[1]),
        "page, ledger": float(re.search(r"highest ε agent \d+: ε=(\S+) per record at", page)[1]),
        "page, meaning": float(re.search(r"With ε = (\S+) and δ", page)[1]),
        "compare": float(re.search(r"one dsgt (?:\S+ %\s?){3}(\S+) record 0.001", both.replace("\u202f", " "))[1]),
        "ledger": float(re.search(r"agent \d+ +[\d,]+(?: \([\d,]+ made\))? +(\S+)", ledger)[1]),
        "ledger --json": ceil_digits(max(row["epsilon"]["add_remove"] for row in rows)),
    }


@pytest.mark.parametrize("promise", BOTH)
def test_a_finished_run_has_one_epsilon(promise, tacit, tmp_path):
    options = [
        word for key, value in (SETTINGS | PROMISES[promise]).items() for word in (f"--{key.replace('_', '-')}", value)
    ]
    code, out, err = tacit("train", *options, "--name", "one")
    assert code == 0
    most = ceil_digits(most_by_hand(tmp_path / "runs" / "ledger.sqlite", "one"))
    start(tmp_path / "runs", "two", PROMISES[promise], stop_after=1)
    summary = json.loads((tmp_path / "runs" / "one" / "summary.json").read_text())
    places = {
        "live line": float(re.findall(r"round 6/6: .*;\s+ε per record (\S+) of", err)[0]),
        "end": float(re.search(r"ε per record, highest\s+─+\s+(.*)", out)[1].split()[-1]),
        "end, all runs": float(re.search(r"the only run on this data has spent ε=(\S+)", out)[1]),
        "summary.json": summary["epsilon"],
        "summary.json, agents": ceil_digits(max(summary["epsilon_per_agent"])),
        **shown(tacit, tmp_path / "runs" / "one"),
    }
    assert places == dict.fromkeys(places, most)
    assert tacit("ledger", "--verify")[0] == 0


@pytest.mark.parametrize("promise", BOTH)
def test_a_stopped_run_has_one_epsilon_that_of_its_plan(promise, tacit, tmp_path):
    for name in ("one", "two"):
        start(tmp_path / "runs", name, PROMISES[promise], stop_after=3)
    most = ceil_digits(most_by_hand(tmp_path / "runs" / "ledger.sqlite", "one"))
    places = shown(tacit, tmp_path / "runs" / "one")
    code, out, err = tacit("resume", "one")
    assert code == 0
    places["live line, allowed"] = float(re.findall(r"round 6/6: .*;\s+ε per record \S+ of (\S+)", err)[0])
    places["plan"] = float(re.search(r"ε per record at the end\s+(\S+) at", out)[1])
    assert places == dict.fromkeys(places, most)


def start(runs, name, promise, *, stop_after):
    with Runner.start(runs, name, RunConfig.of(SETTINGS | promise)) as runner:
        runner.play(stop=lambda: runner.session.round >= stop_after)


def test_the_live_line_is_of_the_agent_with_the_highest_epsilon_until_then(tmp_path):
    with Runner.start(tmp_path, "one", RunConfig.of(SETTINGS | PROMISES["ε given"])) as runner:
        lines = runner.session.accounts[0].lines
        for queries in (1, 3, 6):
            each = [epsilon([line.event(queries)], delta=1e-3) for line in lines]
            assert runner.epsilon(queries) == pytest.approx(max(each), rel=1e-9)


def test_a_list_shows_the_ledger_s_epsilon_where_events_and_summary_state_a_smaller_one(tacit, tmp_path):
    start(tmp_path / "runs", "one", PROMISES["σ given"], stop_after=9)
    folder = tmp_path / "runs" / "one"
    most = ceil_digits(most_by_hand(tmp_path / "runs" / "ledger.sqlite", "one"))
    changed, *rest = read_events(folder)
    changed["sample_rates"] = [rate / 10 for rate in changed["sample_rates"]]
    write_events(folder, [changed, *rest])
    summary = json.loads((folder / "summary.json").read_text())
    small = {"epsilon": 0.26, "epsilon_per_agent": [0.26] * 20}
    (folder / "summary.json").write_text(json.dumps(summary | small))
    assert json.loads(tacit("list", "--json")[1])["runs"][0]["epsilon"] == most
    assert tacit("report", "one")[0] == 0
    said = words(folder / "report.html")
    assert float(re.search(r"ε = (\S+) per record at δ", said)[1]) == most
    assert "disagree: sampling rates" in said
    assert "summary.json states ε = 0.26" in said
    code, out, _ = tacit("ledger", "--verify")
    assert code == 1
    assert "different mechanism on record than in its plan" in " ".join(out.split())


def test_what_a_list_remembers_is_of_one_record_and_another_is_derived_again(tacit, tmp_path):
    start(tmp_path / "runs", "one", PROMISES["σ given"], stop_after=3)
    before = tacit("list", "--json")[1]
    assert tacit("list", "--json")[1] == before
    assert tacit("resume", "one", "-q")[0] == 0  # now it is charged what it made, and not its spare queries
    (row,) = json.loads(tacit("list", "--json")[1])["runs"]
    assert row["epsilon"] == ceil_digits(most_by_hand(tmp_path / "runs" / "ledger.sqlite", "one"))
    assert row["epsilon"] < json.loads(before)["runs"][0]["epsilon"]


def test_a_list_without_a_ledger_shows_no_epsilon(tacit, tmp_path):
    start(tmp_path / "runs", "one", PROMISES["σ given"], stop_after=9)
    for path in (tmp_path / "runs").glob("ledger.sqlite*"):
        path.unlink()
    (row,) = json.loads(tacit("list", "--json")[1])["runs"]
    assert (row["state"], row["epsilon"], row["release"]) == ("finished", None, None)
