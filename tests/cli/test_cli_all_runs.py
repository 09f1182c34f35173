"""What all runs together may spend, and have spent, of the same data."""

import json
from contextlib import closing

from invoking import PLAIN, QUICK, one_line

from tacit.cli.terminal.output import round_up
from tacit.privacy import Budget, DurableLedger
from tacit.privacy.guarantees import format_epsilon


def test_a_second_run_that_would_pass_the_budget_is_refused(tacit, tmp_path):
    DurableLedger(tmp_path / "runs" / "ledger.sqlite", Budget(epsilon=1.0, delta=1e-5))
    assert tacit("train", *QUICK, "--name", "one")[0] == 0
    code, _, error = tacit("train", *QUICK, "--noise-multiplier", 0.7, "--name", "two")
    assert code == 2
    assert "past its budget of ε=1" in " ".join(error.split())
    assert not (tmp_path / "runs" / "two").exists()


def test_a_budget_given_with_a_run_is_stored_in_its_terms_and_holds_for_those_after_it(tacit, tmp_path):
    words = ("train", *QUICK, "--delta", "1e-4", "--adjacency", "replace_one")
    assert tacit(*words, "--budget", "2", "--name", "one")[0] == 0
    stored = DurableLedger(tmp_path / "runs" / "ledger.sqlite").budget
    assert stored == Budget(epsilon=2.0, delta=1e-4, adjacency="replace_one", accountant="pld")
    code, _, error = tacit(*words, "--noise-multiplier", 0.9, "--name", "two")
    assert code == 2
    assert (
        "past its budget of ε=2 at δ=0.0001 (replace-one, against everybody else together). After the first run the Rényi filter"
        in one_line(error)
    )
    assert tacit(*words, "--budget", "2", "--name", "three")[0] == 0


def test_a_refusal_says_how_much_is_counted_already_and_what_can_be_done(tacit, tmp_path):
    tacit("train", *QUICK, "--name", "one")
    with closing(DurableLedger(tmp_path / "runs" / "ledger.sqlite")) as ledger:
        (events,) = {tuple(ledger.histories(line.owner)[0]) for line in ledger.accounts[0].lines[:1]}
        counted = Budget(epsilon=0.1, delta=1e-5).filtered(events)
    code, _, error = tacit("train", *QUICK, "--name", "two", "--budget", "0.1")
    assert code == 2
    said = one_line(error)
    assert f"from the results of others, and counts {format_epsilon(counted)} already." in said
    assert "Nothing was spent. No budget was stored: `tacit ledger --runs runs` shows what earlier runs" in said
    assert tacit("train", *QUICK, "--name", "two", "--budget", "2")[0] == 0
    code, _, error = tacit("train", *QUICK, "--noise-multiplier", "0.7", "--name", "three", "--budget", "2")
    assert code == 2
    assert "the owners may raise the budget: `tacit ledger raise ε --runs runs --reason WHY`" in one_line(error)


def test_a_budget_that_the_first_run_would_pass_refuses_it(tacit, tmp_path):
    code, _, error = tacit("train", *QUICK, "--budget", "0.01", "--name", "one")
    assert code == 2
    assert "past its budget of ε=0.01" in one_line(error)
    assert not (tmp_path / "runs" / "one").exists()


def test_another_budget_than_the_stored_one_is_refused(tacit):
    tacit("train", *QUICK, "--budget", "2", "--name", "one")
    code, _, error = tacit("train", *QUICK, "--budget", "3", "--name", "two")
    assert code == 2
    assert "has a budget already: ε=2 at δ=1e-05 (add-or-remove-one, against everybody else together), pld" in one_line(
        error
    )


def test_a_run_that_cannot_begin_for_another_reason_leaves_no_budget(tacit, tmp_path):
    assert tacit("train", *QUICK, "--budget", "2", "--lot-size", "5000")[0] == 2
    assert DurableLedger(tmp_path / "runs" / "ledger.sqlite").budget is None


def test_what_all_runs_have_spent_is_reported_after_each(tacit):
    assert "the only run on this data has spent ε=" in one_line(tacit("train", *QUICK, "--budget", "2")[1])
    out = one_line(tacit("train", *QUICK)[1])
    rows = json.loads(tacit("ledger", "--json")[1])["spent"]
    most = max((row for row in rows if row["run"] is None), key=lambda row: row["epsilon"]["add_remove"])
    assert "all 2 runs on this data together have spent ε=" in out
    assert "per record (highest for" in out
    assert "if no run was planned after seeing another's results" in out
    (budget,) = json.loads(tacit("ledger", "--json")[1])["budgets"]
    assert (
        f"the budget of ε=2 at δ=1e-05 (add-or-remove-one, against everybody else together) counts {round_up(budget['counted'])} as used"
        in out
    )
    assert f"highest for {most['owner'].rpartition('/')[2]})" in out
    shown = float(out.split("together have spent ε=")[1].split()[0])
    assert most["epsilon"]["add_remove"] <= shown <= most["epsilon"]["add_remove"] * 1.001
    assert "spent ε" not in tacit("train", *PLAIN)[1]
