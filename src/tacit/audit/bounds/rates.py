"""From the error counts of an attack to a lower bound on ε, at a stated confidence. Nothing here runs an attack.

An attack says of each run whether a certain record was in it. A run without the record that it calls "with" is a false alarm; a
run with the record that it calls "without" is a miss. Every bound starts from one-sided Clopper-Pearson limits on the two error
rates, which hold together. A bound is evidence against a claim and never for it: 0 means that the attack showed nothing. Runs are
assumed independent, and adjacency is add-remove.
"""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypedDict, get_args

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import betaincinv, log_ndtr, ndtr, ndtri

from tacit.errors import InvalidInput, PrivacyError, choose

Method = Literal["clopper_pearson", "gaussian", "tradeoff", "one_run", "one_run_fdp"]
Criterion = Literal["clopper_pearson", "gaussian"]
Side = Float[np.ndarray, " runs"]

_STRICTNESS = 0.02


class Terms(TypedDict):
    """What a bound is stated for."""

    delta: float
    confidence: float


@dataclass(frozen=True, kw_only=True)
class Bound:
    """With probability `confidence` or more over the runs, ε at `delta` is at least `epsilon`.

    The error rates are upper limits. `mu` or `noise_multiplier` is the member of the method's family that the bound rests on.
    `capped`: the whole family was refuted, so ε is that of its least noise.
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

    def to_json(self) -> dict[str, Any]:
        """Return the fields that this method has."""
        return {name: value for name, value in asdict(self).items() if value is not None}


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


def count(absent: Side, present: Side, threshold: float) -> Outcomes:
    """Call every score above `threshold` "with the record" and count the errors."""
    alarms, misses = int(np.sum(absent > threshold)), int(np.sum(present <= threshold))
    return Outcomes(absent=len(absent), false_alarms=alarms, present=len(present), misses=misses)


def choose_threshold(
    absent: Side, present: Side, *, delta: float, confidence: float, criterion: Criterion = "gaussian"
) -> float:
    """Return the threshold with the largest bound on these scores, under stricter limits.

    A bound measured on the scores that chose its threshold is too large: measure it on others, as `held_out` does.
    """
    check_terms(delta, confidence)
    choose("criterion", criterion, get_args(Criterion))
    _check_scores(absent, present)
    candidates = np.unique(np.concatenate([absent, present]))
    alarms = len(absent) - np.searchsorted(np.sort(absent), candidates, side="right")
    misses = np.searchsorted(np.sort(present), candidates, side="right")
    # The search finds the luckiest of many thresholds. Stricter limits keep it from the ends, where luck matters most.
    risk = (1 - confidence) / 2 * _STRICTNESS
    alarm_rate, miss_rate = upper_rate(alarms, len(absent), risk), upper_rate(misses, len(present), risk)
    mu = -ndtri(alarm_rate) - ndtri(miss_rate)
    best = int(np.argmax(mu if criterion == "gaussian" else least_epsilon(alarm_rate, miss_rate, delta)))
    return float(candidates[best : best + 2].mean())  # half-way to the next score


def held_out(
    absent: Side,
    present: Side,
    *,
    delta: float,
    confidence: float,
    share: float = 0.2,
    criterion: Criterion = "gaussian",
) -> tuple[float, Outcomes]:
    """Choose the threshold on the first `share` of each side's scores, and count its errors on the rest."""
    if not 0 < share < 1:
        raise InvalidInput(f"share is {share}; it must lie strictly between 0 and 1")
    first, second = int(share * len(absent)), int(share * len(present))
    if not first or not second:
        raise InvalidInput(f"a share of {share} of {len(absent)} and {len(present)} scores is not one of each side")
    _check_scores(absent, present)
    at: Terms = {"delta": delta, "confidence": confidence}
    threshold = choose_threshold(absent[:first], present[:second], criterion=criterion, **at)
    return threshold, count(absent[first:], present[second:], threshold)


def clopper_pearson_bound(outcomes: Outcomes, *, delta: float, confidence: float) -> Bound:
    """Bound ε for any mechanism, by `least_epsilon` at the upper error rates."""
    check_terms(delta, confidence)
    alarm, miss = upper_rates(outcomes, confidence)
    return Bound(
        epsilon=float(least_epsilon(alarm, miss, delta)),
        method="clopper_pearson",
        confidence=confidence,
        delta=delta,
        false_alarm_rate=alarm,
        miss_rate=miss,
    )


def gaussian_bound(outcomes: Outcomes, *, delta: float, confidence: float) -> Bound:
    """Bound ε through Gaussian DP (Nasr et al. 2023): μ ≥ Φ⁻¹(1 - alarm) - Φ⁻¹(miss), then ε of that μ at δ.

    It holds only where the trade-off curve is that of a Gaussian mechanism: full lots, or so many queries that the central limit
    is close. For few queries or small q it may be too large; `tradeoff_bound` is not.
    """
    check_terms(delta, confidence, positive=True)
    bound = clopper_pearson_bound(outcomes, delta=delta, confidence=confidence)
    mu = max(0.0, gaussian_mu(*upper_rates(outcomes, confidence)))
    return replace(bound, epsilon=gaussian_epsilon(mu, delta), method="gaussian", mu=mu)


def gaussian_mu(alarm: float, miss: float) -> float:
    """Return the μ of the Gaussian trade-off curve through these rates."""
    return -float(ndtri(alarm)) - float(ndtri(miss))


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


def least_epsilon(alarm: ArrayLike, miss: ArrayLike, delta: float) -> Float[np.ndarray, "*n"]:
    """Return the least ε ≥ 0 that allows these rates: 1 - δ ≤ miss + e^ε·alarm, and the same with the errors exchanged."""
    with np.errstate(divide="ignore", invalid="ignore"):
        alarm, miss = np.asarray(alarm), np.asarray(miss)
        ratio = np.fmax((1 - delta - miss) / alarm, (1 - delta - alarm) / miss)
    return np.asarray(np.log(np.fmax(ratio, 1.0)))


def upper_rate(errors: Int[np.ndarray, "*n"], runs: int, risk: float) -> Float[np.ndarray, "*n"]:
    """Return the rates at which this many errors, or fewer, have probability `risk` (Clopper & Pearson 1934)."""
    return np.where(errors < runs, betaincinv(errors + 1, np.maximum(runs - errors, 1), 1 - risk), 1.0)


def upper_rates(outcomes: Outcomes, confidence: float) -> tuple[float, float]:
    """Return limits on the false alarm and the miss rate that hold together, each taking half of the risk."""
    risk = (1 - confidence) / 2
    alarm = upper_rate(np.array(outcomes.false_alarms), outcomes.absent, risk)
    return float(alarm), float(upper_rate(np.array(outcomes.misses), outcomes.present, risk))


def check_terms(delta: float, confidence: float, *, positive: bool = False) -> None:
    """Refuse a δ or a confidence that no bound can be stated for."""
    if not (0 < delta < 1 or (delta == 0 and not positive)):
        raise PrivacyError(f"delta is {delta}; it must lie {'strictly between 0 and 1' if positive else 'in [0, 1)'}")
    if not 0 < confidence < 1:
        raise InvalidInput(f"confidence is {confidence}; it must lie strictly between 0 and 1")


def _check_scores(absent: Side, present: Side) -> None:
    for side, scores in (("absent", absent), ("present", present)):
        if scores.ndim != 1 or not scores.size or not np.isfinite(scores).all():
            raise InvalidInput(f"the {side} scores must be a non-empty list of finite numbers")
