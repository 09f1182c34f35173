"""From the counts of an attack to a lower bound on ε, at a stated confidence. Nothing here runs an attack.

An attack says of each run whether a certain record was in it. Runs without the record that it calls "with" are
false alarms; runs with the record that it calls "without" are misses. Every bound below begins with two one-sided
Clopper-Pearson limits, on the rate of each error, that hold together. A bound is evidence against a claim and never
for one: 0 says that the attack showed nothing. All runs are taken as independent, and add-remove adjacency is meant.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import brentq
from scipy.special import betaincinv, log_ndtr, ndtr, ndtri

from tacit.errors import InvalidInput, PrivacyError, choose

Method = Literal["clopper_pearson", "gaussian", "tradeoff", "one_run", "one_run_fdp"]
Criterion = Literal["clopper_pearson", "gaussian"]

_STRICTNESS = 0.02


@dataclass(frozen=True, kw_only=True)
class Bound:
    """With probability `confidence` or more over the runs, ε at `delta` is not below `epsilon`.

    The error rates are upper limits. `mu` or `noise_multiplier` names the member of the method's family that the
    bound stands on. `capped` says that the whole family was refuted, so that ε was cut off at its least noise.
    """

    epsilon: float
    method: Method
    confidence: float
    delta: float
    adjacency: str = "add_remove"
    false_alarm_rate: float | None = None
    miss_rate: float | None = None
    mu: float | None = None
    noise_multiplier: float | None = None
    capped: bool = False


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """Of `absent` runs without the record, `false_alarms` were called "with"; of `present` with it, `misses` were not."""

    absent: int
    false_alarms: int
    present: int
    misses: int

    def __post_init__(self) -> None:
        for runs, errors in (("absent", "false_alarms"), ("present", "misses")):
            total, wrong = getattr(self, runs), getattr(self, errors)
            if total < 1:
                raise InvalidInput(f"{runs} is {total}; at least one run on each side is needed")
            if not 0 <= wrong <= total:
                raise InvalidInput(f"{errors} is {wrong}; it must lie between 0 and {runs}={total}")


def count(absent: Float[np.ndarray, "absent"], present: Float[np.ndarray, "present"], threshold: float) -> Outcomes:
    """Call every score above `threshold` "with the record" and count the errors."""
    return Outcomes(
        absent=len(absent),
        false_alarms=int(np.sum(absent > threshold)),
        present=len(present),
        misses=int(np.sum(present <= threshold)),
    )


def choose_threshold(
    absent: Float[np.ndarray, "absent"],
    present: Float[np.ndarray, "present"],
    *,
    delta: float,
    confidence: float,
    criterion: Criterion = "gaussian",
) -> float:
    """Return the threshold that would give the largest bound on these very scores, under stricter limits.

    A bound measured on the scores that chose its threshold claims too much: measure on others, as `held_out` does.
    """
    check(delta, confidence)
    choose("criterion", criterion, get_args(Criterion))
    _check_scores(absent, present)
    candidates = np.unique(np.concatenate([absent, present]))
    alarms = len(absent) - np.searchsorted(np.sort(absent), candidates, side="right")
    misses = np.searchsorted(np.sort(present), candidates, side="right")
    # The search finds the luckiest of many thresholds. Stricter limits keep it from the ends, where luck matters most.
    risk = (1 - confidence) / 2 * _STRICTNESS
    alarm_rate, miss_rate = upper_rate(alarms, len(absent), risk), upper_rate(misses, len(present), risk)
    mu = -ndtri(alarm_rate) - ndtri(miss_rate)
    best = int(np.argmax(mu if criterion == "gaussian" else _epsilon(alarm_rate, miss_rate, delta)))
    return float(candidates[best : best + 2].mean())  # half-way to the next score


def held_out(
    absent: Float[np.ndarray, "absent"],
    present: Float[np.ndarray, "present"],
    *,
    delta: float,
    confidence: float,
    share: float = 0.2,
    criterion: Criterion = "gaussian",
) -> Outcomes:
    """Choose the threshold on the first `share` of each side's scores; count the errors on the rest."""
    if not 0 < share < 1:
        raise InvalidInput(f"share is {share}; it must lie strictly between 0 and 1")
    first, second = int(share * len(absent)), int(share * len(present))
    if not first or not second:
        raise InvalidInput(f"a share of {share} of {len(absent)} and {len(present)} scores is not one of each side")
    _check_scores(absent, present)
    at = {"delta": delta, "confidence": confidence}
    threshold = choose_threshold(absent[:first], present[:second], criterion=criterion, **at)
    return count(absent[first:], present[second:], threshold)


def clopper_pearson_bound(outcomes: Outcomes, *, delta: float, confidence: float) -> Bound:
    """Bound ε for any mechanism: (ε, δ)-DP asks 1 - δ ≤ miss + e^ε·alarm, and the same with the errors exchanged."""
    check(delta, confidence)
    alarm, miss = upper_rates(outcomes, confidence)
    return Bound(
        epsilon=float(_epsilon(np.array(alarm), np.array(miss), delta)),
        method="clopper_pearson",
        confidence=confidence,
        delta=delta,
        false_alarm_rate=alarm,
        miss_rate=miss,
    )


def gaussian_bound(outcomes: Outcomes, *, delta: float, confidence: float) -> Bound:
    """Bound ε through Gaussian DP (Nasr et al. 2023): μ ≥ Φ⁻¹(1 - alarm) - Φ⁻¹(miss), then ε of that μ at δ.

    It holds only where the trade-off curve is that of a Gaussian mechanism: full lots, or so many queries that the
    central limit is close. For few or rarely drawn lots it may claim too much; `tradeoff_bound` does not.
    """
    check(delta, confidence, positive=True)
    alarm, miss = upper_rates(outcomes, confidence)
    mu = max(0.0, -float(ndtri(alarm)) - float(ndtri(miss)))
    return Bound(
        epsilon=gaussian_epsilon(mu, delta),
        method="gaussian",
        confidence=confidence,
        delta=delta,
        false_alarm_rate=alarm,
        miss_rate=miss,
        mu=mu,
    )


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Solve δ(ε) = Φ(μ/2 - ε/μ) - e^ε·Φ(-μ/2 - ε/μ) for ε ≥ 0."""

    def excess(epsilon: float) -> float:
        far = math.exp(epsilon + float(log_ndtr(-epsilon / mu - mu / 2)))
        return float(ndtr(mu / 2 - epsilon / mu)) - far - delta

    if mu <= 0 or excess(0.0) <= 0:
        return 0.0
    # The first term alone is below δ from here on, by the Gaussian tail.
    most = mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta))
    return float(brentq(excess, 0.0, most, xtol=1e-12))


def upper_rate(errors: Int[np.ndarray, "*n"], runs: int, risk: float) -> Float[np.ndarray, "*n"]:
    """Return the rates at which so few errors, or fewer, have probability `risk` (Clopper & Pearson 1934)."""
    return np.where(errors < runs, betaincinv(errors + 1, np.maximum(runs - errors, 1), 1 - risk), 1.0)


def upper_rates(outcomes: Outcomes, confidence: float) -> tuple[float, float]:
    """Return limits on the false alarm and the miss rate; both hold at once, each taking half of the risk."""
    risk = (1 - confidence) / 2
    counts = (outcomes.false_alarms, outcomes.absent), (outcomes.misses, outcomes.present)
    alarm, miss = (float(upper_rate(np.array(errors), runs, risk)) for errors, runs in counts)
    return alarm, miss


def check(delta: float, confidence: float, *, positive: bool = False) -> None:
    """Refuse a δ or a confidence that no bound can be stated at."""
    if not (0 < delta < 1 or (delta == 0 and not positive)):
        raise PrivacyError(f"delta is {delta}; it must lie {'strictly between 0 and 1' if positive else 'in [0, 1)'}")
    if not 0 < confidence < 1:
        raise InvalidInput(f"confidence is {confidence}; it must lie strictly between 0 and 1")


def _epsilon(alarm: Float[np.ndarray, "*n"], miss: Float[np.ndarray, "*n"], delta: float) -> Float[np.ndarray, "*n"]:
    """The upper rates are above 0 for any number of runs, so this is finite."""
    ratio = np.maximum((1 - delta - miss) / alarm, (1 - delta - alarm) / miss)
    return np.log(np.maximum(ratio, 1.0))


def _check_scores(absent: Float[np.ndarray, "absent"], present: Float[np.ndarray, "present"]) -> None:
    for side, scores in (("absent", absent), ("present", present)):
        if scores.ndim != 1 or not scores.size or not np.isfinite(scores).all():
            raise InvalidInput(f"the {side} scores must be a non-empty list of finite numbers")
