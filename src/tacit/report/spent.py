"""ε of a run, derived from its plan and its count of queries. Nothing is taken from a configuration or a summary.

A run that was not played to its end is charged its whole plan.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.privacy import Adjacency, Event, Guarantee
from tacit.privacy.accounting import epsilon, epsilons
from tacit.report.reading import Run
from tacit.runs.events import Snapshot

_POINTS = 12
# A summary rounds what it states; anything further off than this is another ε.
_AGREES = 5e-3


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
    """The same queries of `agent` under the other adjacency, by the accountant that knows both."""
    stated: float | None
    """The largest ε that the run's summary states, to be held against the derived one."""

    @property
    def agrees(self) -> bool:
        """Whether the summary, if there is one, states the ε that follows from the record."""
        return self.stated is None or abs(self.stated - self.guarantee.epsilon) <= _AGREES * self.guarantee.epsilon


def spending(run: Run) -> Spending | None:
    """Derive what a run is charged; None for a run that promises nothing."""
    plan = run.plan
    if not plan.private:
        return None
    assert plan.delta is not None
    assert plan.adjacency is not None
    assert plan.accountant is not None
    settings: dict[str, Any] = {"delta": plan.delta, "adjacency": plan.adjacency, "accountant": plan.accountant}

    mechanisms = list(zip(plan.sample_rates, plan.noise_multipliers, strict=True))
    distinct = sorted(set(mechanisms))
    ends = epsilons([_events(mechanism, run.counted) for mechanism in distinct], **settings)
    end_of = dict(zip(distinct, ends, strict=True))
    agent = max(range(plan.agents), key=lambda i: end_of[mechanisms[i]])
    most, end = mechanisms[agent], end_of[mechanisms[agent]]

    looks = _some(run.history)
    curve = [min(epsilon(_events(most, run.spent_at(look)), **settings), end) for look in looks]
    if looks and run.spent_at(looks[-1]) == run.counted:
        curve[-1] = end
    other: Adjacency = "replace_one" if plan.adjacency == "add_remove" else "add_remove"
    other_end = epsilon(_events(most, run.counted), delta=plan.delta, adjacency=other, accountant="pld")
    return Spending(
        guarantee=Guarantee(epsilon=end, release=plan.release, exposed=run.exposed, **settings),
        agent=agent,
        per_agent=tuple(end_of[mechanism] for mechanism in mechanisms),
        snapshots=tuple(looks),
        epsilons=tuple(curve),
        budget=None if plan.epsilon is None else plan.epsilon[agent],
        other=Guarantee(
            epsilon=other_end,
            delta=plan.delta,
            adjacency=other,
            accountant="pld",
            release=plan.release,
            exposed=run.exposed,
        ),
        stated=_stated(run),
    )


def _events(mechanism: tuple[float, float], queries: int) -> list[Event]:
    rate, sigma = mechanism
    return [Event(sample_rate=rate, noise_multiplier=sigma, count=queries)]


def _some(history: Sequence[Snapshot]) -> list[Snapshot]:
    """Choose about a dozen snapshots with the first and the last, closer at the start where ε bends most."""
    if len(history) <= _POINTS:
        return list(history)
    places = np.round((len(history) - 1) * np.linspace(0, 1, _POINTS) ** 1.5).astype(int)
    return [history[place] for place in sorted(set(places.tolist()))]


def _stated(run: Run) -> float | None:
    values = (run.summary or {}).get("epsilon_per_agent")
    if not isinstance(values, list) or not values or not all(isinstance(v, int | float) for v in values):
        return None
    return float(max(values))
