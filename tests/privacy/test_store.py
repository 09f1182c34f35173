"""The ledger on disk: never loses a spent query, and never lets two promise the same allowance."""

import hashlib
import random
import signal
import sqlite3
import subprocess
import sys
import time

import forked
import pytest
from tampering import edit_lines, edit_log, gaussians, read_log, write_log

from tacit.errors import BudgetExceeded, PrivacyError, StorageError
from tacit.io import chains
from tacit.privacy import Budget, Ledger, Mechanism
from tacit.privacy.log import START
from tacit.privacy.store import DurableLedger

OPEN = Mechanism.plain(sample_rate=0.5, lot=5)


def open_account(ledger, *, run="run", owners=("a", "b"), rate=0.1, sigma=2.0, queries=5, release=True):
    return ledger.open(
        run=run,
        owners=owners,
        mechanisms=gaussians([rate] * len(owners), [sigma] * len(owners)),
        queries=queries,
        release=release,
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs" / "ledger.sqlite"


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


def drop(kind, **which):
    """Return a change that drops the rows of a kind with these fields."""
    return lambda row: None if row["kind"] == kind and which.items() <= row.items() else row


CONSISTENT = {
    "a query": (drop("query", number=2), "query 3 after 1: some are missing"),
    "the account": (drop("open"), "account 1, which was not opened"),
    "the allowance": (lambda row: row | {"allowed": 1} if row["kind"] == "open" else row, "was allowed 1"),
    "all owners": (lambda row: row | {"lines": []} if row["kind"] == "open" else row, "names no data owner"),
    "a query after the end": (lambda row: row | {"number": 1} if row["kind"] == "close" else row, "has the fields"),
}


@pytest.mark.parametrize("change", CONSISTENT)
def test_verify_finds_rows_that_do_not_follow_though_their_hashes_do(path, change):
    with_three_queries(path)
    how, found = CONSISTENT[change]
    edit_log(path, how)
    try:
        problems = DurableLedger(path).verify()
    except StorageError as error:
        problems = [str(error)]
    assert any(found in problem for problem in problems)


def with_a_raise(path, *, together=False):
    """Two runs, opened apart or in one go, a raised budget, and a third run."""
    ledger = DurableLedger(path, Budget(epsilon=50.0, delta=1e-5))
    terms = {"owners": ["a"], "mechanisms": gaussians([0.1], [9.0]), "queries": 3, "release": True}
    accounts = (
        ledger.open_together(runs=["one", "two"], **terms)
        if together
        else [ledger.open(run=run, **terms) for run in ("one", "two")]
    )
    for account in accounts:
        account.spend()
    ledger.raise_budget(60.0, who="me", reason="more")
    ledger.open(run="three", **terms).spend()
    assert ledger.verify() == []
    ledger.close()


def of_raise(**changes):
    return lambda row: row | {"decision": row["decision"] | changes} if row["kind"] == "decision" else row


def of_run(run, **changes):
    return lambda row: row | changes if row["kind"] == "open" and row["run"] == run else row


def of_lines(run, **changes):
    return lambda row: (
        row | {"lines": [line | changes for line in row["lines"]]}
        if row["kind"] == "open" and row["run"] == run
        else row
    )


CLAIMS = {
    "no run before the raise": (of_raise(runs=0), "raised after 0 runs, but 2 were on record"),
    "fewer runs before the raise": (of_raise(runs=1), "raised after 1 runs, but 2 were on record"),
    "more runs before the raise": (of_raise(runs=3), "raised after 3 runs, but 2 were on record"),
    "one plan of runs with queries between": (of_run("three", together="one"), "together with 'one', and was not"),
    "one plan with nobody": (of_run("two", together="nobody"), "together with 'nobody', and was not"),
    "one plan with a run to come": (of_run("one", together="two"), "together with 'two', and was not"),
    "another number": (of_run("three", account=7), "is account 7, but 2 were opened before it"),
    "no budget": (of_lines("two", ground="free"), "admitted as 'free', but 'a' had a budget"),
}


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_log_that_claims_what_its_own_order_denies_is_refused(path, claim):
    """Each would make the budget's filter, or one plan, prove more than it does."""
    change, said = CLAIMS[claim]
    with_a_raise(path)
    edit_log(path, change)
    try:
        problems = DurableLedger(path).verify()
    except StorageError as error:
        problems = [str(error)]
    assert any(said in problem for problem in problems)


def test_runs_that_were_opened_in_one_go_are_read_as_such(path):
    with_a_raise(path, together=True)
    assert [account.together for account in DurableLedger(path).accounts] == ["one", "one", "three"]
    edit_log(path, of_run("two", allowed=2))
    with pytest.raises(StorageError, match="not opened right after it on the same terms"):
        DurableLedger(path)


def test_a_query_between_runs_that_claim_one_plan_is_found(path):
    with_a_raise(path, together=True)
    rows = read_log(path)
    kinds = [row["kind"] for row in rows]
    assert kinds[:4] == ["budget", "open", "open", "query"]
    write_log(path, [*rows[:2], rows[3], rows[2], *rows[4:]])
    assert any("together with 'one', and was not" in problem for problem in DurableLedger(path).verify())


def test_a_filter_that_let_nobody_in_proves_nothing(path):
    """A first run that only its plan let in, as if the filter had."""
    ledger = DurableLedger(path, Budget(epsilon=1.0, delta=1e-5))
    terms = {"owners": ["a"], "release": True}
    ledger.open(run="one", queries=45, mechanisms=gaussians([0.1], [3.0]), **terms).spend()
    ledger.close()
    rows = read_log(path)
    copy = rows[1] | {"account": 2, "run": "two", "together": "two", "token": "ab" * 8}
    write_log(path, [*rows, copy])
    edit_lines(path, lambda _, line: line | {"ground": "filter"})
    kept = DurableLedger(path).guarantee("a", delta=1e-5)
    assert (kept.basis, kept.adaptive) == ("plans", None)


def test_a_budget_of_its_own_that_an_owner_gets_later_proves_nothing_of_runs_before(path):
    """It may have been chosen by their results."""
    terms = {"owners": ["a"], "mechanisms": gaussians([0.1], [9.0]), "queries": 3, "release": True}
    ledger = DurableLedger(path, Budget(epsilon=9.0, delta=1e-5))
    for run in ("one", "two"):
        ledger.open(run=run, **terms).spend()
    assert ledger.guarantee("a", delta=1e-5).adaptive == 9.0
    ledger.close()
    late = DurableLedger(path, budgets={"a": Budget(epsilon=4.0, delta=1e-5)})
    late.open(run="three", **terms).spend()
    for copy in (late, Ledger.from_json(late.to_json())):
        kept = copy.guarantee("a", delta=1e-5)
        assert (kept.basis, kept.adaptive) == ("plans", None)


def with_three_queries(path):
    account = open_account(DurableLedger(path))
    for _ in range(3):
        account.spend()
    account.close(finished=True)


def test_a_line_without_noise_among_others_is_refused(path):
    with_three_queries(path)
    edit_lines(path, lambda place, line: line if place else line | {"mechanism": OPEN.to_json()})
    with pytest.raises(StorageError, match="a line without noise"):
        DurableLedger(path)


def test_rows_that_promise_to_another_unit_on_the_same_records_are_refused(path):
    """What a run promises to records and another to patients cannot be added up."""
    ledger = DurableLedger(path)
    for run in ("one", "two"):
        held = {"owners": ["a"], "mechanisms": gaussians([0.1], [2.0]), "records": "visits", "queries": 5}
        ledger.open(run=run, release=True, **held).spend()
    ledger.close()

    def to_patients(row):
        if row["kind"] != "open" or row["run"] != "two":
            return row
        (line,) = row["lines"]
        sampler = line["mechanism"]["sampler"] | {"unit": "patient"}
        return row | {"lines": [line | {"mechanism": line["mechanism"] | {"sampler": sampler}}]}

    edit_log(path, to_patients)
    with pytest.raises(StorageError, match="every patient and run 'one' every record"):
        DurableLedger(path)


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("DELETE FROM log WHERE number = 3", "some are missing"),
        ("UPDATE log SET text = replace(text, '\"allowed\":5', '\"allowed\":6') WHERE number = 1", "row 1 was changed"),
        ("UPDATE log SET hash = replace(hash, 'a', 'b')", "was changed"),
        ("UPDATE log SET account = 7 WHERE number = 4", "another account"),
    ],
)
def test_verify_finds_rows_that_were_changed_by_themselves(path, damage, found):
    ledger = DurableLedger(path)
    with_three_queries(path)
    with sqlite3.connect(path) as database:
        assert database.execute(damage).rowcount
    assert any(found in problem for problem in ledger.verify())


def test_the_head_covers_every_row_in_order(path):
    """By a loop from the definition: the hash before, the digest of the canonical row, each on a line."""
    with_three_queries(path)
    ledger, previous = DurableLedger(path), START
    for row, (text, kept) in zip(read_log(path), ledger.log, strict=True):
        assert text == chains.canonical(row)
        previous = hashlib.sha256(f"{previous}\n{hashlib.sha256(text.encode()).hexdigest()}\n".encode()).hexdigest()
        assert kept == previous
    assert (ledger.head.number, ledger.head.hash) == (5, previous)
    assert (
        DurableLedger(path.with_name("empty.sqlite")).head.hash
        == START
        == hashlib.sha256(b"tacit-ledger-7").hexdigest()
    )


def test_an_earlier_head_stays_in_the_log_whatever_is_added(path):
    ledger = DurableLedger(path, Budget(epsilon=50.0, delta=1e-5))
    account = open_account(ledger)
    heads = [ledger.head]
    for _ in range(3):
        account.spend()
        heads.append(DurableLedger(path).head)
    ledger.raise_budget(60, who="me", reason="more")
    hashes = [kept for _, kept in ledger.log]
    assert [hashes[head.number - 1] for head in heads] == [head.hash for head in heads]


def test_a_ledger_that_loses_rows_while_it_is_used_spends_nothing(path):
    account = open_account(DurableLedger(path))
    account.spend()
    edit_log(path, drop("query"))
    with pytest.raises(StorageError, match=r"rows that were there are gone. Nothing was spent"):
        account.spend()
    assert [row["kind"] for row in read_log(path)] == ["open"]


def test_the_heads_of_a_runs_events_are_in_the_log(path):
    ledger = DurableLedger(path)
    open_account(ledger)
    ledger.anchor("run", "ab" * 32)
    ledger.anchor("run", "cd" * 32)
    assert DurableLedger(path).anchors("run") == ("ab" * 32, "cd" * 32)
    assert ledger.verify() == []
    with pytest.raises(PrivacyError, match="has no run 'other'"):
        ledger.anchor("other", "ab" * 32)
    with pytest.raises(PrivacyError, match="not a hash"):
        ledger.anchor("run", "x")
    assert ledger.head.number == 3


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
    with pytest.raises(StorageError, match="nothing was spent"):
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
    with pytest.raises(BudgetExceeded, match=rf"run 'killed' \({asked} of 100 made\); it is running$"):
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
    with pytest.raises(BudgetExceeded, match=r"Nothing was spent$"):
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
    assert "whole plan of 'one' stays charged, also if abandoned, since the budget was set or raised" in str(
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
