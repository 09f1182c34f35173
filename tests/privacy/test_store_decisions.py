"""Decisions in the ledger on disk: runs that were killed are abandoned, and budgets are raised, with who and why."""

import sqlite3
import subprocess
import sys

import pytest
from opening_accounts import open_account, with_three_queries
from tampering import edit_log

from tacit.errors import BudgetExceeded, PrivacyError, StorageError
from tacit.privacy import Budget, Ledger
from tacit.privacy.store import DurableLedger

RESERVED = {"rate": 0.1, "sigma": 5.0, "queries": 100}  # passes the filter of ε=1, and twice as much does not


KILLED = """
import os, signal, sys
from tacit.privacy import Mechanism
from tacit.privacy.store import DurableLedger
ledger = DurableLedger(sys.argv[1])
mechanism = Mechanism.gaussian(sample_rate=0.1, clip=1.0, lot=5.0, noise_multiplier=5.0)
account = ledger.open(
    run="killed", owners=["a"], mechanisms=[mechanism], queries=100, release=True
)
for _ in range(int(sys.argv[2])):
    account.spend()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def at_work(path):
    """Start a process that opens an account and asks so many queries; it is there until it is killed."""
    started = []

    def start(asked):
        DurableLedger(path, Budget(epsilon=1.0, delta=1e-5)).close()
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(path), str(asked)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def kill(process):
    process.kill()
    process.communicate()


@pytest.mark.parametrize("asked", [0, 7])
def test_a_killed_run_is_named_by_the_refusal_and_can_be_abandoned(path, at_work, asked):
    process = at_work(asked)
    ledger = DurableLedger(path)
    with pytest.raises(BudgetExceeded, match=rf"run 'killed' \({asked} of 100 made\); it is running\. `tacit ledger"):
        open_account(ledger, owners=("a",), **RESERVED)
    with pytest.raises(PrivacyError, match="a process is working on run 'killed'; stop it first"):
        ledger.abandon("killed", who="me", reason="in the way")
    kill(process)
    named = rf"held for run 'killed' \({asked} of 100 made\).*`tacit ledger abandon killed --runs .*runs --reason WHY`"
    with pytest.raises(BudgetExceeded, match=named):
        open_account(ledger, owners=("a",), **RESERVED)
    ledger.abandon("killed", who="me", reason="the power went out")
    assert [(each.subject, each.who, each.reason) for each in DurableLedger(path).decisions] == [
        ("killed", "me", "the power went out")
    ]
    with pytest.raises(BudgetExceeded):
        open_account(ledger, owners=("a",), **(RESERVED | {"queries": 145 if asked else 250}))
    account = open_account(ledger, owners=("a",), **RESERVED)
    for _ in range(100):
        account.spend()
    account.close(finished=True)
    again = DurableLedger(path)
    assert again.verify() == []
    assert again.to_json() == Ledger.from_json(again.to_json()).to_json()
    kept = again.guarantee("a", delta=1e-5)
    assert kept.epsilon <= 1.0
    assert (kept.basis, kept.adaptive) == (("filter", 1.0) if asked else ("plan", None))
    with pytest.raises(PrivacyError, match="run 'killed' is abandoned"):
        again.abandon("killed", who="me", reason="again")
    with pytest.raises(PrivacyError, match="run 'killed' is abandoned"):
        again.reopen("killed")


def test_what_an_abandoned_run_asked_stays_charged(path, at_work):
    kill(at_work(7))
    ledger = DurableLedger(path)
    of_its_plan = ledger.guarantee("a", delta=1e-5, run="killed")
    ledger.abandon("killed", who="me", reason="gone")
    assert ledger.guarantee("a", delta=1e-5, run="killed") == of_its_plan, (
        "when it was killed may depend on the answers"
    )
    (entry,) = ledger.entries("a")
    assert (entry.spent, entry.event.count, entry.state) == (7, 100, "abandoned")


def test_a_first_run_that_only_its_plan_let_in_is_charged_all_of_it_also_when_it_is_abandoned(path):
    ledger = DurableLedger(path, Budget(epsilon=1.0, delta=1e-5))
    account = open_account(ledger, run="one", sigma=3.0, queries=45)
    account.spend()
    account.close()
    ledger.abandon("one", who="me", reason="gone")
    with pytest.raises(BudgetExceeded, match=r"Nothing was spent\. `tacit ledger"):
        open_account(ledger, run="two", sigma=3.0, queries=1)


def test_a_run_in_this_process_is_alive_until_its_account_or_ledger_is_closed(path):
    ledger, other = DurableLedger(path), DurableLedger(path)
    account = open_account(ledger)
    with pytest.raises(PrivacyError, match="a process is working on run 'run'"):
        other.abandon("run", who="me", reason="gone")
    ledger.close()
    other.abandon("run", who="me", reason="gone")
    with pytest.raises((BudgetExceeded, StorageError, sqlite3.ProgrammingError)):
        account.spend()
    assert list(path.parent.glob(".*.lock")) == []


def test_an_abandoned_run_that_was_not_dead_cannot_ask(path):
    """The lock is courtesy; that nothing is asked after a run was abandoned rests on the ledger alone."""
    account = open_account(DurableLedger(path))
    for file in path.parent.glob(".*.lock"):
        file.unlink()
    DurableLedger(path).abandon("run", who="me", reason="gone")
    with pytest.raises(BudgetExceeded, match="closed"):
        account.spend()
    assert DurableLedger(path).entries() == []


@pytest.mark.parametrize("missing", [{"who": " ", "reason": "x"}, {"who": "me", "reason": ""}])
def test_abandoning_a_run_says_who_and_why(path, missing):
    account = open_account(DurableLedger(path))
    account.close()
    with pytest.raises(PrivacyError, match="the ledger records it"):
        DurableLedger(path).abandon("run", **missing)


def test_a_run_is_not_abandoned_by_closing_it_so(path):
    """That takes a decision, with who and why."""
    with_three_queries(path)
    edit_log(path, lambda row: row | {"state": "abandoned"} if row["kind"] == "close" else row)
    with pytest.raises(StorageError, match="closed as 'abandoned'"):
        DurableLedger(path)


def test_a_budget_is_raised_with_who_and_why(path):
    ledger = DurableLedger(path, Budget(epsilon=1.0, delta=1e-5), {"b": Budget(epsilon=2.0, delta=1e-5)})
    ledger.raise_budget(3.0, who="board", reason="agreed")
    ledger.raise_budget(4, who="b itself", reason="consent", owner="b")
    again = DurableLedger(path)
    assert again.budget == Budget(epsilon=3.0, delta=1e-5)
    assert again.budgets == {"b": Budget(epsilon=4.0, delta=1e-5)}
    assert [(each.subject, each.before, each.after, each.who) for each in again.decisions] == [
        ("", 1.0, 3.0, "board"),
        ("b", 2.0, 4.0, "b itself"),
    ]
    assert again.verify() == []
    assert Ledger.from_json(again.to_json()).decisions == again.decisions
    changed = {"epsilon": 2.5, "delta": 1e-5, "adjacency": "add_remove", "accountant": "pld", "observer": "all"}
    edit_log(path, lambda row: row | {"budget": changed} if row["kind"] == "budget" and not row["owner"] else row)
    with pytest.raises(StorageError, match=r"raised from ε=1.0, but ε=2.5 at δ=1e-05 .* was stored"):
        DurableLedger(path)


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"epsilon": 1.0}, "does not raise it"),
        ({"epsilon": float("nan")}, "must be positive and finite"),
        ({"epsilon": 3.0, "owner": "c"}, "no budget of its own for 'c'"),
        ({"epsilon": 3.0, "reason": " "}, "say the reason"),
    ],
)
def test_a_budget_is_not_raised_without_sense(path, terms, said):
    ledger = DurableLedger(path, Budget(epsilon=1.0, delta=1e-5))
    with pytest.raises(PrivacyError, match=said):
        ledger.raise_budget(**({"who": "me", "reason": "x"} | terms))
    assert DurableLedger(path).budget == Budget(epsilon=1.0, delta=1e-5)
    assert DurableLedger(path).decisions == []


def test_a_raised_budget_proves_nothing_of_runs_before_it(path):
    """It may have been raised by their results, and the filter's order follows from the budget."""
    ledger = DurableLedger(path, Budget(epsilon=1.0, delta=1e-5))
    for run in ("one", "two"):
        open_account(ledger, run=run, sigma=9.0).spend()
    assert ledger.guarantee("a", delta=1e-5).basis == "filter"
    ledger.raise_budget(2.0, who="me", reason="more")
    open_account(ledger, run="three", sigma=9.0).spend()
    assert (ledger.guarantee("a", delta=1e-5).basis, ledger.guarantee("a", delta=1e-5).adaptive) == ("plans", None)
    assert Ledger.from_json(ledger.to_json()).guarantee("a", delta=1e-5).basis == "plans"


def test_a_refusal_after_a_raise_does_not_promise_that_abandoning_a_run_frees_queries(path):
    ledger = DurableLedger(path, Budget(epsilon=1.0, delta=1e-5))
    for run, spent in (("one", 1), ("none", 0)):
        account = open_account(ledger, run=run, sigma=9.0, queries=50)
        for _ in range(spent):
            account.spend()
        account.close()
    ledger.raise_budget(1.1, who="me", reason="more")
    account = ledger.account("one")
    assert account.to_free(account.lines[0]) == 49
    assert ledger.to_free(account, account.lines[0]) == 0
    with pytest.raises(BudgetExceeded) as refused:
        open_account(ledger, run="two", sigma=5.0, queries=200)
    assert "whole plan of 'one' stays charged, even if abandoned, since the budget was set or raised" in str(
        refused.value
    )
    assert "abandon one" not in str(refused.value)
    before = ledger.filtered("a")
    ledger.abandon("one", who="me", reason="gone")
    assert ledger.filtered("a") == before


def test_what_an_abandoned_run_did_not_ask_counts_again_once_the_budget_is_raised(path):
    ledger = DurableLedger(path, Budget(epsilon=1.0, delta=1e-5))
    account = open_account(ledger, run="one", sigma=5.0, queries=100)
    account.spend()
    account.close()
    ledger.abandon("one", who="me", reason="gone")
    made = ledger.filtered("a")
    assert made < 0.6
    ledger.raise_budget(1.001, who="me", reason="more")
    assert ledger.filtered("a") > 0.8, "the filter of this budget did not let it in"
