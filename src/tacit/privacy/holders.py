"""Who held which records, and so which runs may have queried them.

A record has one owner in each partition of a data set. In another partition it has another owner, and which one is not
recorded. So for the records of an owner, a run counts with what it asked under the owner's name or, if it divided the same data
set in another way, with the owner that it queried most. Budgets and every ε over all runs are counted in this way.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from tacit.privacy.accounts import Account, Line
from tacit.privacy.event import Event, worst_of
from tacit.privacy.observers import Observer

Division = tuple[str, str]
"""A data set, and how it was divided among owners."""


@dataclass(frozen=True, eq=False)
class Access:
    """A run that queried an owner's records, or may have. One of `lines` belongs to the record's holder at that time."""

    account: Account
    lines: tuple[Line, ...]

    @cached_property
    def private(self) -> bool:
        """Whether there was noise."""
        return all(line.private for line in self.lines)

    @cached_property
    def release(self) -> bool:
        """Whether it can be a release, for every possible holder."""
        return all(line.release for line in self.lines)

    def is_elsewhere(self, owner: str) -> bool:
        """Return whether others than the owner may have held its records."""
        return any(line.owner != owner for line in self.lines)


class Holders:
    """The owners in a set of accounts, and who else may have held their records."""

    def __init__(self, accounts: Iterable[Account] = ()) -> None:
        self._accounts: list[Account] = []
        self._by_owner: dict[str, list[tuple[Account, Line]]] = {}
        self._found: dict[frozenset[Division], dict[Account, Access]] = {}
        for account in accounts:
            self.add(account)

    def add(self, account: Account) -> None:
        """Add an account."""
        self._accounts.append(account)
        for line in account.lines:
            self._by_owner.setdefault(line.owner, []).append((account, line))
        self._found.clear()

    @property
    def owners(self) -> Iterable[str]:
        """All owners with a line in an account."""
        return self._by_owner

    def lines_of(self, owner: str) -> Sequence[tuple[Account, Line]]:
        """Return what was asked under an owner's name."""
        return self._by_owner.get(owner, [])

    def histories(self, owner: str, at: Division | None = None) -> list[list[Access]]:
        """Return the runs that may have queried a record that the owner held, one list per place, or only for the place `at`."""
        places = dict.fromkeys((line.records, line.partition) for _, line in self.lines_of(owner))
        return [self._history(owner, each, places) for each in (places if at is None else [at])]

    def concerned(self, owner: str, lines: Sequence[Line]) -> list[tuple[list[Access], tuple[Line, ...]]]:
        """Return the owner's histories that lines of other owners in a new account may add to, with those lines."""
        places = dict.fromkeys((line.records, line.partition) for _, line in self.lines_of(owner))
        return [
            (self._history(owner, at, places), others)
            for at in places
            if (others := tuple(line for line in lines if _is_elsewhere(line, _reach(at, places))))
        ]

    def _history(self, owner: str, at: Division, places: Iterable[Division]) -> list[Access]:
        found = dict(self._elsewhere(_reach(at, places)))
        for account, line in self.lines_of(owner):
            if not _is_elsewhere(line, {at}):
                others = found[account].lines if account in found else ()
                if line not in others:
                    found[account] = Access(account, (line, *others))
        return list(found.values())

    def _elsewhere(self, reach: frozenset[Division]) -> dict[Account, Access]:
        """Return the accounts with lines on the same records, divided among owners in another way."""
        if reach not in self._found:
            self._found[reach] = {
                account: Access(account, lines)
                for account in self._accounts
                if (lines := tuple(line for line in account.lines if _is_elsewhere(line, reach)))
            }
        return self._found[reach]


class EventCounter:
    """Turns runs into events for an accountant. `count` returns how many queries of a line count."""

    def __init__(self, count: Callable[[Account, Line], int]) -> None:
        self._count = count
        # A run with another partition is in the histories of very many owners.
        self._events: dict[tuple[Access, Observer], Event | None] = {}

    def event(self, access: Access, observer: Observer) -> Event | None:
        """Return the event of a run, by the owner it queried most; None if nothing counts, or if the run has no noise."""
        key = access, observer
        if key not in self._events:
            counts = [(line, self._count(access.account, line)) for line in access.lines if access.private]
            events = [line.event(count, observer) for line, count in counts if count]
            self._events[key] = worst_of(events) if events else None
        return self._events[key]

    def events(self, history: Iterable[Access], observer: Observer) -> list[Event]:
        """Return the events of several runs against an observer."""
        return [event for access in history if (event := self.event(access, observer)) is not None]


def _reach(at: Division, places: Iterable[Division]) -> frozenset[Division]:
    """Return where else a record of this place may be: data sets of other names may contain it too."""
    return frozenset({at, *(place for place in places if place[0] != at[0])})


def _is_elsewhere(line: Line, places: Iterable[Division]) -> bool:
    return any(records and line.records == records and line.partition != partition for records, partition in places)
