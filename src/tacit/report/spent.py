"""ε of a run, derived from its account in the ledger. Nothing is taken from its events, a configuration or a summary.

A run that was not played to its end is charged its whole plan.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.privacy import Adjacency, Guarantee
from tacit.privacy.accounting import epsilon, epsilons
from tacit.privacy.guarantees import format_epsilon
from tacit.report.reading import Run
from tacit.runs.events import Snapshot

_POINTS = 12


@dataclass(frozen=True, kw_only=True)
class Spending:
    """What every agent is charged, and how the agent that is charged most came to it."""

    guarantee: Guarantee
    """Of the agent that spent most."""
    agent: int
    per_agent: tuple[float, ...]
    snapshots: tuple[Snapshot, ...]
    """Those at which ε was derived, at most about a dozen."""
    epsilons: tuple[float, ...]
    """At each of `snapshots`, for `agent`: ε of so many queries."""
    budget: float | None
    """What `agent` may spend."""
    other: Guarantee
    """The largest ε of the same queries under the other adjacency, by the accountant that knows both."""
    stated: float | None
    """ε as the run's summary states it, to be held against the derived one."""

    @property
    def agrees(self) -> bool:
        """Whether the summary, if there is one, states the ε that follows from the record."""
        return self.stated is None or format_epsilon(self.stated) == format_epsilon(self.guarantee.epsilon)


def spending(run: Run) -> Spending | None:
    """Derive what a run is charged; None for a run that promises nothing, and where the ledger does not tell.

    Rates, noise and queries are those of the run's account in the ledger. The plan gives δ, adjacency and accountant,
    which are stated with ε.
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

    looks = _some(run.history)
    curve = [min(epsilon([lines[agent].event(run.spent_at(look))], **terms), end) for look in looks]
    if looks and run.spent_at(looks[-1]) == charged:
        curve[-1] = end
    other: dict[str, Any] = {"delta": plan.delta, "adjacency": _other(plan.adjacency), "accountant": "pld"}
    stamp: dict[str, Any] = {"release": run.release, "exposed": run.record.exposed, "unit": lines[0].unit}
    return Spending(
        guarantee=Guarantee(epsilon=end, **terms, **stamp),
        agent=agent,
        per_agent=tuple(epsilons([[line.event(charged)] for line in lines], **terms)),
        snapshots=tuple(looks),
        epsilons=tuple(curve),
        budget=None if plan.epsilon is None else plan.epsilon[agent],
        other=Guarantee(epsilon=account.largest_epsilon(**other)[1], **other, **stamp),
        stated=_stated(run),
    )


def _other(adjacency: Adjacency) -> Adjacency:
    return "replace_one" if adjacency == "add_remove" else "add_remove"


def _some(history: Sequence[Snapshot]) -> list[Snapshot]:
    """Choose about a dozen snapshots with the first and the last, closer at the start where ε bends most."""
    if len(history) <= _POINTS:
        return list(history)
    places = np.round((len(history) - 1) * np.linspace(0, 1, _POINTS) ** 1.5).astype(int)
    return [history[place] for place in sorted(set(places.tolist()))]


def _stated(run: Run) -> float | None:
    value = (run.summary or {}).get("epsilon")
    return float(value) if isinstance(value, int | float) else None
