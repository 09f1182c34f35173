"""`tacit ledger`: what was spent, in short and in full, and whether the record is complete."""

import json
from contextlib import closing

import pytest
from invoking import PLAIN, QUICK, one_line
from tampering import edit_log, gaussians

from tacit.cli.commands.ledger_spending import LedgerSnapshot
from tacit.cli.terminal.output import round_up
from tacit.privacy import Budget, Discrete, DurableLedger, Ledger, Privacy
from tacit.report import RecordedRun
from tacit.report.html.page import report


def test_the_ledger_shows_what_was_spent(tacit):
    tacit("train", *QUICK, "--name", "one")
    tacit("train", *QUICK, "--name", "two", "--source", "seeded")
    code, out, _ = tacit("ledger", "--json", "--verify")
    record = json.loads(out)
    assert code == 0
    assert record["complete"] is True
    rows = [row for row in record["spent"] if row["owner"] == record["spent"][0]["owner"]]
    assert [row["run"] for row in rows] == ["one", "two", None]
    assert [row["release"] for row in rows] == [True, False, False]
    one, two, both = (row["epsilon"]["add_remove"] for row in rows)
    assert max(one, two) < both
    assert all(row["epsilon"]["replace_one"] > row["epsilon"]["add_remove"] for row in rows)
    assert "all runs" in tacit("ledger")[1]


def test_the_ledger_says_where_another_accountant_counted(tacit, tmp_path):
    plan = Privacy(noise_multiplier=1.0, delta=1e-2, clip=1.0, lot_size=25, bands=2).plan([1000], 4)
    with closing(DurableLedger(tmp_path / "runs" / "ledger.sqlite")) as ledger:
        ledger.open(run="r", owners=["a"], mechanisms=plan.mechanisms, queries=4, release=True).spend()
    out = tacit("ledger", "--delta", "0.01", "--runs", str(tmp_path / "runs"))[1]
    assert "or rdp where pld has no bound" in " ".join(out.split())


def test_the_heading_names_the_runs_that_another_accountant_counted(tacit, tmp_path):
    terms = {"noise_multiplier": 1.0, "delta": 1e-2, "clip": 1.0, "lot_size": 25, "accountant": "rdp"}
    with closing(DurableLedger(tmp_path / "runs" / "ledger.sqlite")) as ledger:
        for run, noise in (("fine", Discrete()), ("plain", None)):
            plan = Privacy(**terms, noise=noise).plan([1000], 4, width=9)
            ledger.open(run=run, owners=["a"], mechanisms=plan.mechanisms, queries=4, release=True).spend()
            out = one_line(tacit("ledger", "--delta", "0.01")[1])
            if run == "fine":
                assert "by the rdp accountant, as pld has no bound, of" in out
    assert "by the pld accountant, or rdp where pld has no bound (fine, all runs), of" in out


def test_runs_that_a_copied_ledger_does_not_have_are_named(tacit, tmp_path):
    """A ledger that is copied while a process has it open, without its -wal, lacks what was written last."""
    tacit("train", *QUICK, "--name", "one")
    assert "not in this ledger" not in tacit("ledger")[2]
    (tmp_path / "runs" / "one").rename(tmp_path / "runs" / "two")
    code, _, err = tacit("ledger")
    assert code == 0
    assert "not in this ledger, although their folders are here: two." in one_line(err)
    assert "copied without ledger.sqlite-wal" in one_line(err)
    assert json.loads(tacit("ledger", "--json")[1])["missing"] == ["two"]


def test_a_ledger_that_is_not_complete_is_reported_and_exits_with_1(tacit, tmp_path):
    tacit("train", *QUICK, "--name", "one")
    edit_log(
        tmp_path / "runs" / "ledger.sqlite",
        lambda row: None if row["kind"] == "query" and row["number"] == 3 else row,
    )
    code, out, _ = tacit("ledger", "--verify")
    assert code == 1
    assert "DOES NOT HOLD" in out


def test_a_run_that_states_less_than_the_record_is_reported(tacit, tmp_path):
    tacit("train", *QUICK, "--name", "one")
    path = tmp_path / "runs" / "one" / "summary.json"
    summary = json.loads(path.read_text())
    summary["epsilon_per_agent"][1] *= 0.9
    path.write_text(json.dumps(summary))
    code, out, _ = tacit("ledger", "--verify")
    assert code == 1
    assert "run 'one' states ε =" in out
    assert "agent 1" in out


def table(out):
    """Return the rows of all tables that are printed, by their first cell."""
    lines = [line.split() for line in out.splitlines()]
    return {cells[0]: cells for cells in lines if len(cells) > 4 and cells[0] != "spent"}


def test_by_default_each_run_has_one_row_for_the_owner_with_the_highest_epsilon(tacit):
    tacit("train", *QUICK, "--name", "one")
    out = tacit("ledger")[1]
    assert "all runs" not in out, "there is one run only"
    tacit("train", *QUICK, "--name", "two")
    rows = json.loads(tacit("ledger", "--json")[1])["spent"]
    most = max((row for row in rows if row["run"] == "one"), key=lambda row: row["epsilon"]["add_remove"])
    out = tacit("ledger")[1]
    assert len([line for line in out.splitlines() if "agent " in line]) == 3
    assert most["owner"].rpartition("/")[2] in next(line for line in out.splitlines() if line.startswith("one "))
    assert len([line for line in tacit("ledger", "--all")[1].splitlines() if line.startswith("agent ")]) == 4


def test_only_certain_runs_are_shown_where_they_are_named(tacit):
    for name in ("one", "two"):
        tacit("train", *QUICK, "--name", name)
    code, out, _ = tacit("ledger", "two", "--json")
    assert code == 0
    assert {row["run"] for row in json.loads(out)["spent"]} == {"two"}
    assert set(table(tacit("ledger", "runs/one")[1])) == {"run", "one"}
    code, _, error = tacit("ledger", "tow")
    assert code == 2
    assert "unknown run 'tow'; did you mean 'two'?" in error


def test_delta_is_that_of_the_runs_and_the_smallest_where_they_differ(tacit):
    few = (*QUICK, "--agents", 2, "--split", "iid")  # each δ has an ε for every size, in both adjacencies
    tacit("train", *few, "--name", "one", "--delta", "1e-3")
    assert "spent at δ=0.001, by" in tacit("ledger")[1]
    tacit("train", *few, "--name", "two", "--delta", "1e-4")
    assert "spent at δ=0.0001, the smallest of these runs' δ, by" in one_line(tacit("ledger")[1])
    assert "at δ=0.001, by" in tacit("ledger", "one")[1]
    assert "at δ=0.01, by" in tacit("ledger", "--delta", "1e-2")[1]


def test_groups_that_hold_the_same_records_are_reported(tacit):
    tacit("train", *QUICK, "--name", "one")
    assert "was divided in" not in tacit("ledger")[1]
    tacit("train", *QUICK, "--name", "two", "--seed", 1)
    code, out, _ = tacit("train", *QUICK, "--name", "three", "--algorithm", "sgd")
    assert code == 0
    for said in (one_line(out), one_line(tacit("ledger")[1])):
        assert "was divided in 3 ways (A(t=0.5)/seed 0/4 agents; A(t=0.5)/seed 1/4 agents; pooled). What" in said
        assert "What was spent on a record in each of them adds up: in a line of all runs" in said
    assert max(map(len, [*out.splitlines(), *tacit("ledger")[1].splitlines()])) <= 80
    assert "was divided in" not in tacit("ledger", "two")[1]


def test_all_together_counts_the_same_records_however_they_were_divided(tacit):
    tacit("train", *QUICK, "--name", "one")
    alone = json.loads(tacit("ledger", "--json")[1])["spent"]
    out = one_line(tacit("train", *QUICK, "--name", "two", "--seed", 1)[1])
    assert "all 2 runs on this data together have spent ε=" in out
    rows = json.loads(tacit("ledger", "--json")[1])["spent"]
    before = {row["owner"]: row for row in alone if row["run"] == "one"}
    for row in rows:
        if row["run"] == "one":
            assert row == before[row["owner"]], "what one run told is that run's"
        elif row["run"] is None and row["owner"] in before:
            one = before[row["owner"]]
            assert row["epsilon"]["add_remove"] > 1.2 * one["epsilon"]["add_remove"]
            assert row["epsilon"]["replace_one"] > 1.2 * one["epsilon"]["replace_one"]
            assert row["queries"] == 2 * one["queries"]
            assert row["basis"] == "plans"
    most = max(row["epsilon"]["add_remove"] for row in rows if row["run"] is None)
    assert one_line(tacit("ledger")[1]).count("all runs agent") == 2, "one line for each way to deal"
    assert round_up(most) in tacit("ledger")[1]


EXPOSED = "a run without privacy has read these records: there is no guarantee"


def test_a_run_without_privacy_is_shown_wherever_an_epsilon_of_its_records_is(tacit):
    tacit("train", *QUICK, "--name", "one")
    before = json.loads(tacit("list", "--json")[1])["runs"][0]
    assert EXPOSED not in one_line(tacit("ledger", "--verify")[1] + tacit("list")[1])
    assert EXPOSED in one_line(tacit("train", *PLAIN, "--name", "open")[1])
    code, out, _ = tacit("ledger", "--verify")
    assert code == 0
    assert f"digits/A(t=0.5)/seed 0/4 agents: {EXPOSED} (open)" in one_line(out)
    rows = table(out)
    assert rows["one"][-4] == round_up(before["epsilon"]), "what one run told is still told"
    assert "∞" in rows["open"]
    assert rows["all"].count("∞") == 2
    document = json.loads(tacit("ledger", "--json")[1])
    assert len(document["exposed"]) == 1
    of = {row["run"]: row for row in document["spent"] if row["owner"] == document["spent"][0]["owner"]}
    assert [of[run]["private"] for run in ("one", "open", None)] == [True, False, False]
    assert [of[run]["epsilon"]["add_remove"] is None for run in ("one", "open", None)] == [False, True, True]
    assert all(row["exposed"] for row in of.values())
    assert f"{EXPOSED} (the records of one)" in one_line(tacit("list")[1])
    assert [row["exposed"] for row in json.loads(tacit("list", "--json")[1])["runs"]] == [True, True]
    page = RecordedRun.load("runs/one")
    assert "A run without privacy has read these records" in report(page)
    again = one_line(tacit("train", *QUICK, "--name", "two")[1])
    assert "all 3 runs on this data together have spent ε=∞" in again
    assert EXPOSED in again


def test_a_run_without_privacy_is_refused_where_a_budget_is_set(tacit, tmp_path):
    tacit("train", *QUICK, "--name", "one", "--budget", "50")
    code, _, error = tacit("train", *PLAIN, "--name", "open")
    assert code == 2
    assert "run 'open' has no privacy" in error
    assert "Nothing was read" in error
    assert not (tmp_path / "runs" / "open").exists()
    assert json.loads(tacit("ledger", "--json", "--verify")[1])["exposed"] == []


@pytest.fixture
def record():
    """Two runs on three owners, of whom the second has the highest ε; and one on someone else's data."""
    ledger = Ledger()
    for run, owners, rates in (
        ("one", "abc", (0.1, 0.3, 0.2)),
        ("two", "abc", (0.1, 0.3, 0.2)),
        ("other", "z", (0.1,)),
    ):
        account = ledger.open(
            run=run,
            owners=[f"data/{run == 'other'}/{owner}" for owner in owners],
            mechanisms=gaussians(rates, [2.0] * len(rates)),
            queries=3,
            release=True,
        )
        account.spend()
    return LedgerSnapshot(ledger)


def test_the_short_form_is_taken_from_the_long_one(record):
    everyone = list(record.rows(1e-5, every=True))
    short = list(record.rows(1e-5))
    assert [(row.owner, row.run) for row in short] == [
        ("data/False/b", "one"),
        ("data/False/b", "two"),
        ("data/False/b", None),
        ("data/True/z", "other"),
    ]
    assert all(row in everyone for row in short)
    assert len(everyone) == 3 * 3 + 2


def test_reading_a_record_asks_the_file_once(tacit, tmp_path, monkeypatch):
    tacit("train", *QUICK, "--name", "one")
    loads, load = [], DurableLedger._load
    monkeypatch.setattr(DurableLedger, "_load", lambda self: (loads.append(1), load(self)))
    assert tacit("ledger")[0] == 0
    assert len(loads) == 1


def budget_table(out):
    """Return ε and explanation by row of the table below a budget."""
    lines = out.split("what it is")[1].split("\ndecided:")[0].splitlines()[2:]
    rows: dict[str, list[str]] = {}
    for line in lines:
        if line[:1].strip():
            name, value, words = line.split(maxsplit=2)
            rows[name] = [value, words.rstrip()]
        elif line.strip():
            rows[name][1] = one_line(f"{rows[name][1]} {line}")
    return rows


def test_a_budget_is_in_one_table_with_what_was_spent_and_what_it_counts(tacit):
    for name in ("one", "two"):
        tacit("train", *QUICK, "--name", name, "--budget", "50")
    out = tacit("ledger")[1]
    assert max(len(line) for line in out.splitlines() if "budget: all runs" not in line) <= 80
    document = json.loads(tacit("ledger", "--json")[1])
    (budget,) = document["budgets"]
    spent = next(row for row in document["spent"] if (row["owner"], row["run"]) == (budget["most_used_by"], None))
    rows = budget_table(out)
    assert list(rows) == ["spent", "counted", "budget"]
    assert [value for value, _ in rows.values()] == [
        round_up(spent["epsilon"]["add_remove"]),
        round_up(budget["counted"]),
        "50",
    ]
    assert "if no run was planned after seeing another's results" in rows["spent"][1]
    assert "a new run must fit into the rest" in rows["counted"][1]
    assert "even if they are planned after seeing others' results" in rows["budget"][1]


def test_a_count_past_the_budget_says_that_no_further_run_fits_and_why(tacit):
    calibrated = ["2" if word == "3" else word.replace("--noise-multiplier", "--epsilon") for word in QUICK]
    out = one_line(tacit("train", *calibrated, "--spare-queries", "0", "--name", "one", "--budget", "2")[1])
    document = json.loads(tacit("ledger", "--json")[1])
    assert document["spent"][0]["epsilon"]["add_remove"] <= 2 < document["budgets"][0]["counted"]
    assert f"counts {round_up(document['budgets'][0]['counted'])} as used, so no further run fits; see" in out
    words = budget_table(tacit("ledger")[1])["counted"][1]
    assert words.endswith(
        "more than the budget, so no further run fits; a first run is admitted by its own ε, which is tighter"
    )
    assert tacit("train", *QUICK, "--noise-multiplier", "100", "--name", "two")[0] == 2


def open_under_a_budget(tmp_path, **queries):
    """Make a ledger with one run on each owner, each stopped after one of its queries, and return its options."""
    mechanisms = {"a": gaussians([1.0], [6.0]), "b": gaussians([0.02], [0.8])}
    with closing(DurableLedger(tmp_path / "visits.sqlite", Budget(epsilon=5.0, delta=1e-3))) as ledger:
        for owner, count in queries.items():
            terms = {"mechanisms": mechanisms[owner], "queries": count, "release": True}
            account = ledger.open(run=f"run {owner}", owners=[owner], **terms)
            account.spend()
            account.close()
    return "--runs", "visits.sqlite"


def test_a_run_that_is_not_finished_keeps_its_name_on_one_line_of_80_columns(tacit, tmp_path):
    with closing(DurableLedger(tmp_path / "visits.sqlite")) as ledger:
        terms = {"mechanisms": gaussians([0.3], [2.0]), "queries": 32, "release": True}
        account = ledger.open(run="dsgt-digits-1", owners=["digits/agent 0"], **terms)
        account.spend()
        account.close()
    lines = tacit("ledger", "--runs", "visits.sqlite", "--delta", "1e-3")[1].splitlines()
    assert any(line.startswith("dsgt-digits-1  agent 0  32 (1 made)") for line in lines)
    assert max(map(len, lines)) <= 80


def test_the_spent_ε_beside_a_budget_is_the_highest_also_where_its_count_is_not(tacit, tmp_path):
    where = open_under_a_budget(tmp_path, a=24, b=300)
    out = tacit("ledger", *where, "--delta", "1e-3")[1]
    document = json.loads(tacit("ledger", *where, "--delta", "1e-3", "--json")[1])
    spent = {row["owner"]: row["epsilon"]["add_remove"] for row in document["spent"] if row["run"] is None}
    assert spent["a"] > spent["b"]
    assert document["budgets"][0]["most_used_by"] == "b"
    assert "most of it is used for b; the highest ε is that of a:" in one_line(out)
    assert budget_table(out)["spent"][0] == round_up(spent["a"])


def test_a_count_below_what_was_spent_is_explained_after_an_abandonment(tacit, tmp_path):
    where = open_under_a_budget(tmp_path, a=24)
    assert "abandoned" not in tacit("ledger", *where)[1]
    assert tacit("ledger", "abandon", "run a", "--reason", "not needed", *where)[0] == 0
    out = tacit("ledger", *where, "--delta", "1e-3")[1]
    spent, counted, _ = (float(value) for value, _ in budget_table(out.rpartition("\nNote:")[0]).values())
    assert counted < spent
    assert "stricter" not in out
    assert (
        "an abandoned run is charged its whole plan in what was spent, and with the queries that it made in what the budget counts"
        in one_line(out)
    )


def test_a_budget_that_was_set_or_raised_after_some_runs_is_not_said_to_cover_them(tacit):
    tacit("train", *QUICK, "--name", "one")
    DurableLedger("runs/ledger.sqlite", Budget(epsilon=50.0, delta=1e-5)).close()
    assert "proves nothing about" in budget_table(tacit("ledger")[1])["budget"][1], "one run was there before it"
    tacit("train", *QUICK, "--name", "two")
    assert "proves nothing about runs that were planned after seeing" in budget_table(tacit("ledger")[1])["budget"][1]
    tacit("train", *QUICK, "--name", "one", "--runs", "early", "--budget", "50")
    early = ("ledger", "--runs", "early")
    assert budget_table(tacit(*early)[1])["spent"][1] == "what all runs so far have spent"
    assert "even if they are planned" in budget_table(tacit(*early)[1])["budget"][1]
    tacit("ledger", "raise", "60", "--reason", "agreed", "--runs", "early")
    assert "proves nothing about" in budget_table(tacit(*early)[1])["budget"][1]
