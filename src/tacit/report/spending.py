"""ε of a run, derived from its account in the ledger, and never taken from events, a configuration or a summary.

An unfinished run is charged its whole plan.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.privacy import Adjacency, Guarantee
from tacit.privacy.accounting import epsilon, epsilons
from tacit.privacy.guarantees import format_epsilon
from tacit.report.recorded import RecordedRun
from tacit.runs.event_types import SnapshotEvent

_POINTS = 12


@dataclass(frozen=True, kw_only=True)
class Spending:
    """What every agent is charged, and how ε of the agent with the highest ε grew."""

    guarantee: Guarantee
    """Of the agent with the highest ε."""
    agent: int
    """The agent with the highest ε."""
    per_agent: tuple[float, ...]
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

    @property
    def agrees(self) -> bool:
        """Whether the summary, if there is one, states the ε that follows from the ledger."""
        return self.stated is None or format_epsilon(self.stated) == format_epsilon(self.guarantee.epsilon)


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
    lines, charged = account.lines, account.charged
    agent, end = account.largest_epsilon(**terms)

    snapshots = _choose(run.history)
    curve = [min(epsilon([lines[agent].event(run.spent_at(each))], **terms), end) for each in snapshots]
    if snapshots and run.spent_at(snapshots[-1]) == charged:
        curve[-1] = end
    other: dict[str, Any] = {"delta": plan.delta, "adjacency": _other(plan.adjacency), "accountant": "pld"}
    marks: dict[str, Any] = {"release": run.release, "exposed": run.record.exposed, "unit": lines[0].unit}
    return Spending(
        guarantee=Guarantee(epsilon=end, **terms, **marks),
        agent=agent,
        per_agent=tuple(epsilons([[line.event(charged)] for line in lines], **terms)),
        snapshots=tuple(snapshots),
        epsilons=tuple(curve),
        budget=None if plan.epsilon is None else plan.epsilon[agent],
        other=Guarantee(epsilon=account.largest_epsilon(**other)[1], **other, **marks),
        stated=_stated(run),
    )


def _other(adjacency: Adjacency) -> Adjacency:
    return "replace_one" if adjacency == "add_remove" else "add_remove"


def _choose(history: Sequence[SnapshotEvent]) -> list[SnapshotEvent]:
    """Choose about a dozen snapshots, the first and the last among them, closer together at the start where ε bends most."""
    if len(history) <= _POINTS:
        return list(history)
    places = np.round((len(history) - 1) * np.linspace(0, 1, _POINTS) ** 1.5).astype(int)
    return [history[place] for place in sorted(set(places.tolist()))]


def _stated(run: RecordedRun) -> float | None:
    value = (run.summary or {}).get("epsilon")
    return float(value) if isinstance(value, int | float) else None
