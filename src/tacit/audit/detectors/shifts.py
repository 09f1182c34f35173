"""Noise held against other noise at every lag and every shift along an axis, by one Fourier transform for each pair.

S(d, s) = Σ x[t, i]·y[t + d, i + s] over all n places where both exist. For independent standard normals S is a quadratic form
whose matrix has Frobenius norm √(n/2) and spectral norm at most 1, so P(|S| ≥ √(2nt) + 2t) ≤ 2e^(-t) (Laurent & Massart 2000).
The same holds for x against itself at any lag or shift but none. Nothing is approximated, however short the vectors.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.fft import irfft2, next_fast_len, rfft2

Noise = Float[np.ndarray, "times width"]


@dataclass(frozen=True)
class Shifted:
    """The least probable of all lags and shifts, and how many there are. The p-value is multiplied by that number."""

    p_value: float
    lag: int
    shift: int
    correlation: float


def closest_shift(one: Noise, other: Noise | None = None) -> Shifted:
    """Return where two noises, or one and itself, go together most."""
    first, second = one, one if other is None else other
    times, width = (max(first.shape[axis], second.shape[axis]) for axis in (0, 1))
    shape = tuple(next_fast_len(2 * length, real=True) for length in (times, width))
    product = np.conj(rfft2(first, shape)) * rfft2(second, shape)
    sums = irfft2(product, shape)
    lags, shifts = (np.arange(1 - length, length) for length in (times, width))
    sums = sums[np.ix_(lags, shifts)]  # a negative lag counts from the end, as it should
    counts = np.outer(_overlaps(len(first), len(second), lags), _overlaps(first.shape[1], second.shape[1], shifts))
    valid = counts > 0
    if other is None:  # every pair is there twice, and everything goes with itself
        valid &= (lags[:, None] > 0) | ((lags[:, None] == 0) & (shifts > 0))
    if not valid.any():
        return Shifted(1.0, 0, 0, 0.0)
    exponent = np.where(valid, _exponent(np.abs(sums), np.maximum(counts, 1)), -1.0)
    place = np.unravel_index(int(exponent.argmax()), exponent.shape)
    tests = int(valid.sum())
    worst = math.log(2 * tests) - float(exponent[place])
    return Shifted(
        min(1.0, math.exp(min(worst, 0.0))),
        int(lags[place[0]]),
        int(shifts[place[1]]),
        float(sums[place] / counts[place]),
    )


def _overlaps(first: int, second: int, lags: np.ndarray) -> np.ndarray:
    """Count the places i with i < first and 0 ≤ i + lag < second."""
    return np.maximum(np.minimum(first, second - lags) - np.maximum(0, -lags), 0)


def _exponent(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Solve √(2nt) + 2t = |S| for t."""
    root = (np.sqrt(2 * counts + 8 * sums) - np.sqrt(2 * counts)) / 4
    return np.asarray(root**2)
