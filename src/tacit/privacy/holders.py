"""Who held which records, and so whom a run may have asked about one of them.

A record has one owner in each way that a data set is dealt out. Dealt out anew, it has another, and which one that was is not on
record. So for the records of an owner, a run counts with what it asked under the owner's name or, if it dealt the same data set out in
another way, with whichever of its owners was asked most. Budgets and every ε over all runs count by this.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from tacit.privacy.accounts import Account, Line
from tacit.privacy.event import Event, worst_of
from tacit.privacy.mechanisms import Observer

Place = tuple[str, str]
"""A data set, and how it was dealt to owners."""


@dataclass(frozen=True, eq=False)
class Access:
    """A run that asked about an owner's records, or may have. One of `lines` is that of whoever held a record then."""

    account: Account
    lines: tuple[Line, ...]

    @cached_property
    def private(self) -> bool:
        """Whether there was noise."""
        return all(line.private for line in self.lines)

    @cached_property
    def release(self) -> bool:
        """Whether it can be a release, whoever held the record."""
        return all(line.release for line in self.lines)

    def is_elsewhere(self, owner: str) -> bool:
        """Whether others than the owner may have held its records."""
        return any(line.owner != owner for line in self.lines)


class Holders:
    """The owners of some accounts, and where else their records were."""

    def __init__(self, accounts: Iterable[Account] = ()) -> None:
        self._accounts: list[Account] = []
        self._by_owner: dict[str, list[tuple[Account, Line]]] = {}
        self._found: dict[frozenset[Place], dict[Account, Access]] = {}
        for account in accounts:
            self.add(account)

    def add(self, account: Account) -> None:
        """Take in one more account."""
        self._accounts.append(account)
        for line in account.lines:
            self._by_owner.setdefault(line.owner, []).append((account, line))
        self._found.clear()

    @property
    def owners(self) -> Iterable[str]:
        """Everyone who has a line in an account."""
        return self._by_owner

    def lines_of(self, owner: str) -> Sequence[tuple[Account, Line]]:
        """Return what was asked under an owner's name."""
        return self._by_owner.get(owner, [])

    def histories(self, owner: str, at: Place | None = None) -> list[list[Access]]:
        """Return all runs that may have asked about a record that the owner held `at` a place: for each of its places, unless given."""
        places = dict.fromkeys((line.records, line.partition) for _, line in self.lines_of(owner))
        return [self._history(owner, each, places) for each in (places if at is None else [at])]

    def concerned(self, owner: str, lines: Sequence[Line]) -> list[tuple[list[Access], tuple[Line, ...]]]:
        """Return where others' lines of a new account may be about an owner's records: its history, and which lines."""
        places = dict.fromkeys((line.records, line.partition) for _, line in self.lines_of(owner))
        return [
            (self._history(owner, at, places), others)
            for at in places
            if (others := tuple(line for line in lines if _is_elsewhere(line, _reach(at, places))))
        ]

    def _history(self, owner: str, at: Place, places: Iterable[Place]) -> list[Access]:
        found = dict(self._elsewhere(_reach(at, places)))
        for account, line in self.lines_of(owner):
            if not _is_elsewhere(line, {at}):
                others = found[account].lines if account in found else ()
                if line not in others:
                    found[account] = Access(account, (line, *others))
        return list(found.values())

    def _elsewhere(self, reach: frozenset[Place]) -> dict[Account, Access]:
        """Return the accounts with lines on the same records, dealt to owners in another way."""
        if reach not in self._found:
            self._found[reach] = {
                account: Access(account, lines)
                for account in self._accounts
                if (lines := tuple(line for line in account.lines if _is_elsewhere(line, reach)))
            }
        return self._found[reach]


class EventCounter:
    """Runs as accountants take them. `count` says how many queries of a line of an account count."""

    def __init__(self, count: Callable[[Account, Line], int]) -> None:
        self._count = count
        # A run elsewhere is in the histories of very many owners.
        self._events: dict[tuple[Access, Observer], Event | None] = {}

    def event(self, access: Access, observer: Observer) -> Event | None:
        """Return what counts of a run, of whichever owner was asked most; None if nothing does, or if it has no noise to count."""
        key = access, observer
        if key not in self._events:
            counts = [(line, self._count(access.account, line)) for line in access.lines if access.private]
            events = [line.event(count, observer) for line, count in counts if count]
            self._events[key] = worst_of(events) if events else None
        return self._events[key]

    def events(self, history: Iterable[Access], observer: Observer) -> list[Event]:
        """Return what counts of several runs against an observer."""
        return [event for access in history if (event := self.event(access, observer)) is not None]


def _reach(at: Place, places: Iterable[Place]) -> frozenset[Place]:
    """Return where else to look for a record that an owner held at a place: data sets of other names may hold it, too."""
    return frozenset({at, *(place for place in places if place[0] != at[0])})


def _is_elsewhere(line: Line, places: Iterable[Place]) -> bool:
    return any(records and line.records == records and line.partition != partition for records, partition in places)
