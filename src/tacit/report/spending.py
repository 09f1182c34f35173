"""ε of a run, derived from its account in the ledger, and never taken from events, a configuration or a summary.

An unfinished run is charged its whole plan.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from tacit.privacy import Adjacency, Guarantee
from tacit.privacy.accounting import accountant_of, epsilon, epsilons
from tacit.privacy.guarantees import format_epsilon
from tacit.privacy.observers import EVERYBODY, Observer
from tacit.privacy.stated_epsilons import find_cut_off, observers_of
from tacit.report.recorded import RecordedRun

_POINTS = 12


class Moment(NamedTuple):
    """The end of a round, and how many queries of each agent's data had been made by then."""

    round: int
    queries: int


@dataclass(frozen=True, kw_only=True)
class Exposure:
    """The highest ε of any agent against one observer."""

    observer: Observer
    epsilon: float
    agent: int
    """The agent with the highest ε, or the first of several."""
    cut_off: tuple[int, ...]
    """Agents whom masks do not protect from this observer, since all with whom they share keys may be curious."""


@dataclass(frozen=True, kw_only=True)
class Spending:
    """What every agent is charged, and how ε of the agent with the highest ε grew, against the planned observer."""

    guarantee: Guarantee
    """Of the agent with the highest ε."""
    agent: int
    """The agent with the highest ε."""
    per_agent: tuple[float, ...]
    everybody: Guarantee
    """The highest ε against everybody else together; `guarantee` itself if there are no masks."""
    per_agent_everybody: tuple[float, ...]
    epsilons_everybody: tuple[float, ...]
    """As `epsilons`, against everybody else together."""
    exposures: tuple[Exposure, ...]
    """The highest ε against any one curious agent, any two, and so on, and against everybody else together, which comes last."""
    moments: tuple[Moment, ...]
    """Those at which ε was derived, about a dozen, or as many as there are snapshots."""
    epsilons: tuple[float, ...]
    """`agent`'s ε at each of `moments`, of the queries made by then."""
    budget: float | None
    """The most that `agent` may spend."""
    other: Guarantee
    """The highest ε of the same queries under the other adjacency, by PLD, which supports both."""
    stated: float | None
    """ε as the run's summary states it, to compare with the derived one."""
    stated_against: Mapping[str, float]
    """The same by observer."""

    @property
    def masked(self) -> bool:
        """Whether ε was planned against fewer than everybody else together."""
        return self.guarantee.observer != EVERYBODY

    @property
    def agrees(self) -> bool:
        """Whether the summary, if there is one, states every ε that follows from the ledger."""
        derived = {each.observer.key: each.epsilon for each in self.exposures}
        pairs = [(value, derived.get(key, 0.0)) for key, value in self.stated_against.items()]
        if self.stated is not None:
            pairs.append((self.stated, self.guarantee.epsilon))
        return all(format_epsilon(stated) == format_epsilon(value) for stated, value in pairs)


def derive_spending(run: RecordedRun) -> Spending | None:
    """Derive what a run is charged; None if the run has no privacy, or if its account is not available.

    Rates, noise and queries come from the run's account in the ledger; δ, adjacency and accountant, which are stated with
    ε, from the plan.
    """
    plan, account = run.plan, run.record.account
    if not plan.private or account is None:
        return None
    assert plan.delta is not None
    assert plan.adjacency is not None
    assert plan.accountant is not None
    terms: dict[str, Any] = {"delta": plan.delta, "adjacency": plan.adjacency, "accountant": plan.accountant}
    lines, charged, planned = account.lines, account.charged, plan.planned_observer
    mechanisms = [line.mechanism for line in lines]
    exposures = []
    for observer in observers_of(mechanisms, planned):
        agent, value = account.largest_epsilon(**terms, observer=observer)
        cut_off = () if observer == EVERYBODY else tuple(find_cut_off(mechanisms, observer))
        exposures.append(Exposure(observer=observer, epsilon=value, agent=agent, cut_off=cut_off))
    main = next(each for each in exposures if each.observer == planned)

    moments = _moments(run)

    def curve(exposure: Exposure) -> tuple[float, ...]:
        line, end = lines[exposure.agent], exposure.epsilon
        values = [min(epsilon([line.event(each.queries, exposure.observer)], **terms), end) for each in moments]
        if moments and moments[-1].queries == charged:
            values[-1] = end
        return tuple(values)

    def per_agent(observer: Observer) -> tuple[float, ...]:
        return tuple(epsilons([[line.event(charged, observer)] for line in lines], **terms))

    grown, each = curve(main), per_agent(planned)
    adjacency: Adjacency = "replace_one" if plan.adjacency == "add_remove" else "add_remove"
    other: dict[str, Any] = {"delta": plan.delta, "adjacency": adjacency, "accountant": "pld"}
    marks: dict[str, Any] = {"release": run.release, "exposed": run.record.exposed, "unit": lines[0].unit}
    masked = planned != EVERYBODY
    return Spending(
        guarantee=Guarantee(epsilon=main.epsilon, observer=planned, **terms, **marks),
        agent=main.agent,
        per_agent=each,
        everybody=Guarantee(epsilon=exposures[-1].epsilon, **terms, **marks),
        per_agent_everybody=per_agent(EVERYBODY) if masked else each,
        epsilons_everybody=curve(exposures[-1]) if masked else grown,
        exposures=tuple(exposures),
        moments=tuple(moments),
        epsilons=grown,
        budget=None if plan.epsilon is None else plan.epsilon[main.agent],
        other=Guarantee(
            epsilon=account.largest_epsilon(**other, observer=planned)[1],
            observer=planned,
            **other | {"accountant": accountant_of([line.event(charged) for line in lines], "pld", adjacency)},
            **marks,
        ),
        stated=_numbers(run.summary or {}).get("epsilon"),
        stated_against=_numbers((run.summary or {}).get("epsilon_against")),
    )


def _moments(run: RecordedRun) -> list[Moment]:
    """Choose about a dozen moments, all snapshots if they are few, closer together at the start where ε bends most.

    Rounds between two snapshots are among them where every one of them made the same number of queries: a curve through few snapshots
    would be too low.
    """
    seen = [Moment(each.round, run.spent_at(each)) for each in run.history]
    known = seen[:1]
    for before, after in pairwise(seen):
        rounds, queries = after.round - before.round, after.queries - before.queries
        if queries % rounds == 0:
            known += [
                Moment(before.round + number, before.queries + number * queries // rounds)
                for number in range(1, rounds)
            ]
        known.append(after)
    if len(known) <= _POINTS:
        return known
    places = np.round((len(known) - 1) * np.linspace(0, 1, _POINTS) ** 1.5).astype(int)
    chosen = {known[place] for place in places.tolist()}
    return sorted(chosen | set(seen) if len(seen) <= _POINTS else chosen)


def _numbers(document: Any) -> dict[str, float]:
    """Return the numbers in what a file holds, which may be anything."""
    found = document.items() if isinstance(document, Mapping) else ()
    return {key: float(value) for key, value in found if isinstance(value, int | float)}
