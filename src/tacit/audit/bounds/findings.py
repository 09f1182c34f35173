"""What the scores of an attack prove, as data for a file, a page or a terminal.

Every threshold is fixed before the scores it is measured on are seen: those of the likelihood in advance, the others on the first
part of the runs. All bounds of one audit hold together, because the thresholds share the risk.
"""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from scipy.optimize import brentq

from tacit.audit.attacks.collection import Collected
from tacit.audit.bounds import rates
from tacit.audit.bounds.discrete import Grid
from tacit.audit.bounds.rates import Bound, Criterion, Outcomes, Side, Terms
from tacit.audit.bounds.tradeoff import event_curve, tradeoff_bound
from tacit.errors import InvalidInput
from tacit.privacy import accounting
from tacit.privacy.event import Event

Verdict = Literal["broken", "no violation found"]

LEAST_RUNS = 10
_POINTS = 160


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The ε and δ that the target claims, and the mechanism that it states for them.

    grid: that of discrete noise. Without it, discrete noise has only bounds that hold whatever is wrong.
    """

    epsilon: float
    delta: float
    event: Event
    adjacency: str = "add_remove"
    grid: Grid | None = None

    @staticmethod
    def of(event: Event, delta: float, grid: Grid | None = None) -> "Claim":
        """Claim the ε that the accountant computes for this mechanism."""
        return Claim(epsilon=accounting.epsilon([event], delta=delta), delta=delta, event=event, grid=grid)

    @property
    def has_curve(self) -> bool:
        """Whether noise can be refuted by its trade-off curve."""
        return not self.event.discrete or self.grid is not None

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {name: value for name, value in asdict(self).items() if name != "grid" or value is not None}


@dataclass(frozen=True, kw_only=True)
class Refutation(ABC):
    """An attempt to refute a claim by lower bounds on ε."""

    claim: Claim

    @property
    @abstractmethod
    def epsilon(self) -> float:
        """The largest lower bound."""

    @property
    def verdict(self) -> Verdict:
        """Whether a lower bound exceeds the claim."""
        return "broken" if self.epsilon > self.claim.epsilon else "no violation found"


@dataclass(frozen=True, kw_only=True)
class ScoreThreshold:
    """One statistic at one threshold: the errors that were made, and what they prove.

    `estimate` takes the error rates at face value and proves nothing: the least ε that (ε, δ)-DP allows them, which is the largest
    of 0, log((hits − δ)/false alarms), which the paper reports, and log((1 − false alarms − δ)/misses). `interval` is the estimate
    at the limits of both rates, with the confidence of each bound. Of the bounds, `clopper_pearson` holds whatever is wrong,
    `tradeoff` if only the noise may be wrong; `gaussian` also needs the central limit.
    """

    statistic: str
    threshold: float
    chosen: Literal["beforehand", "on the first part"]
    outcomes: Outcomes
    estimate: float
    interval: tuple[float, float]
    bounds: tuple[Bound, ...]

    @property
    def largest(self) -> float:
        """The largest bound that does not rest on the central limit."""
        return max(bound.epsilon for bound in self.bounds if bound.method != "gaussian")


@dataclass(frozen=True, kw_only=True)
class Findings(Refutation):
    """What an audit found at all thresholds; together the bounds hold with the stated confidence.

    reach: roughly the `tradeoff` bound that this many runs would give for a system that spends all of its claim, by an attacker who
    sees everything. Where the bound found is lower, the attack was weaker than that or the system leaks less.
    """

    confidence: float
    runs: int
    reach: float
    thresholds: tuple[ScoreThreshold, ...]
    roc: dict[str, dict[str, list[float]]]

    @property
    def epsilon(self) -> float:
        """The largest lower bound."""
        return max(each.largest for each in self.thresholds)

    @property
    def epsilon_whatever(self) -> float:
        """The largest lower bound that holds whatever is wrong."""
        return max(b.epsilon for each in self.thresholds for b in each.bounds if b.method == "clopper_pearson")

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "claimed": self.claim.to_json(),
            "confidence": self.confidence,
            "runs_per_side": self.runs,
            "lower_bound": self.epsilon,
            "lower_bound_whatever": self.epsilon_whatever,
            "within_reach": self.reach,
            "verdict": self.verdict,
            "thresholds": [
                {**asdict(each), "largest": each.largest, "bounds": [bound.to_json() for bound in each.bounds]}
                for each in self.thresholds
            ],
            "roc": self.roc,
        }


def judge(scores: Collected, claim: Claim, *, confidence: float = 0.95) -> Findings:
    """Return what the scores prove about a claim."""
    for name in scores.statistics:
        if not all(np.isfinite(side[name]).all() for side in (scores.absent, scores.present)):
            raise InvalidInput(
                f"some runs have no {name} score: the models overflowed, most likely because the step size is too large"
            )
    cuts = [(name, cut) for name in scores.statistics for cut in _cuts(name, claim)]
    at: Terms = {"delta": claim.delta, "confidence": 1 - (1 - confidence) / len(cuts)}
    runs = len(next(iter(scores.absent.values())))
    return Findings(
        claim=claim,
        confidence=confidence,
        runs=runs,
        reach=_reach(claim, runs, at),
        thresholds=tuple(
            _measure(name, cut, scores.absent[name], scores.present[name], claim, at) for name, cut in cuts
        ),
        roc={name: roc_curve(scores.absent[name], scores.present[name]) for name in scores.statistics},
    )


def roc_curve(absent: Side, present: Side) -> dict[str, list[float]]:
    """Return the hit rates at false alarm rates that are evenly spaced on a log scale."""
    runs = len(absent)
    alarms = np.unique(np.round(np.geomspace(1 / runs, 1, _POINTS) * runs)) / runs
    highest = np.sort(absent)[::-1]
    cuts = highest[np.minimum((alarms * runs).round().astype(int), runs) - 1]
    hits = 1 - np.searchsorted(np.sort(present), cuts, side="left") / len(present)
    return {"false_alarms": alarms.tolist(), "hits": hits.tolist()}


def _reach(claim: Claim, runs: int, at: Terms) -> float:
    """Return the bound at the errors expected of the best test with equal error rates, for the mechanism as stated."""
    curve = event_curve(claim.event)
    errors = round(float(brentq(lambda alarm: curve(alarm) - alarm, 0.0, 1.0)) * runs)
    outcomes = Outcomes(absent=runs, false_alarms=errors, present=runs, misses=errors)
    return max(bound.epsilon for bound in _bounds(outcomes, claim, at) if bound.method != "gaussian")


def _bounds(outcomes: Outcomes, claim: Claim, at: Terms) -> tuple[Bound, ...]:
    curved = [tradeoff_bound(outcomes, claim.event, **at, grid=claim.grid)] if claim.has_curve else []
    return rates.clopper_pearson_bound(outcomes, **at), *curved, rates.gaussian_bound(outcomes, **at)


def _cuts(statistic: str, claim: Claim) -> list[float | Criterion]:
    """A likelihood ratio has natural thresholds: even odds, and e^ε, where (ε, δ)-DP is tightest.

    They are right only if nothing is wrong. If something is, the first runs choose a threshold, once for each kind of bound.
    """
    chosen: list[float | Criterion] = ["gaussian", "clopper_pearson"]
    return [0.0, claim.epsilon, *chosen] if statistic == "likelihood" else chosen


def _measure(
    statistic: str, cut: float | Criterion, absent: Side, present: Side, claim: Claim, at: Terms
) -> ScoreThreshold:
    if isinstance(cut, str):
        threshold, outcomes = rates.held_out(absent, present, criterion=cut, **at)
    else:
        threshold, outcomes = cut, rates.count(absent, present, cut)
    return ScoreThreshold(
        statistic=statistic,
        threshold=threshold,
        chosen="on the first part" if isinstance(cut, str) else "beforehand",
        outcomes=outcomes,
        estimate=_estimate(outcomes, at["delta"]),
        interval=_interval(outcomes, **at),
        bounds=_bounds(outcomes, claim, at),
    )


def _estimate(outcomes: Outcomes, delta: float) -> float:
    alarms, misses = outcomes.false_alarms / outcomes.absent, outcomes.misses / outcomes.present
    return float(rates.least_epsilon(alarms, misses, delta))


def _interval(outcomes: Outcomes, delta: float, confidence: float) -> tuple[float, float]:
    """Return the estimate with both error rates at their upper limits, and at their lower ones; all four limits hold together."""
    risk = (1 - confidence) / 4

    def limits(wrong: int, runs: int) -> tuple[float, float]:
        right, rate = rates.upper_rate(np.array([runs - wrong, wrong]), runs, risk)
        return 1 - float(right), float(rate)

    alarm, miss = limits(outcomes.false_alarms, outcomes.absent), limits(outcomes.misses, outcomes.present)
    low, high = (float(rates.least_epsilon(alarm[end], miss[end], delta)) for end in (1, 0))
    return low, high
