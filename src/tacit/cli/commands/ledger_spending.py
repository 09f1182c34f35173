"""What was spent, derived from a ledger: for every owner, or in each group of owners for the one with the highest ε."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tacit.privacy import Budget, Guarantee, Ledger
from tacit.privacy.accounting import largest_epsilon
from tacit.privacy.guarantees import EXPOSED
from tacit.privacy.ledger import EVERYONE
from tacit.privacy.noise_kinds import Masked
from tacit.privacy.observers import EVERYBODY, Observer
from tacit.ties import first_largest


@dataclass(frozen=True)
class OwnerSpending:
    """What one run, or all of them together, spent on one owner's data."""

    owner: str
    run: str | None
    """None for all runs together."""
    queries: int
    """How many were made."""
    charged: int
    """How many count: for runs that are not finished, all that were planned."""
    private: bool
    """Whether all of these runs are private."""
    add_remove: Guarantee
    replace_one: Guarantee

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "owner": self.owner,
            "run": self.run,
            "queries": self.queries,
            "charged": self.charged,
            "private": self.private,
            "epsilon": {"add_remove": self.add_remove.epsilon, "replace_one": self.replace_one.epsilon},
            "delta": self.add_remove.delta,
            "unit": self.add_remove.unit,
            "release": self.add_remove.release,
            "basis": self.add_remove.basis,
            "adaptive": {"add_remove": self.add_remove.adaptive, "replace_one": self.replace_one.adaptive},
            "exposed": self.add_remove.exposed,
            "observer": str(self.add_remove.observer),
        }


class LedgerSnapshot:
    """A ledger at one moment, in memory, where reading it is fast even with many owners."""

    def __init__(self, ledger: Ledger, planned: Mapping[str, Observer] | None = None) -> None:
        """Take a ledger, and the planned observer of runs, by name, as far as that is known."""
        self.ledger = Ledger.from_json(ledger.to_json())
        self._planned = planned or {}
        self._lines = [
            (account.run, line) for account in self.ledger.accounts if account.charged for line in account.lines
        ]

    @cached_property
    def runs(self) -> list[str]:
        """All runs that are charged for queries, or that read records without privacy."""
        return list(dict.fromkeys(run for run, _ in self._lines))

    @cached_property
    def _runs_of(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for run, line in self._lines:
            found.setdefault(line.owner, []).append(run)
        return found

    @cached_property
    def _masked(self) -> list[str]:
        return list(dict.fromkeys(run for run, line in self._lines if isinstance(line.mechanism.noise, Masked)))

    def unknown_observers(self, runs: Sequence[str] | None = None) -> list[str]:
        """Return a sentence about those of these runs, or of all, whose planned observer was only in their folder, which is gone."""
        found = [run for run in self._masked if run not in self._planned and (runs is None or run in runs)]
        who = f"{', '.join(found)} shared masks, and the folder that says against whom their ε was planned is gone"
        return [f"{who}: only ε against {EVERYBODY} is shown"] if found else []

    def observers_of(self, runs: Sequence[str]) -> tuple[Observer, ...]:
        """Return against whom ε of these runs is shown: the planned observer of each with masks, and everybody else together."""
        found = {self._planned[run] for run in self._masked if run in runs and run in self._planned} - {EVERYBODY}
        return (*sorted(found, key=lambda each: each.curious or 0), EVERYBODY)

    def rows(self, delta: float, runs: Sequence[str] | None = None, *, every: bool = False) -> Iterator[OwnerSpending]:
        """Yield a row for every group of owners, run and observer, for the owner with the highest ε, and rows for several runs together.

        every: make every owner a group. If certain runs are asked for, there are no rows for several of them together.
        """
        groups: dict[str, list[str]] = {}
        for owner in self._runs_of:
            groups.setdefault(owner if every else group_of(owner), []).append(owner)
        for owners in groups.values():
            names = dict.fromkeys(name for owner in owners for name in self._runs_of[owner])
            shown: list[str | None] = [name for name in names if runs is None or name in runs]
            together = self.runs_on(owners)
            if runs is None and (every or len(together) > 1):
                shown.append(None)
            for run in shown:
                asked = [owner for owner in owners if run is None or run in self._runs_of[owner]]
                for observer in self.observers_of(together if run is None else [run]):
                    yield self._row(asked, run, delta, observer)

    def highest(self, owners: Sequence[str], **terms: Any) -> tuple[str, Guarantee]:
        """Return the owner with the highest ε, and its guarantee."""
        kept = self.ledger.guarantees(owners, **terms)
        if len(owners) == 1:
            return owners[0], kept[0]
        most = max(guarantee.epsilon for guarantee in kept)
        if math.isinf(most):
            return next(pair for pair in zip(owners, kept, strict=True) if pair[1].epsilon == most)
        run, observer = terms.pop("run", None), terms.pop("observer", EVERYBODY)
        histories = [(owner, events) for owner in owners for events in self.ledger.histories(owner, run, observer)]
        place, _ = largest_epsilon([events for _, events in histories], **terms)
        worst = histories[place][0]
        return worst, kept[owners.index(worst)]

    def runs_on(self, owners: Sequence[str]) -> list[str]:
        """Return the runs that queried any of these owners' records, or may have while other owners held them."""
        return list(dict.fromkeys(asked.account.run for owner in owners for asked in self.ledger.accesses(owner)))

    @property
    def budgets(self) -> dict[str, Budget]:
        """The budgets by owner; the one for all other owners is first, under an empty name."""
        everyone = {EVERYONE: self.ledger.budget} if self.ledger.budget is not None else {}
        return {**everyone, **self.ledger.budgets}

    def budget_of(self, owner: str) -> Budget | None:
        """Return the budget of an owner: its own, or the one for all."""
        return self.ledger.budgets.get(owner, self.ledger.budget)

    def used(self, owner: str) -> tuple[str, float]:
        """Return the owner under a budget for whom its filter counts most, and how much that is."""
        under = self.owners_under(owner)
        counted = [self.ledger.filtered(each) for each in under]
        return (under[first_largest(counted)], max(counted)) if counted else (owner, 0.0)

    def owners_under(self, owner: str) -> list[str]:
        """Return the owners under a budget: one that has its own, or all others."""
        return [each for each in self._runs_of if each not in self.ledger.budgets] if owner == EVERYONE else [owner]

    def divided_again(self, runs: Sequence[str] | None = None, *, only: str | None = None) -> list[str]:
        """Return a sentence for every data set, or only for one, that these runs, or all, divided among owners in several ways."""
        ways: dict[str, dict[str, None]] = {}
        for run, line in self._lines:
            if line.records and (runs is None or run in runs) and only in (None, line.records):
                ways.setdefault(line.records, {})[line.partition] = None
        together = (
            ""
            if runs
            else ": in a line of all runs, a run on another division counts with its owner that was queried most"
        )
        return [
            f"{records} was divided in {len(partitions)} ways ({'; '.join(way.removeprefix(f'{records}/') for way in partitions)}). "
            f"What was spent on a record in each of them adds up{together}"
            for records, partitions in ways.items()
            if len(partitions) > 1
        ]

    def exposed(self, runs: Sequence[str] | None = None) -> list[str]:
        """Return a sentence for every group of owners, queried by these runs, whose records a run without privacy has read."""
        found: dict[str, dict[str, None]] = {}
        readers = self.ledger.readers_without_privacy(list(self._runs_of))
        for owner, names in self._runs_of.items():
            if runs is None or any(name in runs for name in names):
                for reader in readers[owner]:
                    found.setdefault(group_of(owner) or owner, {})[reader] = None
        return [f"{group}: {EXPOSED} ({', '.join(names)})" for group, names in found.items()]

    def _row(self, owners: Sequence[str], run: str | None, delta: float, observer: Observer) -> OwnerSpending:
        """Return the row of the owner with the highest ε; its ε under replace-one is the highest of any owner."""
        terms: dict[str, Any] = {"delta": delta, "run": run, "observer": observer}
        owner, add_remove = self.highest(owners, adjacency="add_remove", **terms)
        _, replace_one = self.highest(owners, adjacency="replace_one", **terms)
        asked = self.ledger.accesses(owner, run)
        private = [each.account for each in asked if each.private]
        return OwnerSpending(
            owner=owner,
            run=run,
            queries=sum(account.spent for account in private),
            charged=sum(account.charged for account in private),
            private=len(private) == len(asked),
            add_remove=add_remove,
            replace_one=replace_one,
        )


def group_of(owner: str) -> str:
    """Return the beginning of an owner's name, up to the last slash."""
    return owner.rpartition("/")[0]
