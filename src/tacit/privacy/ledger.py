"""What has been spent, on whose data, by which run. The only truth for ε.

The ledger holds events, never an ε: `guarantee` derives it anew each time, and reading changes nothing.
An oracle opens an `Account` for its run and spends one query there *before* it computes the answer, so a
crash can only lose an answer, never a cost. A query past the allowance raises and spends nothing; that is
checked by count, and the allowance was checked against the owner's budget when the account was opened.
"""

import json
import math
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from tacit.errors import BudgetExceeded, PrivacyError
from tacit.privacy.accounting import Accountant, Adjacency, Event, check, epsilons

_FORMAT = "tacit-ledger-1"
_WORDS = {"add_remove": "add-or-remove-one", "replace_one": "replace-one"}


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """An ε together with all that it means nothing without."""

    epsilon: float
    delta: float
    adjacency: Adjacency
    accountant: Accountant
    release: bool

    def __str__(self) -> str:
        if math.isinf(self.epsilon):
            return "ε=∞: nothing is promised"
        words = f"ε={_shown(self.epsilon)} at δ={self.delta:g}, {_WORDS[self.adjacency]}, {self.accountant}"
        return words if self.release else f"{words}; not a release"


def _shown(epsilon: float) -> str:
    """Return ε to four digits, rounded up: never less than it is."""
    if not 0 < epsilon < math.inf:
        return f"{epsilon:g}"
    scale = 10.0 ** (3 - math.floor(math.log10(epsilon)))
    return f"{math.ceil(epsilon * scale * (1 - 1e-12)) / scale:.4g}"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The most that all runs together may spend on one owner's data."""

    epsilon: float
    delta: float
    adjacency: Adjacency = "add_remove"
    accountant: Accountant = "pld"

    def __post_init__(self) -> None:
        check(self.accountant, self.adjacency, self.delta)
        if not self.epsilon > 0:
            raise PrivacyError(f"a budget of epsilon={self.epsilon} allows nothing; it must be positive")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The queries of one mechanism that one run has made on one owner's data."""

    owner: str
    run: str
    event: Event
    release: bool


@dataclass(frozen=True)
class Line:
    """One owner's share in an account: whose data, by which mechanism, and whether it can be a release.

    `records` names the data set and `partition` how it was dealt to owners: dealt out anew, the same record has another
    owner, and a budget must not start afresh for it.
    """

    owner: str
    records: str
    partition: str
    sample_rate: float
    noise_multiplier: float
    release: bool

    def event(self, count: int) -> Event:
        """Return this many queries of the mechanism."""
        return Event(sample_rate=self.sample_rate, noise_multiplier=self.noise_multiplier, count=count)


class Account:
    """One run's allowance on several owners' data; each `spend` is one query of every one of them."""

    def __init__(self, run: str, lines: tuple[Line, ...], allowed: int, spent: int = 0, is_open: bool = True) -> None:
        self.run, self.lines = run, lines
        self._allowed, self._spent, self._open = allowed, spent, is_open
        self._lock = threading.Lock()

    @property
    def allowed(self) -> int:
        """How many queries the run was planned and calibrated for."""
        return self._allowed

    @property
    def spent(self) -> int:
        """How many queries were made."""
        return self._spent

    @property
    def remaining(self) -> int:
        """How many queries may still be made."""
        return self._allowed - self._spent if self._open else 0

    def spend(self) -> None:
        """Write one query to the ledger, for every owner, or raise and write nothing."""
        with self._lock:
            self.check()
            self._write()
            self._spent += 1

    def check(self) -> None:
        """Raise if not one more query is allowed."""
        if not self._open:
            raise BudgetExceeded(f"the account of run {self.run!r} is closed; no query can be charged to it")
        if self._spent >= self._allowed:
            raise BudgetExceeded(
                f"run {self.run!r} has made all {self._allowed} queries that were counted and calibrated for; one more "
                "would break its promise. How often an algorithm asks must not depend on the answers. It was not made"
            )

    def close(self) -> None:
        """Give back what was allowed but not spent."""
        self._open = False

    def _write(self) -> None:
        """Keep one more query somewhere that lasts, if there is such a place."""


class Ledger:
    """Events by data owner and run, kept in memory; `to_json` and `from_json` carry it elsewhere.

    A budget is optional and bounds what *all* runs on one owner's data spend together.
    """

    def __init__(self, budget: Budget | None = None, budgets: Mapping[str, Budget] | None = None) -> None:
        self.budget = budget
        self.budgets = dict(budgets or {})
        self._by_owner: dict[str, list[tuple[Account, Line]]] = {}
        self._runs: set[str] = set()

    def open(
        self,
        *,
        run: str,
        owners: Sequence[str],
        sample_rates: Sequence[float],
        noise_multipliers: Sequence[float],
        queries: int,
        release: bool,
        records: str = "",
        partition: str = "",
    ) -> Account:
        """Allow `run` this many queries of each owner's data, or refuse before anything is spent.

        `records` names the data set that the owners hold parts of, and `partition` how it was dealt to them.
        """
        with self._opening():
            if not isinstance(run, str) or not all(isinstance(owner, str) for owner in owners):
                raise PrivacyError("a run and its data owners are named by texts")
            if run in self._runs:
                raise PrivacyError(f"the ledger has a run {run!r} already; choose another name")
            if not owners:
                raise PrivacyError("an account needs at least one data owner")
            if queries < 0:
                raise PrivacyError(f"queries is {queries}; it cannot be negative")
            if repeated := [owner for owner, times in Counter(owners).items() if times > 1][:3]:
                raise PrivacyError(f"each owner may stand in an account once; repeated: {', '.join(repeated)}")
            lines = tuple(
                Line(owner, records, partition, float(rate), float(sigma), release)
                for owner, rate, sigma in zip(owners, sample_rates, noise_multipliers, strict=True)
            )
            for line in lines:
                line.event(queries)  # refuses what is no mechanism
            account = self._account(run, lines, queries)
            self._check_budgets(account)
            self._keep(account)
            return account

    @property
    def owners(self) -> tuple[str, ...]:
        """Everyone on whose data something was spent."""
        return tuple(owner for owner, held in self._by_owner.items() if any(account.spent for account, _ in held))

    def entries(self, owner: str | None = None, run: str | None = None) -> list[Entry]:
        """Return what was spent, of one owner or run or of all; equal mechanisms of a run are one entry."""
        return [
            Entry(owner=line.owner, run=name, event=line.event(count), release=line.release)
            for (name, line), count in self._counts(owner, run).items()
        ]

    def guarantee(
        self,
        owner: str,
        *,
        delta: float,
        run: str | None = None,
        adjacency: Adjacency = "add_remove",
        accountant: Accountant = "pld",
    ) -> Guarantee:
        """Derive ε for one owner, of one run or of all runs on the same data."""
        return self.guarantees([owner], delta=delta, run=run, adjacency=adjacency, accountant=accountant)[0]

    def guarantees(
        self,
        owners: Sequence[str],
        *,
        delta: float,
        run: str | None = None,
        adjacency: Adjacency = "add_remove",
        accountant: Accountant = "pld",
    ) -> list[Guarantee]:
        """Derive ε for several owners; with very many distinct mechanisms, each an upper bound within some percent."""
        entries = [self.entries(owner, run) for owner in owners]
        for owner, own in zip(owners, entries, strict=True):
            if not own:
                of_run = "" if run is None else f" by run {run!r}"
                raise PrivacyError(f"nothing was ever spent on {owner!r}{of_run}; {len(self.owners)} owners are known")
        values = epsilons(
            [[entry.event for entry in own] for own in entries],
            delta=delta,
            adjacency=adjacency,
            accountant=accountant,
        )
        return [
            Guarantee(
                epsilon=value,
                delta=delta,
                adjacency=adjacency,
                accountant=accountant,
                release=all(entry.release for entry in own),
            )
            for value, own in zip(values, entries, strict=True)
        ]

    def to_json(self) -> str:
        """Return the whole record as plain JSON."""
        content = {
            "format": _FORMAT,
            "budget": asdict(self.budget) if self.budget else None,
            "budgets": {owner: asdict(budget) for owner, budget in self.budgets.items()},
            "events": [{"run": run, **asdict(line), "count": count} for (run, line), count in self._counts().items()],
        }
        return json.dumps(content, indent=1, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "Ledger":
        """Read a record back; anything that is not one is an error."""
        try:
            content = json.loads(text)
            if content["format"] != _FORMAT:
                raise PrivacyError(f"ledger format {content['format']!r} is not {_FORMAT!r}")
            budget = None if content["budget"] is None else Budget(**content["budget"])
            ledger = cls(budget, {owner: Budget(**b) for owner, b in content["budgets"].items()})
            for row in content["events"]:
                ledger._read(row)
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
            if isinstance(error, PrivacyError):
                raise
            raise PrivacyError(f"this is not a ledger: {type(error).__name__}: {error}") from error
        return ledger

    def _read(self, row: dict[str, Any]) -> None:
        row = dict(row)
        run, count = row.pop("run"), row.pop("count")
        for key in ("sample_rate", "noise_multiplier"):
            if type(row[key]) is int:  # other programs write 2.0 as 2
                row[key] = float(row[key])
        line = Line(**row)
        types = (str, str, str, float, float, bool)
        if type(run) is not str or not all(type(v) is t for v, t in zip(asdict(line).values(), types, strict=True)):
            raise TypeError(f"an event with fields of the wrong type: {row}")
        repeated = any(account.run == run and line == other for account, other in self._by_owner.get(line.owner, []))
        if type(count) is not int or count < 1 or repeated:
            raise TypeError(f"an event that is repeated or has no count: {row}")
        line.event(count)  # checks the ranges
        self._keep(Account(run, (line,), count, spent=count, is_open=False))

    def _counts(self, owner: str | None = None, run: str | None = None) -> Counter[tuple[str, Line]]:
        counts: Counter[tuple[str, Line]] = Counter()
        for held in self._by_owner.values() if owner is None else [self._by_owner.get(owner, [])]:
            for account, line in held:
                if account.spent and (run is None or account.run == run):
                    counts[account.run, line] += account.spent
        return counts

    @contextmanager
    def _opening(self) -> Iterator[None]:
        """Let nobody else open an account meanwhile, where others share the ledger."""
        yield

    def _account(self, run: str, lines: tuple[Line, ...], allowed: int) -> Account:
        return Account(run, lines, allowed)

    def _keep(self, account: Account) -> None:
        self._runs.add(account.run)
        for line in account.lines:
            self._by_owner.setdefault(line.owner, []).append((account, line))

    def _check_budgets(self, account: Account) -> None:
        """Refuse an account that, with all that was spent and is still allowed to others, would pass a budget."""
        if self.budget is None and not self.budgets:
            return
        self._check_partition(account)
        wanted: dict[Budget, list[tuple[str, list[Event]]]] = {}
        for line in account.lines:
            budget = self.budgets.get(line.owner, self.budget)
            if budget is not None:
                held = self._by_owner.get(line.owner, [])
                history = [other.event(held_by.spent + held_by.remaining) for held_by, other in held]
                wanted.setdefault(budget, []).append((line.owner, [*history, line.event(account.allowed)]))
        for budget, histories in wanted.items():
            totals = epsilons(
                [events for _, events in histories],
                delta=budget.delta,
                accountant=budget.accountant,
                adjacency=budget.adjacency,
            )
            for (owner, _), total in zip(histories, totals, strict=True):
                if total > budget.epsilon:
                    raise BudgetExceeded(
                        f"{account.allowed} more queries by run {account.run!r} would bring {owner!r} to "
                        f"ε={total:.4g}, past its budget of ε={budget.epsilon:g} at δ={budget.delta:g} "
                        f"({_WORDS[budget.adjacency]}). Nothing was spent"
                    )

    def _check_partition(self, account: Account) -> None:
        """Refuse, under a budget, records that were dealt to owners in another way before."""
        known = {
            (line.records, line.partition): line.owner
            for held in self._by_owner.values()
            for other, line in held
            if line.records and (other.spent or other.remaining)
        }
        for line in account.lines:
            if self.budgets.get(line.owner, self.budget) is None:
                continue
            for (records, partition), owner in known.items():
                if records == line.records and partition != line.partition:
                    raise BudgetExceeded(
                        f"records of {records!r} were held by {owner!r} and others when they were asked before, and "
                        f"now by {line.owner!r} and others; a budget cannot follow records that are dealt out anew. Keep "
                        "one partition, or use a ledger without a budget. Nothing was spent"
                    )
