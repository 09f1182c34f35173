"""ε of a run, derived from its account in the ledger, and never taken from events, a configuration or a summary.

An unfinished run is charged its whole plan.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.privacy import Adjacency, Guarantee
from tacit.privacy.accounting import accountant_of, epsilon, epsilons
from tacit.privacy.guarantees import format_epsilon
from tacit.privacy.mechanisms import EVERYBODY, Observer
from tacit.privacy.observers import find_cut_off, observers_of
from tacit.report.recorded import RecordedRun
from tacit.runs.event_types import SnapshotEvent

_POINTS = 12


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
    snapshots: tuple[SnapshotEvent, ...]
    """Those at which ε was derived, about a dozen at most."""
    epsilons: tuple[float, ...]
    """`agent`'s ε at each of `snapshots`, of the queries made by then."""
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

    snapshots = _choose(run.history)

    def curve(exposure: Exposure) -> tuple[float, ...]:
        line, end = lines[exposure.agent], exposure.epsilon
        values = [min(epsilon([line.event(run.spent_at(each), exposure.observer)], **terms), end) for each in snapshots]
        if snapshots and run.spent_at(snapshots[-1]) == charged:
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
        snapshots=tuple(snapshots),
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


def _choose(history: Sequence[SnapshotEvent]) -> list[SnapshotEvent]:
    """Choose about a dozen snapshots, the first and the last among them, closer together at the start where ε bends most."""
    if len(history) <= _POINTS:
        return list(history)
    places = np.round((len(history) - 1) * np.linspace(0, 1, _POINTS) ** 1.5).astype(int)
    return [history[place] for place in sorted(set(places.tolist()))]


def _numbers(document: Any) -> dict[str, float]:
    """Return the numbers in what a file holds, which may be anything."""
    found = document.items() if isinstance(document, Mapping) else ()
    return {key: float(value) for key, value in found if isinstance(value, int | float)}
