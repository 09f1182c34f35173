"""What the scores of an attack prove, as data for a file, a page or a terminal.

Every threshold is fixed before the scores that it is measured on are seen: the likelihood's beforehand, the others' on the
first part of the runs. All bounds of one audit hold together: the risk is shared among the looks that are taken.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypedDict

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq

from tacit.audit.attacks.collecting import Collected
from tacit.audit.bounds.rates import (
    Bound,
    Criterion,
    Outcomes,
    choose_threshold,
    clopper_pearson_bound,
    count,
    gaussian_bound,
    upper_rate,
)
from tacit.audit.bounds.tradeoff import event_curve, tradeoff_bound
from tacit.errors import InvalidInput
from tacit.privacy import accounting
from tacit.privacy.accounting import Event

Verdict = Literal["broken", "no violation found"]

LEAST_RUNS = 10
_HELD_OUT = 0.2
_POINTS = 160


class _At(TypedDict):
    delta: float
    confidence: float


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What the target promises, and the mechanism that it says is behind it."""

    epsilon: float
    delta: float
    event: Event
    adjacency: str = "add_remove"

    @staticmethod
    def of(event: Event, delta: float) -> "Claim":
        """Return the ε that the accountant gives this mechanism."""
        return Claim(epsilon=accounting.epsilon([event], delta=delta), delta=delta, event=event)


@dataclass(frozen=True, kw_only=True)
class Look:
    """One statistic at one threshold: the errors that it made, and what they prove.

    `estimate` takes the rates of error at their face: the least ε that (ε, δ)-DP allows them, which is the largest of 0,
    log((hits − δ)/false alarms), which the paper reports, and log((1 − false alarms − δ)/misses). It proves nothing.
    `interval` is where it would be at the ends of what the counts allow, as sure as each of the look's bounds is.
    Of the bounds, `clopper_pearson` holds whatever is wrong, `tradeoff` if the noise alone may be; `gaussian` needs the
    central limit, too.
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
class Findings:
    """All looks of one audit; together they are right with the stated confidence.

    reach: about what so many runs would show, if the noise is wrong or not, of a system that uses its claim up, to an
    attacker who sees all of it. What is below that was not looked for hard enough, or does not leak.
    """

    claim: Claim
    confidence: float
    runs: int
    reach: float
    looks: tuple[Look, ...]
    roc: dict[str, dict[str, list[float]]]

    @property
    def epsilon(self) -> float:
        """The largest lower bound."""
        return max(look.largest for look in self.looks)

    @property
    def epsilon_whatever(self) -> float:
        """The largest lower bound that holds whatever may be wrong."""
        return max(b.epsilon for look in self.looks for b in look.bounds if b.method == "clopper_pearson")

    @property
    def verdict(self) -> Verdict:
        """Broken, where a lower bound passes the claim."""
        return "broken" if self.epsilon > self.claim.epsilon else "no violation found"

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        looks = [
            {**asdict(look), "largest": look.largest, "bounds": [_plain(bound) for bound in look.bounds]}
            for look in self.looks
        ]
        return {
            "claimed": asdict(self.claim),
            "confidence": self.confidence,
            "runs_per_side": self.runs,
            "lower_bound": self.epsilon,
            "lower_bound_whatever": self.epsilon_whatever,
            "within_reach": self.reach,
            "verdict": self.verdict,
            "looks": looks,
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
    each_confidence = 1 - (1 - confidence) / len(cuts)
    looks = tuple(
        _look(name, cut, scores.absent[name], scores.present[name], claim, each_confidence) for name, cut in cuts
    )
    roc = {name: roc_curve(scores.absent[name], scores.present[name]) for name in scores.statistics}
    runs = len(next(iter(scores.absent.values())))
    reach = _reach(claim, runs, each_confidence)
    return Findings(claim=claim, confidence=confidence, runs=runs, reach=reach, looks=looks, roc=roc)


def roc_curve(absent: Float[np.ndarray, " runs"], present: Float[np.ndarray, " runs"]) -> dict[str, list[float]]:
    """Return the share of hits at rates of false alarm that are spread evenly on a log scale."""
    runs = len(absent)
    rates = np.unique(np.round(np.geomspace(1 / runs, 1, _POINTS) * runs)) / runs
    highest = np.sort(absent)[::-1]
    cuts = highest[np.minimum((rates * runs).round().astype(int), runs) - 1]
    hits = 1 - np.searchsorted(np.sort(present), cuts, side="left") / len(present)
    return {"false_alarms": rates.tolist(), "hits": hits.tolist()}


def _reach(claim: Claim, runs: int, confidence: float) -> float:
    """Return the bound by the errors to be expected of the best test at even odds, where the mechanism is as stated."""
    curve = event_curve(claim.event)
    rate = float(brentq(lambda alarm: curve(alarm) - alarm, 0.0, 1.0))
    errors = round(rate * runs)
    outcomes = Outcomes(absent=runs, false_alarms=errors, present=runs, misses=errors)
    return tradeoff_bound(outcomes, claim.event, delta=claim.delta, confidence=confidence).epsilon


def _cuts(statistic: str, claim: Claim) -> list[float | Criterion]:
    """A likelihood ratio says of itself where to cut: at even odds, and at e^ε, where (ε, δ)-DP binds most.

    It does so as long as nothing is wrong; where something is, the first runs have to say, once for either kind of bound.
    """
    chosen: list[float | Criterion] = ["gaussian", "clopper_pearson"]
    return [0.0, claim.epsilon, *chosen] if statistic == "likelihood" else chosen


def _look(
    statistic: str,
    cut: float | Criterion,
    absent: Float[np.ndarray, " runs"],
    present: Float[np.ndarray, " runs"],
    claim: Claim,
    confidence: float,
) -> Look:
    at: _At = {"delta": claim.delta, "confidence": confidence}
    chosen: Literal["beforehand", "on the first part"] = "beforehand"
    if isinstance(cut, str):
        first = max(1, int(_HELD_OUT * min(len(absent), len(present))))
        threshold = choose_threshold(absent[:first], present[:first], criterion=cut, **at)
        absent, present, chosen = absent[first:], present[first:], "on the first part"
    else:
        threshold = cut
    outcomes = count(absent, present, threshold)
    return Look(
        statistic=statistic,
        threshold=threshold,
        chosen=chosen,
        outcomes=outcomes,
        estimate=_estimate(outcomes, claim.delta),
        interval=_interval(outcomes, **at),
        bounds=(
            clopper_pearson_bound(outcomes, **at),
            tradeoff_bound(outcomes, claim.event, **at),
            gaussian_bound(outcomes, **at),
        ),
    )


def _estimate(outcomes: Outcomes, delta: float) -> float:
    return _least_epsilon(outcomes.false_alarms / outcomes.absent, outcomes.misses / outcomes.present, delta)


def _interval(outcomes: Outcomes, delta: float, confidence: float) -> tuple[float, float]:
    """Return where the estimate would be with both rates of error at either end of what the counts allow.

    The four limits hold together, so both directions may be looked at.
    """
    risk = (1 - confidence) / 4

    def ends(wrong: int, runs: int) -> tuple[float, float]:
        counts = np.array([runs - wrong, wrong])
        right, rate = upper_rate(counts, runs, risk)
        return 1 - float(right), float(rate)

    alarm, miss = ends(outcomes.false_alarms, outcomes.absent), ends(outcomes.misses, outcomes.present)
    return _least_epsilon(alarm[1], miss[1], delta), _least_epsilon(alarm[0], miss[0], delta)


def _least_epsilon(alarm: float, miss: float, delta: float) -> float:
    """(ε, δ)-DP asks 1 - δ ≤ miss + e^ε·alarm, and the same with the errors exchanged."""
    return max(0.0, _log_ratio(1 - miss - delta, alarm), _log_ratio(1 - alarm - delta, miss))


def _log_ratio(hits: float, alarms: float) -> float:
    if hits <= 0:
        return -math.inf
    return math.log(hits / alarms) if alarms > 0 else math.inf


def _plain(bound: Bound) -> dict[str, Any]:
    return {name: value for name, value in asdict(bound).items() if value is not None}
