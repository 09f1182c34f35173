"""The log of the ledger on disk: rows that were changed, removed or do not follow are found, and its heads cover it."""

import hashlib
import sqlite3

import pytest
from opening_accounts import OPEN, open_account, with_three_queries
from tampering import edit_lines, edit_log, gaussians, read_log, write_log

from tacit.errors import PrivacyError, StorageError
from tacit.io import chains
from tacit.privacy import Budget, Ledger
from tacit.privacy.log import START
from tacit.privacy.store import DurableLedger


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
    "one plan of runs with queries between": (of_run("three", together="one"), "together with 'one', but was not"),
    "one plan with nobody": (of_run("two", together="nobody"), "together with 'nobody', but was not"),
    "one plan with a run to come": (of_run("one", together="two"), "together with 'two', but was not"),
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
    assert any("together with 'one', but was not" in problem for problem in DurableLedger(path).verify())


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


def test_a_line_without_noise_among_others_is_refused(path):
    with_three_queries(path)
    edit_lines(path, lambda place, line: line if place else line | {"mechanism": OPEN.to_json()})
    with pytest.raises(StorageError, match="a line without noise"):
        DurableLedger(path)


def test_rows_that_protect_another_unit_on_the_same_records_are_refused(path):
    """An ε per record and an ε per patient cannot be added up."""
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
