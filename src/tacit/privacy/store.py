"""The ledger on disk: an SQLite file that survives `kill -9` at any moment and can be shared by processes.

Every query is one row, written and synced before the query is made (WAL, synchronous FULL). An account that was open
when its process died keeps its allowance until the run is resumed or released, so that nothing is promised twice. The process
that works on an account holds a lock, in a file beside the ledger, which tells whether it is alive.
"""

import json
import os
import secrets
import shlex
import sqlite3
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, astuple, fields, replace
from pathlib import Path

from tacit import lock
from tacit.errors import BudgetExceeded, PrivacyError, StorageError
from tacit.privacy.accounts import Account, Line, State
from tacit.privacy.decisions import Decision, decide, read_decision
from tacit.privacy.guarantees import Budget
from tacit.privacy.ledger import EVERYONE, Ledger

_APPLICATION = 0x7AC17
_VERSION = 4
_SCHEMA = f"""
CREATE TABLE budgets (owner TEXT PRIMARY KEY, budget TEXT NOT NULL) STRICT;
CREATE TABLE accounts (
  id INTEGER PRIMARY KEY, run TEXT NOT NULL UNIQUE, token TEXT NOT NULL, allowed INTEGER NOT NULL CHECK (allowed >= 0),
  state TEXT NOT NULL CHECK (state IN ('open', 'stopped', 'finished', 'released')), together TEXT NOT NULL
) STRICT;
CREATE TABLE lines (
  account INTEGER NOT NULL REFERENCES accounts, place INTEGER NOT NULL, owner TEXT NOT NULL, records TEXT NOT NULL,
  partition TEXT NOT NULL, sample_rate REAL NOT NULL, noise_multiplier REAL NOT NULL,
  release INTEGER NOT NULL CHECK (release IN (0, 1)),
  ground TEXT NOT NULL CHECK (ground IN ('free', 'plan', 'filter')), PRIMARY KEY (account, owner)
) STRICT, WITHOUT ROWID;
CREATE TABLE queries (
  account INTEGER NOT NULL REFERENCES accounts, number INTEGER NOT NULL, PRIMARY KEY (account, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE decisions (id INTEGER PRIMARY KEY, decision TEXT NOT NULL) STRICT;
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_VERSION};
"""
_LINE = ", ".join(["account", "place", *(field.name for field in fields(Line))])
_DEFAULT_NAME = "ledger.sqlite"  # what commands look for in a folder of runs


class DurableLedger(Ledger):
    """A `Ledger` whose truth is a file. A budget given here is stored and holds for whoever opens the file later.

    `read_only` reads a file that is there and writes nothing, not even where the file lies in a folder of an auditor.
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
        self._database = _connect(self.path, read_only=read_only)
        if not read_only:
            self._store_budgets(budget, budgets)
        self._load()

    def _store_budgets(self, budget: Budget | None, budgets: Mapping[str, Budget] | None) -> None:
        with self._writing():
            for owner, each in {**({EVERYONE: budget} if budget else {}), **(budgets or {})}.items():
                self._store_budget(owner, each)

    def _store_budget(self, owner: str, budget: Budget) -> None:
        """Store a budget in the transaction that is under way, or refuse where there is another."""
        row = self._database.execute("SELECT budget FROM budgets WHERE owner = ?", (owner,)).fetchone()
        if row is not None and _budget(row[0], self.path) != budget:
            raise PrivacyError(has_a_budget(self.path, _budget(row[0], self.path), owner))
        self._database.execute("REPLACE INTO budgets VALUES (?, ?)", (owner, json.dumps(asdict(budget))))

    def reopen(self, run: str) -> "DurableAccount":
        """Return the account of a run that stopped before its end, with all that it has spent."""
        account = self.account(run)
        if account is None:
            raise PrivacyError(f"the ledger {self.path} knows no run {run!r}")
        if account.state != "open":
            raise PrivacyError(f"run {run!r} is {account.state} and its account closed; start a new run")
        self._work_on(account)
        return account

    def release(self, run: str, *, reason: str, who: str) -> Decision:
        """Let a run that was killed or stopped never ask again, which frees what it has not asked; see `accounts`.

        A run on which a process is at work is refused. Who did it and why is kept in `decisions`.
        """
        decision = decide(kind="release", subject=run, who=who, reason=reason)
        with self._writing():
            self._load()
            account = self._accounts.get(run)
            if not isinstance(account, DurableAccount):
                raise PrivacyError(f"the ledger {self.path} knows no run {run!r}")
            if account.state not in ("open", "stopped"):
                raise PrivacyError(f"run {run!r} is {account.state}; it holds no queries that could be freed")
            if self.is_alive(account):
                raise PrivacyError(f"a process is working on run {run!r}; stop it first. Nothing was changed")
            self._database.execute("UPDATE accounts SET state = 'released' WHERE id = ?", (account.id,))
            self._decide(decision)
        self._leave(account)
        self._load()
        return decision

    def raise_budget(self, epsilon: float, *, reason: str, who: str, owner: str | None = None) -> Decision:
        """Let all runs together spend more on each owner's data, or on one owner's if it has a budget of its own.

        Who raised it and why is kept in `decisions`. It may have been raised by results, so that what runs before and
        after it spend together holds only if none was planned by another's results.
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
            self._database.execute("REPLACE INTO budgets VALUES (?, ?)", (key, json.dumps(asdict(larger))))
            self._decide(decision)
        self._load()
        return decision

    def is_alive(self, account: "DurableAccount") -> bool:
        """Say whether a process, this one or another, is at work on an account."""
        return lock.is_held(self._lock_file(account.token))

    def account(self, run: str) -> "DurableAccount | None":
        """Return a run's account as it is now, open or closed; None if the ledger does not know the run."""
        self._load()
        return next((account for account in self._own.values() if account.run == run), None)

    def verify(self) -> list[str]:
        """Return what is wrong with the record, in sentences; nothing if it is whole."""
        problems = []
        for (text,) in self._database.execute("PRAGMA integrity_check"):
            if text != "ok":
                problems.append(f"the file is damaged: {text}")
        counted = "SELECT a.run, a.allowed, COUNT(q.number), MIN(q.number), MAX(q.number) FROM accounts a "
        counted += "LEFT JOIN queries q ON q.account = a.id GROUP BY a.id"
        for run, allowed, count, first, last in self._database.execute(counted):
            if count and (first, last) != (1, count):
                problems.append(f"run {run!r} has {count} queries numbered {first} to {last}: some are missing")
            if count > allowed:
                problems.append(f"run {run!r} has made {count} queries and was allowed {allowed}")
        orphans = "SELECT COUNT(*) FROM {0} WHERE account NOT IN (SELECT id FROM accounts)"
        for table in ("lines", "queries"):
            if number := self._database.execute(orphans.format(table)).fetchone()[0]:
                problems.append(f"{number} rows of {table!r} belong to no run")
        empty = "SELECT run FROM accounts WHERE id NOT IN (SELECT account FROM lines)"
        problems += [f"run {run!r} names no data owner" for (run,) in self._database.execute(empty)]
        released = {decision.subject for decision in self.decisions if decision.kind == "release"}
        for (run,) in self._database.execute("SELECT run FROM accounts WHERE state = 'released'"):
            if run not in released:
                problems.append(f"run {run!r} is released, and nothing says by whom")
        budgets = {EVERYONE: self.budget, **self.budgets}
        for subject, after in {each.subject: each.after for each in self.decisions if each.kind == "raise"}.items():
            if (stored := budgets.get(subject)) is None or stored.epsilon != after:
                problems.append(f"a budget was raised to ε={after:g}, and {stored or 'none'} is stored")
        mixed = "SELECT run FROM accounts WHERE id IN (SELECT account FROM lines GROUP BY account "
        mixed += "HAVING MIN(noise_multiplier) <= 0 AND (MAX(noise_multiplier) > 0 OR MAX(release) = 1))"
        problems += [f"run {run!r} has a line without noise" for (run,) in self._database.execute(mixed)]
        return problems

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        """Refuse: what is on disk cannot be replaced by a text."""
        raise PrivacyError("a ledger on disk is opened by its path; Ledger.from_json reads a text into memory")

    def close(self) -> None:
        """Close the file. What is in it stays; accounts that are open can be reopened, or released."""
        for release in self._locks.values():
            release()
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
        """Show that a process is at work on an account, until it leaves it or ends."""
        if account.token not in self._locks:
            descriptor = lock.hold(self._lock_file(account.token))
            if descriptor is not None:  # else another does, and whoever comes second is refused when it asks
                self._locks[account.token] = weakref.finalize(self, os.close, descriptor)

    def _leave(self, account: "DurableAccount") -> None:
        if account.token in self._locks or not self.is_alive(account):
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
            return "it is at work"
        where = self.path.parent if self.path.name == _DEFAULT_NAME else self.path
        command = f"tacit ledger release {shlex.quote(run)} --runs {shlex.quote(str(where))} --reason WHY"
        return f"no process is at work on it, and `{command}` frees them"

    def _decide(self, decision: Decision) -> None:
        row = (json.dumps(asdict(decision), ensure_ascii=False),)
        self._database.execute("INSERT INTO decisions (decision) VALUES (?)", row)

    def _refresh(self) -> None:
        self._load()

    def _account(self, run: str, lines: tuple[Line, ...], allowed: int, together: str) -> Account:
        return DurableAccount(self, run, lines, allowed, secrets.token_hex(8), together)

    def _keep(self, account: Account) -> None:
        if isinstance(account, DurableAccount) and account.id is None:
            insert = "INSERT INTO accounts (run, token, allowed, state, together) VALUES (?, ?, ?, 'open', ?)"
            row = (account.run, account.token, account.allowed, account.together)
            account.id = self._database.execute(insert, row).lastrowid
            assert account.id is not None
            rows = [(account.id, place, *astuple(line)) for place, line in enumerate(account.lines)]
            self._database.executemany(f"INSERT INTO lines ({_LINE}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
            self._own[account.id] = account
            self._work_on(account)
        super()._keep(account)

    def _load(self) -> None:
        """Read the file anew; accounts that were handed out stay the same objects."""
        with _reported(self.path):
            stored = dict(self._database.execute("SELECT owner, budget FROM budgets").fetchall())
            self.budgets = {owner: _budget(text, self.path) for owner, text in stored.items()}
            self.budget = self.budgets.pop(EVERYONE, None)
            lines: dict[int, list[Line]] = {}
            for number, _, *values in self._database.execute(f"SELECT {_LINE} FROM lines ORDER BY account, place"):
                owner, records, partition, rate, sigma, release, ground = values
                lines.setdefault(number, []).append(Line(owner, records, partition, rate, sigma, bool(release), ground))
            spent = dict(self._database.execute("SELECT account, COUNT(*) FROM queries GROUP BY account").fetchall())
            accounts = self._database.execute(
                "SELECT id, run, token, allowed, state, together FROM accounts ORDER BY id"
            ).fetchall()
            decisions = self._database.execute("SELECT decision FROM decisions ORDER BY id").fetchall()
        self.decisions = [_decision(text, self.path) for (text,) in decisions]
        self._by_owner, self._accounts = {}, {}
        known = {number for number, *_ in accounts}
        self._own = {number: account for number, account in self._own.items() if number in known}
        for number, run, token, allowed, state, together in accounts:
            if number not in self._own:
                of_run = tuple(lines.get(number, ()))
                self._own[number] = DurableAccount(self, run, of_run, allowed, token, together, number)
            account = self._own[number]
            account._spent, account._state = spent.get(number, 0), state
            super()._keep(account)

    def _spend(self, account: "DurableAccount") -> None:
        with self._writing():
            query = "SELECT state, (SELECT COUNT(*) FROM queries WHERE account = id) FROM accounts WHERE id = ?"
            state, spent = self._database.execute(query, (account.id,)).fetchone()
            if spent != account.spent or state != "open":
                raise BudgetExceeded(
                    f"another process has charged queries to run {account.run!r}, or closed it; two processes must not "
                    "work on one run. Nothing was spent"
                )
            self._database.execute("INSERT INTO queries VALUES (?, ?)", (account.id, spent + 1))

    def _close_account(self, account: "DurableAccount", state: State) -> None:
        with self._writing():
            update = "UPDATE accounts SET state = ? WHERE id = ? AND state = 'open'"
            self._database.execute(update, (state, account.id))
        self._leave(account)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction: all of it is on disk when this returns, or none of it."""
        with _reported(self.path):
            self._database.execute("BEGIN IMMEDIATE")
        try:
            with _reported(self.path):
                yield
                self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise


class DurableAccount(Account):
    """An account on disk. Its token, made by chance, tells the files of its run from those of any other."""

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

    def _write(self) -> None:
        self._ledger._spend(self)

    def close(self, *, finished: bool = False) -> None:
        """Allow no more queries, on disk. `finished` says that all queries were made that were settled beforehand."""
        if self.state == "open":
            self._ledger._close_account(self, "finished" if finished else "stopped")
            super().close(finished=finished)


def _budget(text: str, path: Path) -> Budget:
    try:
        return Budget(**json.loads(text))
    except (TypeError, ValueError) as error:
        raise StorageError(f"{path} holds a budget that cannot be read: {text!r}; it was left as it is") from error


def has_a_budget(path: Path, stored: Budget, owner: str = EVERYONE) -> str:
    """Say that a ledger has a budget already, which holds."""
    whose = f" for {owner!r}" if owner else ""
    return (
        f"the ledger {path} has a budget already{whose}: ε={stored.epsilon:g} at δ={stored.delta:g}, {stored.adjacency}, "
        f"{stored.accountant}. It holds for all runs on record there, and those to come; leave the new one out. To raise it is a "
        "decision that is kept with who made it and why: `tacit ledger raise`"
    )


def _decision(text: str, path: Path) -> Decision:
    try:
        return read_decision(json.loads(text))
    except (TypeError, ValueError) as error:
        raise StorageError(f"{path} holds a decision that cannot be read: {text!r}; it was left as it is") from error


def _connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    with _reported(path):
        if read_only:
            return _open_to_read(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(path, isolation_level=None, timeout=60)
        database.execute("PRAGMA synchronous = FULL")
        if database.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION:
            database.execute("BEGIN IMMEDIATE")
            if database.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
                database.close()
                raise PrivacyError(f"{path} is a database, but not a ledger of Tacit")
            for statement in _SCHEMA.split(";\n"):
                database.execute(statement)
            database.execute("COMMIT")
        _check_version(database, path)
        database.execute("PRAGMA journal_mode = WAL")
        return database


def _open_to_read(path: Path) -> sqlite3.Connection:
    """Open a file that must be there. Where nothing can be written, a file without a journal beside it is read as it is."""
    journal = path.with_name(path.name + "-wal")
    frozen = not os.access(path.parent, os.W_OK) and not journal.exists()
    address = f"{path.resolve().as_uri()}?mode=ro{'&immutable=1' if frozen else ''}"
    database = sqlite3.connect(address, uri=True, isolation_level=None, timeout=60)
    if database.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION:
        database.close()
        raise PrivacyError(f"{path} is not a ledger of Tacit")
    _check_version(database, path)
    return database


def _check_version(database: sqlite3.Connection, path: Path) -> None:
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if version != _VERSION:
        database.close()
        raise PrivacyError(
            f"{path} is a ledger of version {version}, and this program reads version {_VERSION}. Keep it: what it has on "
            "record still counts. Use it with the version of Tacit that wrote it"
        )


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    """Turn what SQLite says into an error for the person who sees it."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise StorageError(f"the ledger {path} cannot be used: {error}; nothing was spent") from error
    except sqlite3.DatabaseError as error:
        raise StorageError(f"{path} is not a ledger, or is damaged: {error}; it was left as it is") from error
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"the ledger {path} cannot be made: {error.strerror}") from error
