"""Noise correlated with other noise at every lag and every shift along an axis, by one Fourier transform for each pair.

S(d, s) = Σ x[t, i]·y[t + d, i + s] over all n indices where both exist. For independent standard normals S is a quadratic form
whose matrix has Frobenius norm √(n/2) and spectral norm at most 1, so P(|S| ≥ √(2nt) + 2t) ≤ 2e^(-t) (Laurent & Massart 2000).
The same holds for x with itself at any lag or shift other than none. Nothing is approximated, however short the vectors.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.fft import irfft2, next_fast_len, rfft2


@dataclass(frozen=True)
class Shifted:
    """The least probable of all lags and shifts. The p-value is multiplied by their number."""

    p_value: float
    lag: int
    shift: int
    correlation: float


def find_shift(one: Float[np.ndarray, "times width"], other: Float[np.ndarray, "times width"] | None = None) -> Shifted:
    """Return where two noises, or one and itself, are correlated most significantly."""
    first, second = one, one if other is None else other
    times, width = (max(first.shape[axis], second.shape[axis]) for axis in (0, 1))
    shape = tuple(next_fast_len(2 * length, real=True) for length in (times, width))
    product = np.conj(rfft2(first, shape)) * rfft2(second, shape)
    sums = irfft2(product, shape)
    lags, shifts = (np.arange(1 - length, length) for length in (times, width))
    sums = sums[np.ix_(lags, shifts)]  # negative lags wrap around
    counts = np.outer(_overlaps(len(first), len(second), lags), _overlaps(first.shape[1], second.shape[1], shifts))
    valid = counts > 0
    if other is None:  # every pair occurs twice, and lag 0 with shift 0 is the noise itself
        valid &= (lags[:, None] > 0) | ((lags[:, None] == 0) & (shifts > 0))
    if not valid.any():
        return Shifted(1.0, 0, 0, 0.0)
    exponent = np.where(valid, _exponent(np.abs(sums), np.maximum(counts, 1)), -1.0)
    best = np.unravel_index(int(exponent.argmax()), exponent.shape)
    p_value = math.exp(min(math.log(2 * int(valid.sum())) - float(exponent[best]), 0.0))
    return Shifted(p_value, int(lags[best[0]]), int(shifts[best[1]]), float(sums[best] / counts[best]))


def _overlaps(first: int, second: int, lags: np.ndarray) -> np.ndarray:
    """Count the indices i with 0 ≤ i < first and 0 ≤ i + lag < second."""
    return np.maximum(np.minimum(first, second - lags) - np.maximum(0, -lags), 0)


def _exponent(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Solve √(2nt) + 2t = |S| for t."""
    root = (np.sqrt(2 * counts + 8 * sums) - np.sqrt(2 * counts)) / 4
    return np.asarray(root**2)
