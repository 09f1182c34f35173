"""Trade-off curves, and the bound by refuting those of the accountant's own mechanism.

A trade-off curve f gives, for a rate of false alarms, the least rate of misses that any attack can have. The family
here is one `Event` with its noise multiplier varied. More noise lifts the curve, so an attack that does better than
the curve of σ' refutes σ' and all noise above it; the bound is ε of the least noise refuted.

Directions: the accountant's δ(ε) is an upper bound, so the curve drawn from it lies on or below the true one, and
finitely many of its lines lie lower still. What is refuted here is therefore refuted for the true curve. The last
step, ε of σ', is the accountant's as well and may exceed the true ε by its numeric error, about a hundredth of a percent.
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

from tacit.audit.bounds.rates import Bound, Outcomes, check, upper_rates
from tacit.errors import PrivacyError
from tacit.privacy import accounting
from tacit.privacy.accounting import Event

Curve = Callable[[float], float]

# The noise multipliers tried: a geometric grid, so that curves are shared between bounds. Its step costs the bound
# about a thousandth. Below the least noise, or where all queries together could lose more than the most, a curve is
# too costly to draw and ε is far past any use.
_STEP = 1.001
_LEAST_NOISE, _MOST_NOISE = 0.25, 1e6
_MOST_LOSS = 2.0**19
# Cells of this share of ε lower a curve by about 1e-5.
_CELL, _LARGEST_CELL = 4e-4, 2.0**-7
_LINES, _STEEPEST = 500, 300.0
_SECANTS = 8  # tries before every other one halves what is left


def gaussian_curve(mu: float) -> Curve:
    """Return f(α) = Φ(Φ⁻¹(1 - α) - μ), the curve of Gaussian DP."""
    return lambda alarm: float(ndtr(-ndtri(alarm) - mu))


@lru_cache(maxsize=1024)
def event_curve(event: Event) -> Curve:
    """Return a curve on or below that of `event`, the same for adding and removing the record.

    Each ε with its δ(ε) gives two lines that no attack can pass, 1 - δ - e^ε·α and e^-ε·(1 - δ - α); δ(ε) is the
    larger of the two directions', so both lines hold for both.
    """
    span = max(accounting._rough([event], 1e-9), 2 * accounting._largest_loss(event))
    ledger = pld.PLDAccountant(value_discretization_interval=min(span * _CELL, _LARGEST_CELL))
    with accounting._quiet():
        ledger.compose(accounting._dp_event(event), event.count)
        epsilons = min(span, _STEEPEST) * np.linspace(0, 1, _LINES) ** 2
        deltas = np.asarray(ledger.get_delta(epsilons))
    slopes = np.concatenate([np.exp(epsilons), np.exp(-epsilons)])
    heights = np.concatenate([1 - deltas, np.exp(-epsilons) * (1 - deltas)])
    return lambda alarm: max(0.0, float(np.max(heights - slopes * alarm)))


@lru_cache(maxsize=64)
def _drawn(sample_rate: float, count: int) -> dict[int, Curve]:
    """Return what was drawn so far of the curves of such queries, by the place of their noise multiplier on the grid."""
    return {}


def least_noise_refuted(
    event: Event, refutes: Callable[[Curve], bool], excess: Callable[[Curve], float] | None = None
) -> tuple[float, bool] | None:
    """Return the least σ' of the grid whose curve is refuted, and whether that is the least of all; None if none is.

    `refutes` must refute every curve that lies above one that it refutes. Curves are costly, so those drawn before are looked at
    first. `excess` may say of a curve by how much its log μ exceeds that of the one looked for: then few have to be drawn.
    """
    drawn = _drawn(event.sample_rate, event.count)

    def member(index: int) -> Event:
        return replace(event, noise_multiplier=_LEAST_NOISE * _STEP**index)

    def curve(index: int) -> Curve:
        if index not in drawn:
            drawn[index] = event_curve(member(index))
        return drawn[index]

    if event.count < 1:
        raise PrivacyError("an event of no queries has no noise to refute")
    least, most = 0, _place(_MOST_NOISE)
    while event.count * accounting._largest_loss(member(least)) > _MOST_LOSS:
        least += 1
    if not refutes(curve(most)):
        return None
    stated = min(max(_place(event.noise_multiplier), least), most)
    curve(stated)
    known = sorted(index for index in drawn if index >= least)
    first = bisect_left(known, True, key=lambda index: refutes(drawn[index]))
    low, high = (
        known[first - 1] if first else least - 1,
        known[first],
    )  # the one not refuted, or not drawn; the other refuted
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
    """Return where the excess should be nought. log μ falls with log σ': as steeply as between the last two, or by one."""
    slope = -math.log(_STEP)
    if before is not None and before != last and math.isfinite(excess_before):
        slope = (excess - excess_before) / (last - before)
    return math.floor(last - excess / slope) if math.isfinite(excess) and slope < 0 else None


def _place(noise_multiplier: float) -> int:
    return int(np.log(noise_multiplier / _LEAST_NOISE) / np.log(_STEP))


def family_epsilon(event: Event, noise_multiplier: float, delta: float) -> float:
    """Return the accountant's ε of `event` with another noise multiplier."""
    return accounting.epsilon([replace(event, noise_multiplier=noise_multiplier)], delta=delta)


def tradeoff_bound(outcomes: Outcomes, event: Event, *, delta: float, confidence: float) -> Bound:
    """Bound ε, given that the mechanism is `event` with some noise multiplier, which need not be the stated one.

    No σ' at or above the bound's can produce such low rates of both errors: f of σ' at the upper false alarm rate
    exceeds the upper miss rate, and f falls. Tighter than `clopper_pearson_bound`, which allows any mechanism.
    """
    check(delta, confidence, positive=True)
    alarm, miss = upper_rates(outcomes, confidence)
    wanted = _strength(alarm, miss)
    found = least_noise_refuted(
        event, lambda curve: miss < curve(alarm), lambda curve: _log(_strength(alarm, curve(alarm))) - _log(wanted)
    )
    noise, capped = found or (None, False)
    return Bound(
        epsilon=0.0 if noise is None else family_epsilon(event, noise, delta),
        method="tradeoff",
        confidence=confidence,
        delta=delta,
        false_alarm_rate=alarm,
        miss_rate=miss,
        noise_multiplier=noise,
        capped=capped,
    )


def _strength(alarm: float, miss: float) -> float:
    """Return the μ of the Gaussian curve that passes through these rates."""
    return -float(ndtri(alarm)) - float(ndtri(miss))


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf
