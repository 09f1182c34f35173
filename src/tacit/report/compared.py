"""The runs of a comparison: a name, a colour and a kind of line for each, and what they spend together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tacit.errors import InvalidInput
from tacit.privacy import Account, Adjacency
from tacit.privacy.accounting import largest_epsilon
from tacit.privacy.event import Event
from tacit.privacy.guarantees import format_epsilon
from tacit.privacy.holders import EventCounter, Holders
from tacit.privacy.observers import EVERYBODY, Observer
from tacit.report.figures.palette import DASHES, SERIES
from tacit.report.recorded import Measure, RecordedRun, RecordedScores
from tacit.report.spending import Spending, derive_spending
from tacit.report.wording import ADJACENCIES, write_epsilon


@dataclass(frozen=True, kw_only=True, eq=False)
class ComparedRun:
    """One run of a comparison, or the only one of a page, with a name that no other has."""

    place: int
    name: str
    run: RecordedRun
    spent: Spending | None

    @property
    def unknown(self) -> bool:
        """Whether the run is private and its ε could not be derived."""
        return self.spent is None and self.run.plan.private

    @property
    def series(self) -> int:
        """Which of the colours `SERIES` it has."""
        return self.place % len(SERIES)

    @property
    def dash(self) -> str:
        """One of `DASHES`; runs of the same colour have different ones."""
        return DASHES[(self.place // len(SERIES) + self.place) % len(DASHES)]


def shorten(name: str, most: int = 28) -> str:
    """Return a name in at most this many letters."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


def name_runs(runs: Sequence[RecordedRun]) -> list[ComparedRun]:
    """Give every run a name that no other has, and derive what it spent."""
    if not runs:
        raise InvalidInput("there is no run to compare; name one or more run folders")
    names: list[str] = []
    for run in runs:
        count = 1
        while (name := run.name if count == 1 else f"{run.name} ({count})") in names:
            count += 1
        names.append(name)
    return [
        ComparedRun(place=place, name=name, run=run, spent=derive_spending(run))
        for place, (name, run) in enumerate(zip(names, runs, strict=True))
    ]


def describe_observers(runs: Sequence[ComparedRun]) -> str:
    """Say so if ε of the runs is planned against different observers, with that of each; empty if all have the same."""
    kept = [(each, each.spent) for each in runs if each.spent is not None]
    if len({spent.guarantee.observer for _, spent in kept}) < 2:
        return ""
    each = "; ".join(
        f"{run.name}: {format_epsilon(spent.guarantee.epsilon)} against {spent.guarantee.observer}"
        + (f", {format_epsilon(spent.everybody.epsilon)} against {EVERYBODY}" if spent.masked else "")
        for run, spent in kept
    )
    return f"These runs state ε against different observers, so their ε cannot be compared: {each}."


def choose_measure(runs: Sequence[ComparedRun]) -> Measure:
    """Return what the runs are compared by: accuracy, if any of them has it."""
    return "accuracy" if any(each.run.scores and each.run.scores.measure == "accuracy" for each in runs) else "loss"


def scores_by(runs: Sequence[ComparedRun], measure: Measure) -> list[tuple[ComparedRun, RecordedScores]]:
    """Return the runs that have scores of this measure, each with its scores."""
    return [(each, each.run.scores) for each in runs if each.run.scores and each.run.scores.measure == measure]


def describe_combined(runs: Sequence[ComparedRun]) -> list[str]:
    """Return a sentence for every data set that several of the runs queried.

    Owners of the same name hold the same records. If a data set was split in several ways, any owner may have held a record
    each time: a run on another split counts with whichever of its owners was queried most.
    """
    groups: dict[str, list[ComparedRun]] = {}
    for each in runs:
        for key in _data_sets(each):
            groups.setdefault(key, []).append(each)
    found = []
    for key, group in groups.items():
        if len(group) > 1 and (names := [each.name for each in group]):
            found.append(f"On {key}, {_sentence(group, ' and '.join((', '.join(names[:-1]), names[-1])))}")
    return list(dict.fromkeys(found))


def _data_sets(each: ComparedRun) -> list[str]:
    """Return the data sets that a run queried, whoever holds parts of them."""
    account = each.run.record.account
    if account is None:
        return [each.run.plan.dataset]
    return list(dict.fromkeys(line.records or line.owner for line in account.lines))


def _sentence(group: Sequence[ComparedRun], names: str) -> str:
    if any(not each.run.plan.private or each.run.record.exposed for each in group):
        return f"{names} together spend ε = ∞: a run without privacy has read these records."
    accounts = [each.run.record.account for each in group]
    known = [account for account in accounts if account is not None]
    if len(known) < len(accounts):
        return f"what {names} together spend is not known: ε of some of them could not be derived."
    plans = [each.run.plan for each in group]
    if len(units := dict.fromkeys(line.unit for account in known for line in account.lines)) > 1:
        return f"what {names} spend cannot be added up: some protect every {' and others every '.join(units)}."
    delta = min(plan.delta for plan in plans if plan.delta is not None)
    accountants = {plan.accountant for plan in plans}
    adjacencies: list[Adjacency] = sorted({plan.adjacency for plan in plans if plan.adjacency is not None})
    accountant = accountants.pop() if len(accountants) == 1 and len(adjacencies) == 1 else "pld"
    terms: dict[str, Any] = {"delta": delta, "accountant": accountant}
    planned = {plan.planned_observer for plan in plans} - {EVERYBODY}
    against = []
    for observer in (*sorted(planned, key=lambda each: each.curious or 0), EVERYBODY):
        histories, bound = _histories(known, observer)
        spent = " and ".join(
            f"ε = {write_epsilon(largest_epsilon(histories, adjacency=adjacency, **terms)[1])} ({ADJACENCIES[adjacency]})"
            for adjacency in adjacencies
        )
        against.append(f"{'at most ' if bound else ''}{spent} against {observer}")
    return (
        f"{names} together spend {', and '.join(against)} per {known[0].lines[0].unit} at δ = {delta:g}, by {accountant}, for the owner with the "
        "highest ε, if no run was planned after seeing another’s results."
    )


def _histories(accounts: Sequence[Account], observer: Observer) -> tuple[list[list[Event]], bool]:
    """Return all the queries that may have been made of one record, case by case, and whether these are bounds."""
    holders, counted = Holders(accounts), EventCounter(lambda account, _: account.charged)
    found = [(owner, history) for owner in holders.owners for history in holders.histories(owner)]
    bound = any(asked.is_elsewhere(owner) for owner, history in found for asked in history)
    return [counted.events(history, observer) for _, history in found], bound
