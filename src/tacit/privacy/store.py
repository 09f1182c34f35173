"""The ledger on disk: an SQLite file that survives `kill -9` at any moment and can be shared by processes.

It holds one table, the log (see `tacit.privacy.log`): rows are appended and never changed, and each has a hash that covers all
rows before it. Every query is one row, written and synced before its answer leaves the oracle (WAL, synchronous FULL). An account
that was open when its process died keeps its allowance until the run is resumed or abandoned, so that no query is granted twice.
A process that uses an account holds a lock in a file beside the ledger, which shows that it is alive.
"""

import os
import secrets
import shlex
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tacit.errors import BudgetExceeded, PrivacyError, StorageError
from tacit.io import chains, lock
from tacit.privacy.accounts import Account, Line, State
from tacit.privacy.charges import charges_of, living_rank
from tacit.privacy.database import connect, reported
from tacit.privacy.decisions import Decision, decide
from tacit.privacy.guarantees import Budget
from tacit.privacy.holders import Holders
from tacit.privacy.ledger import Ledger
from tacit.privacy.log import (
    START,
    LogRow,
    Reader,
    anchor_row,
    budget_row,
    close_row,
    decision_row,
    open_row,
    query_row,
    read_row,
    row_text,
)
from tacit.privacy.log_checks import check_rows
from tacit.privacy.opening import EVERYONE

_DEFAULT_NAME = "ledger.sqlite"  # what commands look for in a folder of runs


@dataclass(frozen=True)
class Head:
    """The end of a ledger's log: how many rows there are, and the hash that covers them all."""

    number: int
    hash: str


class DurableLedger(Ledger):
    """A `Ledger` in a file. A budget given here is stored and also binds everyone who opens the file later.

    With `read_only`, an existing file is read and nothing is written, not even beside it.
    """

    def __init__(
        self,
        path: Path | str,
        budget: Budget | None = None,
        budgets: Mapping[str, Budget] | None = None,
        *,
        read_only: bool = False,
    ) -> None:
        super().__init__()
        self.path = Path(path)
        self._own: dict[int, DurableAccount] = {}
        self._locks: dict[str, weakref.finalize[[int], DurableLedger]] = {}
        self._database = connect(self.path, read_only=read_only)
        self._forget()
        if not read_only:
            self._store_budgets(budget, budgets)
        self._load()

    def _store_budgets(self, budget: Budget | None, budgets: Mapping[str, Budget] | None) -> None:
        with self._writing():
            for owner, each in {**({EVERYONE: budget} if budget else {}), **(budgets or {})}.items():
                self._store_budget(owner, each)

    def _store_budget(self, owner: str, budget: Budget) -> None:
        """Store a budget in the current transaction, or refuse if there is a different one."""
        self._load()
        stored = self.budget if owner == EVERYONE else self.budgets.get(owner)
        if stored is not None and stored != budget:
            raise PrivacyError(has_a_budget(self.path, stored, owner))
        if stored is None:
            self._add(budget_row(owner, budget))

    def reopen(self, run: str) -> "DurableAccount":
        """Return the account of a run that stopped early, with everything it has spent."""
        account = self.account(run)
        if account is None:
            raise PrivacyError(f"the ledger {self.path} has no run {run!r}")
        if account.state != "open":
            raise PrivacyError(f"run {run!r} is {account.state} and its account is closed; start a new run")
        self._work_on(account)
        return account

    def abandon(self, run: str, *, reason: str, who: str) -> Decision:
        """Give up a run that was killed or stopped: it can make no more queries, and those it has not made become free; see `accounts`.

        A run that a process is working on is refused. `decisions` records who did it and why.
        """
        decision = decide(kind="abandon", subject=run, who=who, reason=reason)
        with self._writing():
            self._load()
            account = self._accounts.get(run)
            if not isinstance(account, DurableAccount):
                raise PrivacyError(f"the ledger {self.path} has no run {run!r}")
            if account.state not in ("open", "stopped"):
                raise PrivacyError(f"run {run!r} is {account.state}; it holds no queries that could be freed")
            if self.is_alive(account):
                rank = living_rank(self.path, account.token)
                which = "a process" if rank is None else f"a process of rank {rank}"
                raise PrivacyError(f"{which} is working on run {run!r}; stop it first. Nothing was changed")
            assert account.id is not None
            elsewhere = max((each.queries for each in charges_of(self.path, account.token).values()), default=0)
            for number in range(account.spent + 1, elsewhere + 1 if account.state == "open" else 0):
                self._add(query_row(account.id, number))
            self._add(decision_row(decision))
        self._leave(account)
        self._load()
        return decision

    def raise_budget(self, epsilon: float, *, reason: str, who: str, owner: str | None = None) -> Decision:
        """Raise the budget of all owners, or of one owner that has its own.

        `decisions` records who raised it and why. Results may have been the reason, so an ε over runs before and after holds only
        if no run was planned from another's results.
        """
        key = EVERYONE if owner is None else owner
        with self._writing():
            self._load()
            stored = self.budget if owner is None else self.budgets.get(owner)
            if stored is None:
                whose = "" if owner is None else f" of its own for {owner!r}"
                raise PrivacyError(
                    f"the ledger {self.path} has no budget{whose} that could be raised; tacit train --budget sets one"
                )
            larger = replace(stored, epsilon=float(epsilon))
            if larger.epsilon <= stored.epsilon:
                raise PrivacyError(f"the budget is {stored}; ε={epsilon:g} does not raise it")
            decision = decide(
                kind="raise",
                subject=key,
                who=who,
                reason=reason,
                before=float(stored.epsilon),
                after=larger.epsilon,
                runs=len(self._accounts),
            )
            self._add(decision_row(decision))
        self._load()
        return decision

    def is_alive(self, account: "DurableAccount") -> bool:
        """Return whether a process, this one or another, is working on an account: the one that opened it, or one of another rank."""
        return lock.is_held(self._lock_file(account.token)) or living_rank(self.path, account.token) is not None

    def account(self, run: str) -> "DurableAccount | None":
        """Return a run's account as it is now, open or closed; None if there is none."""
        self._load()
        account = self._accounts.get(run)
        return account if isinstance(account, DurableAccount) else None

    @property
    def head(self) -> Head:
        """The end of the log. Keep its hash to check later that everything recorded so far is still there."""
        self._load()
        return Head(self._number, self._head)

    @property
    def log(self) -> list[tuple[str, str]]:
        """All rows in their order: the canonical JSON of each, and its hash."""
        with reported(self.path):
            return self._database.execute("SELECT text, hash FROM log ORDER BY number").fetchall()

    def anchor(self, run: str, events: str) -> None:
        """Add the head of a run's events to the log, so that the ledger's own head covers them."""
        with self._writing():
            self._load()
            number = self._reader.number_of(run)
            if number is None:
                raise PrivacyError(f"the ledger {self.path} has no run {run!r}")
            self._add(anchor_row(number, events))

    def anchors(self, run: str) -> tuple[str, ...]:
        """Return the heads of a run's events that the log contains, oldest first."""
        self._load()
        number = self._reader.number_of(run)
        return () if number is None else tuple(self._reader.anchors.get(number, ()))

    def verify(self) -> list[str]:
        """Return what is wrong with the ledger, in sentences; an empty list if nothing is."""
        with reported(self.path):
            damage = [
                f"the file is damaged: {text}"
                for (text,) in self._database.execute("PRAGMA integrity_check")
                if text != "ok"
            ]
            rows = self._database.execute("SELECT number, account, text, hash FROM log ORDER BY number").fetchall()
        return [*damage, *check_rows(rows, self.path)]

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        """Refuse: a ledger on disk cannot be replaced from a text."""
        raise PrivacyError("a ledger on disk is opened by its path; Ledger.from_json reads a text into memory")

    def close(self) -> None:
        """Close the file. Its content stays; open accounts can be reopened or abandoned."""
        for let_go in self._locks.values():
            let_go()
        self._database.close()

    @contextmanager
    def _opening(self) -> Iterator[None]:
        before = set(self._locks)
        try:
            with self._writing():
                self._load()
                yield
        except BaseException:
            for token in set(self._locks) - before:
                self._let_go(token)
            raise

    def _lock_file(self, token: str) -> Path:
        return self.path.with_name(f".{self.path.name}.{token}.lock")

    def _work_on(self, account: "DurableAccount") -> None:
        """Lock an account for this process, until it leaves the account or ends."""
        if account.token not in self._locks:
            descriptor = lock.hold(self._lock_file(account.token))
            if descriptor is not None:  # otherwise another process has it, and ours is refused when it makes a query
                self._locks[account.token] = weakref.finalize(self, os.close, descriptor)

    def _leave(self, account: "DurableAccount") -> None:
        if account.token in self._locks or not lock.is_held(self._lock_file(account.token)):
            self._let_go(account.token)

    def _let_go(self, token: str) -> None:
        with suppress(OSError):
            self._lock_file(token).unlink(missing_ok=True)
        if token in self._locks:
            self._locks.pop(token)()

    def _how_to_free(self, run: str) -> str:
        account = self._accounts[run]
        assert isinstance(account, DurableAccount)
        if self.is_alive(account):
            return "it is running"
        command = f"tacit ledger abandon {shlex.quote(run)} --runs {self._where} --reason WHY"
        return f"no process is working on it, and `{command}` frees them"

    def _way_out(self, subject: str) -> str:
        whose = f" --owner {shlex.quote(subject)}" if subject else ""
        raised = f"tacit ledger raise ε --runs {self._where}{whose} --reason WHY"
        return f". `tacit ledger --runs {self._where}` shows what each run spent; the owners may raise the budget: `{raised}`"

    @property
    def _where(self) -> str:
        """How commands name this ledger."""
        return shlex.quote(str(self.path.parent if self.path.name == _DEFAULT_NAME else self.path))

    def _refresh(self) -> None:
        self._load()

    def _account(self, run: str, lines: tuple[Line, ...], allowed: int, together: str) -> Account:
        return DurableAccount(self, run, lines, allowed, secrets.token_hex(8), together)

    def _keep(self, account: Account) -> None:
        if isinstance(account, DurableAccount) and account.id is None:
            account.id = len(self._reader.accounts) + 1
            self._own[account.id] = account
            self._add(open_row(account.id, account, account.token))
            self._work_on(account)

    def _forget(self) -> None:
        """Forget the file's content; the next `_load` reads all of it. Accounts already handed out stay the same objects."""
        self.budget, self.budgets, self.set_after, self.decisions = None, {}, {}, []
        self._holders, self._accounts = Holders(), {}
        self._reader = Reader(self, self._known)
        self._number, self._head = 0, START

    def _known(
        self, number: int, run: str, lines: tuple[Line, ...], allowed: int, token: str, together: str
    ) -> "DurableAccount":
        """Return the account that a row opened: the object handed out before, if there is one."""
        if number not in self._own or self._own[number].token != token:
            self._own[number] = DurableAccount(self, run, lines, allowed, token, together, number)
        account = self._own[number]
        account._spent, account._state = 0, "open"
        return account

    def _load(self) -> None:
        """Read what was added to the log since the last time. It is trusted here; `verify` checks it."""
        with reported(self.path):
            kept = self._database.execute("SELECT hash FROM log WHERE number = ?", (self._number,)).fetchone()
            if self._number and (kept is None or kept[0] != self._head):
                raise StorageError(
                    f"the ledger {self.path} was changed while in use: rows that were there are gone. Nothing was spent"
                )
            last = self._database.execute("SELECT number, hash FROM log ORDER BY number DESC LIMIT 1").fetchone()
            if last is None or last[0] == self._number:
                return
            between = (self._number, last[0])
            where = "FROM log WHERE number > ? AND number <= ?"
            rows = self._database.execute(
                f"SELECT text {where} AND account IS NULL ORDER BY number", between
            ).fetchall()
            counts = f"SELECT account, COUNT(*) {where} AND account IS NOT NULL GROUP BY account"
            queries = self._database.execute(counts, between).fetchall()
        try:
            for (text,) in rows:
                self._reader.apply(read_row(text))
            for number, count in queries:
                self._reader.count(number, count)
        except PrivacyError as error:
            self._forget()
            raise StorageError(f"{self.path} has content that cannot be read: {error}; it was left as it is") from error
        self._number, self._head = last

    def _add(self, row: LogRow) -> None:
        """Append a row in the current transaction, and apply it."""
        self._append(row)
        self._reader.apply(row)

    def _append(self, row: LogRow) -> None:
        text = row_text(row)
        number, head = self._number + 1, chains.link(self._head, chains.digest(text))
        account = row["account"] if row["kind"] == "query" else None
        self._database.execute("INSERT INTO log VALUES (?, ?, ?, ?)", (number, account, text, head))
        self._number, self._head = number, head

    def _spend(self, account: "DurableAccount") -> None:
        assert account.id is not None
        spent = account.spent
        with self._writing():
            self._load()
            account.shared |= account.spent != spent
            if account.shared or account.state != "open":
                raise BudgetExceeded(
                    f"another process has charged queries to run {account.run!r}, or closed it; two processes must not "
                    "work on one run. Nothing was spent"
                )
            self._append(query_row(account.id, spent + 1))
        account._spent = spent + 1

    def _close_account(self, account: "DurableAccount", state: State) -> None:
        assert account.id is not None
        with self._writing():
            self._load()
            if account.state == "open":
                self._add(close_row(account.id, state))
        self._leave(account)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction: all of it is on disk when this returns, or none of it."""
        with reported(self.path):
            self._database.execute("BEGIN IMMEDIATE")
        try:
            with reported(self.path):
                yield
                self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            self._forget()  # what was applied may not be on disk
            with suppress(StorageError, PrivacyError):
                self._load()
            raise


class DurableAccount(Account):
    """An account on disk. Its random token distinguishes the files of its run from those of any other."""

    def __init__(
        self,
        ledger: DurableLedger,
        run: str,
        lines: tuple[Line, ...],
        allowed: int,
        token: str,
        together: str,
        id: int | None = None,
    ) -> None:
        super().__init__(run, lines, allowed, together=together)
        self._ledger, self.token, self.id = ledger, token, id
        self.shared = False  # whether another process has charged it

    def _write(self) -> None:
        self._ledger._spend(self)

    def close(self, *, finished: bool = False) -> None:
        """Allow no more queries, on disk. `finished` means that all planned queries were made."""
        if self.state == "open":
            self._ledger._close_account(self, "finished" if finished else "stopped")


def has_a_budget(path: Path, stored: Budget, owner: str = EVERYONE) -> str:
    """Return a message that a ledger has a budget already, which stays in force."""
    whose = f" for {owner!r}" if owner else ""
    return (
        f"the ledger {path} has a budget already{whose}: {stored}, {stored.accountant}. It applies to all runs there, past "
        "and future; leave the new one out. To raise it, with a record of who did it and why, use `tacit ledger raise`"
    )
