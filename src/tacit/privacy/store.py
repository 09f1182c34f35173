"""The ledger on disk: an SQLite file that survives `kill -9` at any moment and can be shared by processes.

Every query is one row, written and synced before the query is made (WAL, synchronous FULL). An account that was open
when its process died keeps its allowance until the run is resumed, so that nothing is promised twice.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from tacit.errors import BudgetExceeded, PrivacyError, StorageError
from tacit.privacy.ledger import Account, Budget, Entry, Ledger, Line

_APPLICATION = 0x7AC17
_SCHEMA = f"""
CREATE TABLE budgets (owner TEXT PRIMARY KEY, budget TEXT NOT NULL) STRICT;
CREATE TABLE accounts (
  id INTEGER PRIMARY KEY, run TEXT NOT NULL, allowed INTEGER NOT NULL CHECK (allowed >= 0),
  is_open INTEGER NOT NULL CHECK (is_open IN (0, 1))
) STRICT;
CREATE TABLE lines (
  account INTEGER NOT NULL REFERENCES accounts, place INTEGER NOT NULL, owner TEXT NOT NULL, records TEXT NOT NULL,
  partition TEXT NOT NULL, sample_rate REAL NOT NULL, noise_multiplier REAL NOT NULL,
  release INTEGER NOT NULL CHECK (release IN (0, 1)), PRIMARY KEY (account, owner)
) STRICT, WITHOUT ROWID;
CREATE TABLE queries (
  account INTEGER NOT NULL REFERENCES accounts, number INTEGER NOT NULL, PRIMARY KEY (account, number)
) STRICT, WITHOUT ROWID;
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = 1;
"""
_EVERYONE = ""  # the owner under which the budget of all is kept


class DurableLedger(Ledger):
    """A `Ledger` whose truth is a file. A budget given here is stored and holds for whoever opens the file later."""

    def __init__(
        self, path: Path | str, budget: Budget | None = None, budgets: Mapping[str, Budget] | None = None
    ) -> None:
        super().__init__()
        self.path = Path(path)
        self._own: dict[int, _DurableAccount] = {}
        self._database = _connect(self.path)
        with self._writing():
            for owner, each in {**({_EVERYONE: budget} if budget else {}), **(budgets or {})}.items():
                row = self._database.execute("SELECT budget FROM budgets WHERE owner = ?", (owner,)).fetchone()
                if row is not None and Budget(**json.loads(row[0])) != each:
                    raise PrivacyError(f"the ledger {self.path} has another budget already: {row[0]}")
                self._database.execute("REPLACE INTO budgets VALUES (?, ?)", (owner, json.dumps(asdict(each))))
        self._load()

    def reopen(self, run: str) -> Account:
        """Return the account of a run that stopped before its end, with all that it has spent."""
        with self._writing():
            self._load()
            row = self._database.execute("SELECT id, is_open FROM accounts WHERE run = ?", (run,)).fetchone()
            if row is None:
                raise PrivacyError(f"the ledger {self.path} knows no run {run!r}")
            if not row[1]:
                raise PrivacyError(f"run {run!r} is finished and its account closed; start a new run")
            return self._own[row[0]]

    def entries(self, owner: str | None = None, run: str | None = None) -> list[Entry]:
        """Return what was spent, by this and every other process."""
        self._load()
        return super().entries(owner, run)

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
        return problems

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        """Refuse: what is on disk cannot be replaced by a text."""
        raise PrivacyError("a ledger on disk is opened by its path; Ledger.from_json reads a text into memory")

    def close(self) -> None:
        """Close the file. What is in it stays."""
        self._database.close()

    @contextmanager
    def _opening(self) -> Iterator[None]:
        with self._writing():
            self._load()
            yield

    def _account(self, run: str, lines: tuple[Line, ...], allowed: int) -> Account:
        return _DurableAccount(self, run, lines, allowed)

    def _keep(self, account: Account) -> None:
        if isinstance(account, _DurableAccount) and account.id is None:
            insert = "INSERT INTO accounts (run, allowed, is_open) VALUES (?, ?, 1)"
            account.id = self._database.execute(insert, (account.run, account.allowed)).lastrowid
            assert account.id is not None
            rows = [
                (account.id, place, e.owner, e.records, e.partition, e.sample_rate, e.noise_multiplier, e.release)
                for place, e in enumerate(account.lines)
            ]
            self._database.executemany("INSERT INTO lines VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
            self._own[account.id] = account
        super()._keep(account)

    def _load(self) -> None:
        """Read the file anew; accounts that were handed out stay the same objects."""
        with _reported(self.path):
            stored = dict(self._database.execute("SELECT owner, budget FROM budgets").fetchall())
            self.budgets = {owner: Budget(**json.loads(text)) for owner, text in stored.items()}
            self.budget = self.budgets.pop(_EVERYONE, None)
            lines: dict[int, list[Line]] = {}
            for number, _, *fields, release in self._database.execute("SELECT * FROM lines ORDER BY account, place"):
                owner, records, partition, rate, sigma = fields
                lines.setdefault(number, []).append(Line(owner, records, partition, rate, sigma, bool(release)))
            spent = dict(self._database.execute("SELECT account, COUNT(*) FROM queries GROUP BY account").fetchall())
            accounts = self._database.execute("SELECT id, run, allowed, is_open FROM accounts").fetchall()
        self._by_owner, self._runs = {}, set()
        known = {number for number, *_ in accounts}
        self._own = {number: account for number, account in self._own.items() if number in known}
        for number, run, allowed, is_open in accounts:
            if number not in self._own:
                self._own[number] = _DurableAccount(self, run, tuple(lines.get(number, ())), allowed, number)
            account = self._own[number]
            account._spent, account._open = spent.get(number, 0), bool(is_open)
            super()._keep(account)

    def _spend(self, account: "_DurableAccount") -> None:
        with self._writing():
            state = "SELECT is_open, (SELECT COUNT(*) FROM queries WHERE account = id) FROM accounts WHERE id = ?"
            is_open, spent = self._database.execute(state, (account.id,)).fetchone()
            if spent != account.spent or not is_open:
                raise BudgetExceeded(
                    f"another process has charged queries to run {account.run!r}, or closed it; two processes must not "
                    "work on one run. Nothing was spent"
                )
            self._database.execute("INSERT INTO queries VALUES (?, ?)", (account.id, spent + 1))

    def _close_account(self, account: "_DurableAccount") -> None:
        with self._writing():
            self._database.execute("UPDATE accounts SET is_open = 0 WHERE id = ?", (account.id,))

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


class _DurableAccount(Account):
    def __init__(
        self, ledger: DurableLedger, run: str, lines: tuple[Line, ...], allowed: int, id: int | None = None
    ) -> None:
        super().__init__(run, lines, allowed)
        self._ledger, self.id = ledger, id

    def _write(self) -> None:
        self._ledger._spend(self)

    def close(self) -> None:
        """Give back, on disk, what was allowed but not spent."""
        self._ledger._close_account(self)
        super().close()


def _connect(path: Path) -> sqlite3.Connection:
    with _reported(path):
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
        database.execute("PRAGMA journal_mode = WAL")
        return database


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
