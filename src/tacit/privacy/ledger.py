"""What has been spent, on whose data, by which run. The only truth for ε.

The ledger holds events, never an ε: `guarantee` derives it anew each time, and reading changes nothing.
An oracle opens an `Account` for its run and spends one query there *before* it computes the answer, so a
crash can only lose an answer, never a cost. A query past the allowance raises and spends nothing; that is
checked by count, and the allowance was checked against the owner's budget when the account was opened.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
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
        words = f"ε={self.epsilon:.4g} at δ={self.delta:g}, {_WORDS[self.adjacency]}, {self.accountant}"
        return words if self.release else f"{words}; not a release"


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
    """One owner's share in an account: whose data, by which mechanism, and whether it can be a release."""

    owner: str
    sample_rate: float
    noise_multiplier: float
    release: bool

    def event(self, count: int) -> Event:
        """Return this many queries of the mechanism."""
        return Event(sample_rate=self.sample_rate, noise_multiplier=self.noise_multiplier, count=count)


class Account:
    """One run's allowance on several owners' data; each `spend` is one query of every one of them."""

    def __init__(self, run: str, lines: tuple[Line, ...], allowed: int) -> None:
        self.run, self.lines = run, lines
        self.allowed, self.spent = allowed, 0
        self.is_open = True

    @property
    def remaining(self) -> int:
        """How many queries may still be made."""
        return self.allowed - self.spent if self.is_open else 0

    def spend(self) -> None:
        """Write one query to the ledger, for every owner, or raise and write nothing."""
        self.check()
        self.spent += 1

    def check(self) -> None:
        """Raise if not one more query is allowed."""
        if not self.is_open:
            raise BudgetExceeded(f"the account of run {self.run!r} is closed; no query can be charged to it")
        if self.spent >= self.allowed:
            raise BudgetExceeded(
                f"run {self.run!r} has made all {self.allowed} queries that it was planned and calibrated for; "
                "one more would pass its budget. Nothing was spent on it"
            )

    def close(self) -> None:
        """Give back what was allowed but not spent."""
        self.is_open = False


class Ledger:
    """Events by data owner and run, kept in memory; `to_json` and `from_json` carry it elsewhere.

    A budget is optional and bounds what *all* runs on one owner's data spend together.
    """

    def __init__(self, budget: Budget | None = None, budgets: Mapping[str, Budget] | None = None) -> None:
        self.budget = budget
        self.budgets = dict(budgets or {})
        self._by_owner: dict[str, list[tuple[Account, Line]]] = {}

    def open(
        self,
        *,
        run: str,
        owners: Sequence[str],
        sample_rates: Sequence[float],
        noise_multipliers: Sequence[float],
        queries: int,
        release: bool,
    ) -> Account:
        """Allow `run` this many queries of each owner's data, or refuse before anything is spent."""
        if not owners:
            raise PrivacyError("an account needs at least one data owner")
        if queries < 0:
            raise PrivacyError(f"queries is {queries}; it cannot be negative")
        if repeated := [owner for owner, times in Counter(owners).items() if times > 1][:3]:
            raise PrivacyError(f"each owner may stand in an account once; repeated: {', '.join(repeated)}")
        lines = tuple(
            Line(owner, float(rate), float(sigma), release)
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
        counts: Counter[tuple[str, Line]] = Counter()
        for held in self._by_owner.values() if owner is None else [self._by_owner.get(owner, [])]:
            for account, line in held:
                if account.spent and (run is None or account.run == run):
                    counts[account.run, line] += account.spent
        return [
            Entry(owner=line.owner, run=name, event=line.event(count), release=line.release)
            for (name, line), count in counts.items()
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
            "events": [
                {"owner": e.owner, "run": e.run, **asdict(e.event), "release": e.release} for e in self.entries()
            ],
        }
        return json.dumps(content, indent=1, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "Ledger":
        """Read a record back; anything that is not one is an error."""
        try:
            content = json.loads(text)
            if content["format"] != _FORMAT:
                raise PrivacyError(f"ledger format {content['format']!r} is not {_FORMAT!r}")
            budget = Budget(**content["budget"]) if content["budget"] else None
            ledger = cls(budget, {owner: Budget(**b) for owner, b in content["budgets"].items()})
            for row in content["events"]:
                ledger._read(row)
        except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
            raise PrivacyError(f"this is not a ledger: {type(error).__name__}: {error}") from error
        return ledger

    def _read(self, row: dict[str, Any]) -> None:
        run, count = row.pop("run"), row.pop("count")
        line = Line(**row)
        types = (str, float, float, bool)
        if type(run) is not str or not all(type(v) is t for v, t in zip(asdict(line).values(), types, strict=True)):
            raise TypeError(f"an event with fields of the wrong type: {row}")
        repeated = any(account.run == run and line == other for account, other in self._by_owner.get(line.owner, []))
        if type(count) is not int or count < 1 or repeated:
            raise TypeError(f"an event that is repeated or has no count: {row}")
        line.event(count)  # checks the ranges
        account = self._account(run, (line,), count)
        account.spent, account.is_open = count, False
        self._keep(account)

    def _account(self, run: str, lines: tuple[Line, ...], allowed: int) -> Account:
        return Account(run, lines, allowed)

    def _keep(self, account: Account) -> None:
        for line in account.lines:
            self._by_owner.setdefault(line.owner, []).append((account, line))

    def _check_budgets(self, account: Account) -> None:
        """Refuse an account that, with all that was spent and is still allowed to others, would pass a budget."""
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
