"""The ledger on disk: never loses a spent query, and never lets two grant the same allowance."""

import random
import signal
import sqlite3
import subprocess
import sys
import time

import forked
import pytest
from opening_accounts import OPEN, open_account
from tampering import read_log

from tacit.errors import BudgetExceeded, PrivacyError, StorageError
from tacit.privacy import Budget, Ledger
from tacit.privacy.store import DurableLedger


def test_agrees_with_the_ledger_in_memory(path):
    durable, memory = DurableLedger(path), Ledger()
    for ledger in (durable, memory):
        for run, count in (("one", 3), ("two", 2)):
            account = open_account(ledger, run=run)
            for _ in range(count):
                account.spend()
            account.close(finished=run == "one")
        ledger.open_without_privacy(runs=["open"], owners=["c"], mechanisms=[OPEN])[0].spend()
    assert durable.entries() == memory.entries()
    assert durable.to_json() == memory.to_json()
    assert [(entry.state, entry.event.count) for entry in memory.entries("a")] == [("finished", 3), ("stopped", 5)]
    assert durable.guarantee("a", delta=1e-5) == memory.guarantee("a", delta=1e-5)
    assert durable.guarantee("c", delta=1e-5) == memory.guarantee("c", delta=1e-5)
    assert durable.verify() == []


def test_what_was_spent_is_there_when_the_file_is_opened_again(path):
    account = open_account(DurableLedger(path, Budget(epsilon=50.0, delta=1e-5)), rate=0.123456789, release=False)
    account.spend()
    account.spend()
    again = DurableLedger(path)
    assert [(e.owner, e.spent, e.event.sample_rate) for e in again.entries()] == [
        ("a", 2, 0.123456789),
        ("b", 2, 0.123456789),
    ]
    assert again.budget == Budget(epsilon=50.0, delta=1e-5)
    assert not again.guarantee("a", delta=1e-5).release


def test_a_run_that_stopped_can_be_reopened_and_a_finished_one_cannot(path):
    account = open_account(DurableLedger(path), queries=3)
    account.spend()
    ledger = DurableLedger(path)
    again = ledger.reopen("run")
    assert (again.spent, again.remaining) == (1, 2)
    again.spend()
    again.spend()
    with pytest.raises(BudgetExceeded, match="all 3 queries"):
        again.spend()
    again.close(finished=True)
    with pytest.raises(PrivacyError, match="finished"):
        ledger.reopen("run")
    with pytest.raises(PrivacyError, match="has no run 'other'"):
        ledger.reopen("other")


def test_a_run_name_is_used_once(path):
    open_account(DurableLedger(path))
    with pytest.raises(PrivacyError, match="has a run 'run' already"):
        open_account(DurableLedger(path))


def test_processes_see_each_others_spending_and_allowances(path):
    one, other = DurableLedger(path, Budget(epsilon=1.0, delta=1e-5)), DurableLedger(path)
    account = open_account(one, run="one", sigma=3.0, queries=45)
    with pytest.raises(BudgetExceeded, match="past its budget"):
        open_account(other, run="two", sigma=3.0, queries=45)
    account.spend()
    assert other.entries("a")[0].spent == 1
    account.close()
    with pytest.raises(BudgetExceeded, match="past its budget"):
        open_account(other, run="two", sigma=3.0, queries=40)
    assert other.account("one").charged == 45, "stopped, it is charged its plan in every process"


def test_two_processes_cannot_charge_the_same_query(path):
    one = open_account(DurableLedger(path))
    other = DurableLedger(path).reopen("run")
    one.spend()
    with pytest.raises(BudgetExceeded, match="two processes must not work on one run"):
        other.spend()


def test_a_refused_account_leaves_no_trace(path):
    ledger = DurableLedger(path, Budget(epsilon=0.1, delta=1e-5))
    with pytest.raises(BudgetExceeded):
        open_account(ledger, queries=500)
    assert ledger.entries() == []
    assert [row["kind"] for row in read_log(path)] == ["budget"]


def test_foreign_and_broken_files_are_refused_and_left_as_they_are(tmp_path):
    text, foreign, folder = tmp_path / "a.sqlite", tmp_path / "b.sqlite", tmp_path / "c.sqlite"
    text.write_text("this is no database at all, just text that goes on for a while")
    with sqlite3.connect(foreign) as database:
        database.execute("CREATE TABLE other (x)")
    folder.mkdir()
    for path, error, message in (
        (text, StorageError, "not a ledger"),
        (foreign, PrivacyError, "not a ledger of Tacit"),
        (folder, StorageError, "cannot be used"),
    ):
        before = path.read_bytes() if path.is_file() else None
        with pytest.raises(error, match=message):
            DurableLedger(path)
        assert before is None or path.read_bytes() == before


def test_a_disk_that_refuses_to_write_spends_nothing(path):
    account = open_account(DurableLedger(path))
    account.spend()
    account._ledger._database.execute("PRAGMA max_page_count = 1")  # as good as a full disk
    account._ledger._database.execute("PRAGMA query_only = ON")
    with pytest.raises(StorageError, match="what it could not record was not released"):
        account.spend()
    assert account.spent == 1
    assert DurableLedger(path).entries("a")[0].spent == 1


def spend_all(tell, path):
    account = DurableLedger(path).reopen("run")
    while account.remaining:
        account.spend()
        tell(account.spent)  # an answer leaves only after its query is charged


@pytest.mark.slow
def test_kill_9_at_random_moments_loses_no_spent_query(path):
    """The child tells each query only after it was charged; what it told is never more than the ledger has."""
    open_account(DurableLedger(path), queries=10_000)
    moments = random.Random(0)
    told = 0
    for _ in range(5):
        child, said = forked.start(spend_all, path)
        with said:
            said.readline()
            time.sleep(moments.uniform(0.01, 0.3))
            child.kill()
            lines = said.read().split()
        child.join()
        told = max([told, *map(int, (line for line in lines if line.isdigit()))])
        ledger = DurableLedger(path)
        spent = ledger.entries("a")[0].spent
        assert ledger.verify() == []
        assert told <= spent <= told + 2  # charged and killed before it was told, or told and cut off in the pipe
        told = spent


READER = """
import os, signal, sys
from tacit.privacy import Mechanism
from tacit.privacy.store import DurableLedger
OPEN = Mechanism.plain(sample_rate=0.5, lot=5)
(account,) = DurableLedger(sys.argv[1]).open_without_privacy(runs=["open"], owners=["a"], mechanisms=[OPEN])
account.spend()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_kill_9_leaves_a_run_without_privacy_on_record(path):
    account = open_account(DurableLedger(path), owners=("a",), queries=1)
    account.spend()
    account.close(finished=True)
    assert subprocess.run([sys.executable, "-c", READER, str(path)]).returncode == -signal.SIGKILL
    ledger = DurableLedger(path)
    assert ledger.readers_without_privacy(["a"]) == {"a": ("open",)}
    assert ledger.guarantee("a", delta=1e-5).epsilon == float("inf")
    assert ledger.verify() == []


def test_a_budget_on_disk_refuses_a_run_without_privacy_and_keeps_no_trace(path):
    ledger = DurableLedger(path, Budget(epsilon=50.0, delta=1e-5))
    with pytest.raises(BudgetExceeded, match="has no privacy"):
        ledger.open_without_privacy(runs=["open"], owners=["a"], mechanisms=[OPEN])
    assert DurableLedger(path).accounts == ()


def test_how_runs_were_let_in_is_on_disk(path):
    ledger = DurableLedger(path, Budget(epsilon=2.0, delta=1e-5))
    for run in ("one", "two"):
        open_account(ledger, run=run, sigma=4.0).spend()
    kept = DurableLedger(path).guarantee("a", delta=1e-5)
    assert (kept.basis, kept.adaptive) == ("filter", 2.0)


def test_a_ledger_of_the_version_before_is_refused_and_left_as_it_is(path):
    DurableLedger(path).close()
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 5")
    with pytest.raises(PrivacyError, match=r"is a ledger of version 5, .* Keep it"):
        DurableLedger(path)
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (5,)
