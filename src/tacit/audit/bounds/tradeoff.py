"""Trade-off curves, and the bound by refuting those of the accountant's own mechanism.

A trade-off curve f gives, for a false alarm rate, the least miss rate that any attack can have. The family here is one `Event`
with its noise multiplier varied. More noise lifts the curve, so an attack that does better than the curve of σ' refutes σ' and all
noise above it; the bound is ε of the least noise refuted.

Errors are on the safe side: the accountant's δ(ε) is an upper bound, so the curve made from it lies on or below the true one, and
with finitely many lines lower still. What is refuted here is therefore refuted for the true curve. The last step, ε of σ', is the
accountant's as well and may exceed the true ε by its numeric error, about a hundredth of a percent.

For discrete noise, accountants have only looser upper bounds. There both steps have bounds of their own (`discrete`).
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from itertools import count

import numpy as np
from dp_accounting import pld
from scipy.special import ndtr, ndtri

from tacit.audit.bounds.discrete import Grid, least_epsilon, renyi_deltas
from tacit.audit.bounds.rates import Bound, Method, Outcomes, check_terms, gaussian_mu, upper_rates
from tacit.errors import PrivacyError
from tacit.privacy import accounting
from tacit.privacy.event import Event

Curve = Callable[[float], float]

# The noise multipliers tried are a geometric grid, so that bounds share curves. Its step costs a bound about a thousandth. Below
# the least noise, or where all queries together could lose more than the most, a curve is too costly and ε is useless anyway.
_STEP = 1.001
_LEAST_NOISE, _MOST_NOISE = 0.25, 1e6
_MOST_LOSS = 2.0**19
# Cells of this share of ε lower a curve by about 1e-5.
_CELL, _LARGEST_CELL = 4e-4, 2.0**-7
_LINES, _STEEPEST = 500, 300.0
_SECANTS = 8  # guesses before every other one is a bisection


def gaussian_curve(mu: float) -> Curve:
    """Return f(α) = Φ(Φ⁻¹(1 - α) - μ), the curve of Gaussian DP."""
    return lambda alarm: float(ndtr(-ndtri(alarm) - mu))


@lru_cache(maxsize=1024)
def event_curve(event: Event) -> Curve:
    """Return a curve on or below that of `event`, the same for adding and removing the record.

    Each ε with its δ(ε) gives two lines that no attack can pass, 1 - δ - e^ε·α and e^-ε·(1 - δ - α); δ(ε) is the
    larger of the two directions', so both lines hold for both.
    """
    span = max(accounting.rough_epsilon([event], 1e-9), 2 * accounting.largest_loss(event))
    epsilons = min(span, _STEEPEST) * np.linspace(0, 1, _LINES) ** 2
    if event.discrete:
        deltas = renyi_deltas(event, epsilons)
    else:
        ledger = pld.PLDAccountant(value_discretization_interval=min(span * _CELL, _LARGEST_CELL))
        with accounting.quiet_accountants():
            ledger.compose(accounting.dp_event(event), event.count)
            deltas = np.asarray(ledger.get_delta(epsilons))
    slopes = np.concatenate([np.exp(epsilons), np.exp(-epsilons)])
    heights = np.concatenate([1 - deltas, np.exp(-epsilons) * (1 - deltas)])
    return lambda alarm: max(0.0, float(np.max(heights - slopes * alarm)))


@lru_cache(maxsize=64)
def _cached_curves(sample_rate: float, count: int, discrete: bool) -> dict[int, Curve]:
    """Return the curves computed so far for such queries, by the index of their noise multiplier on the grid."""
    return {}


def least_noise_refuted(
    event: Event, refutes: Callable[[Curve], bool], excess: Callable[[Curve], float] | None = None
) -> tuple[float, bool] | None:
    """Return the least σ' of the grid whose curve is refuted, and whether that is the least of all; None if none is.

    `refutes` must refute every curve that lies above one that it refutes. Curves are costly, so the cached ones are tried first.
    `excess` returns by how much the log μ of a curve exceeds that of the curve sought; with it, few new curves are needed.
    """
    curves = _cached_curves(event.sample_rate, event.count, event.discrete)

    def member(index: int) -> Event:
        return replace(event, noise_multiplier=_LEAST_NOISE * _STEP**index)

    def curve(index: int) -> Curve:
        if index not in curves:
            curves[index] = event_curve(member(index))
        return curves[index]

    if event.count < 1:
        raise PrivacyError("an event of no queries has no noise to refute")
    least, most = 0, _index(_MOST_NOISE)
    while event.count * accounting.largest_loss(member(least)) > _MOST_LOSS:
        least += 1
    if not refutes(curve(most)):
        return None
    stated = min(max(_index(event.noise_multiplier), least), most)
    curve(stated)
    known = sorted(index for index in curves if index >= least)
    first = bisect_left(known, True, key=lambda index: refutes(curves[index]))
    low, high = known[first - 1] if first else least - 1, known[first]  # not refuted, or below the grid; refuted
    before, last = (low, high) if low >= least and high < most else (None, high if high < most else low)
    for tries in count(1):
        if high - low == 1:
            break
        guess = None
        if excess is not None and (tries < _SECANTS or tries % 2):
            guess = _secant(last, excess(curve(last)), before, math.nan if before is None else excess(curve(before)))
        before, last = last, (low + high) // 2 if guess is None else min(max(guess, low + 1), high - 1)
        low, high = (low, last) if refutes(curve(last)) else (last, high)
    return member(high).noise_multiplier, high == least


def _secant(last: int, excess: float, before: int | None, excess_before: float) -> int | None:
    """Return the index at which the excess should be 0: log μ falls with log σ' as between the last two points, or with slope -1."""
    slope = -math.log(_STEP)
    if before is not None and before != last and math.isfinite(excess_before):
        slope = (excess - excess_before) / (last - before)
    return math.floor(last - excess / slope) if math.isfinite(excess) and slope < 0 else None


def _index(noise_multiplier: float) -> int:
    return int(np.log(noise_multiplier / _LEAST_NOISE) / np.log(_STEP))


def refuted_noise_bound(
    method: Method,
    event: Event,
    refutes: Callable[[Curve], bool],
    excess: Callable[[Curve], float] | None = None,
    *,
    delta: float,
    confidence: float,
    grid: Grid | None = None,
) -> Bound:
    """Bound ε by that of the least noise that `refutes` rules out, other things being as in `event`; discrete noise needs its grid."""
    if event.discrete and grid is None:
        raise PrivacyError("the ε of discrete noise depends on its grid; give grid=Grid.of(mechanism)")
    noise, capped = least_noise_refuted(event, refutes, excess) or (None, False)
    return Bound(
        epsilon=0.0 if noise is None else _epsilon(replace(event, noise_multiplier=noise), delta, grid),
        method=method,
        confidence=confidence,
        delta=delta,
        noise_multiplier=noise,
        capped=capped,
    )


def _epsilon(event: Event, delta: float, grid: Grid | None) -> float:
    if event.discrete:
        assert grid is not None
        return least_epsilon(event, grid, delta)
    return accounting.epsilon([event], delta=delta)


def tradeoff_bound(
    outcomes: Outcomes, event: Event, *, delta: float, confidence: float, grid: Grid | None = None
) -> Bound:
    """Bound ε, given that the mechanism is `event` with some noise multiplier, which need not be the stated one.

    No noise at or above the bound's allows error rates as low as these: at the upper false alarm rate, its curve is above the
    upper miss rate. Tighter than `clopper_pearson_bound`, which allows any mechanism. Discrete noise needs its grid.
    """
    check_terms(delta, confidence, positive=True)
    alarm, miss = upper_rates(outcomes, confidence)
    wanted = _log(gaussian_mu(alarm, miss))
    bound = refuted_noise_bound(
        "tradeoff",
        event,
        lambda curve: miss < curve(alarm),
        lambda curve: _log(gaussian_mu(alarm, curve(alarm))) - wanted,
        delta=delta,
        confidence=confidence,
        grid=grid,
    )
    return replace(bound, false_alarm_rate=alarm, miss_rate=miss)


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf
