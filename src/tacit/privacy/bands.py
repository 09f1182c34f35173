"""Noise that is correlated over queries (banded matrix factorisation): its coefficients, its event, and whether it pays.

Without it every answer has fresh noise, y = S + Z. With b bands the answers of an agent are y = S + C⁻¹Z, where S are the clipped sums,
Z is fresh noise, and C is a lower triangular Toeplitz matrix whose first column c has b entries and a norm of at most 1. A model is a sum of
answers over rounds, and in such sums noise partly cancels.

**Privacy.** C is invertible, so y says as much as Cy = CS + Z: Gaussian answers to the queries Σ c_k S_{t-k}. Records are divided into b groups that take
turns: a lot in query t is drawn from group t mod b alone, each of its records independently with probability b·q. A record that is in the lot of
query j moves the b queries from j on, by at most C·‖c‖ ≤ C together, and its group's next turn comes after these. So its
turns are separate Gaussian queries with noise σ, of which ⌈T/b⌉ come in T queries, each with sampling rate b·q. Other code cites this as Theorem 4 of Choquette-Choo, Ganesh,
McKenna, McMahan, Rush, Thakurta and Xu, *(Amplified) Banded Matrix Factorization: A unified approach to private training* (NeurIPS 2023); docs/bands.md
compares it with other implementations. It holds for any fixed division into groups, also a public one, and under
add-or-remove-one adjacency: a replaced record could change its group.

With masks, own noise and masks are both correlated in this way: their covariance over agents and queries is a Kronecker product, and σ
against an observer is that of the agents' part.

Where bands start again from nothing, C is block diagonal: its columns are no longer than before, so the same event covers it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float

from tacit.errors import PrivacyError
from tacit.privacy.turns import MOST_BANDS, ROOM, turns_of
from tacit.ties import first_smallest

_LEAST_GAIN = 0.02  # of the error of sums: for less, answers that are correlated are not worth it
_STEPS = (1e-3, 1.0)  # c_k/c_{k-1}: with coefficients that do not grow, C⁻¹ is bounded (Eneström and Kakeya)


@lru_cache(maxsize=256)
def coefficients(bands: int, queries: int) -> tuple[float, ...]:
    """Return the first column of C with the least error of sums over this many queries, slightly shorter than 1.

    The best of all Toeplitz matrices with this many bands whose coefficients do not grow.
    """
    if type(bands) is not int or not 2 <= bands <= MOST_BANDS:
        raise PrivacyError(f"bands is {bands!r}; it must be a whole number from 2 to {MOST_BANDS}")
    from scipy.optimize import minimize

    # Those of the square root of the matrix of sums, which is the best without a limit on bands (Fichtenberger et al., 2023).
    start = [(2 * place - 1) / (2 * place) for place in range(1, bands)]
    found = minimize(_log_error, start, args=(queries,), jac=True, method="L-BFGS-B", bounds=[_STEPS] * (bands - 1))
    column = np.cumprod([1.0, *found.x])
    column *= (1 - 2 * ROOM) / np.linalg.norm(column)
    return tuple(_floor_digits(each) for each in column.tolist())


def _floor_digits(coefficient: float) -> float:
    """Round down to five digits: a column is never longer for it, and processors whose search ends at slightly different numbers settle the same plan."""
    scale = 10.0 ** (4 - math.floor(math.log10(coefficient)))
    return math.floor(coefficient * scale) / scale


def _log_error(steps: Float[np.ndarray, " steps"], queries: int) -> tuple[float, Float[np.ndarray, " steps"]]:
    """Return log(Σ_t Σ_{k≤t} r_k² · ‖c‖²), r the coefficients of 1/((1-x)·c(x)), and its derivative by the ratios of coefficients."""
    from scipy.signal import lfilter

    column = np.cumprod([1.0, *steps])
    sums, weights = _sums(column, queries), np.arange(queries, 0, -1.0)
    again = lfilter([1.0], column, sums)
    error, square = float(weights @ sums**2), float(column @ column)
    slopes = np.array(
        [
            -2 * float((weights[lag:] * sums[lag:]) @ again[: max(0, queries - lag)]) / error + 2 * column[lag] / square
            for lag in range(1, len(column))
        ]
    )
    by_step = np.cumsum((slopes * column[1:])[::-1])[::-1] / steps
    return math.log(error * square), by_step


def _sums(column: Float[np.ndarray, " bands"], queries: int) -> Float[np.ndarray, " queries"]:
    """Return what one unit of noise adds to the sum of all answers so far, after each query."""
    from scipy.signal import lfilter

    impulse = np.zeros(queries)
    impulse[0] = 1.0
    return np.cumsum(lfilter([1.0], column, impulse))


def prefix_error(column: Sequence[float], queries: int) -> float:
    """Return the root mean square, over all queries, of the noise in the sum of the answers so far, for noise Z of deviation 1."""
    sums = _sums(np.asarray(column, dtype=np.float64), queries)
    return math.sqrt(float(np.arange(queries, 0, -1.0) @ sums**2) / queries)


def check_rounding(bands: int, records: float) -> None:
    """Refuse bands and records with which float64 may round Σ c_k S_{t-k} by more than there is room for.

    A sum of up to R clipped vectors has a norm of at most R·C. Each Σ c_k S_{t-k} is off by at most (b + 1)·2⁻⁵³·√b·R·C, for both of two
    neighbouring data sets, and b of them contain a record: together at most (b + 1)·b·2⁻⁵²·R·C. An agent holds at most R = 2n + 1000 records
    (the oracle refuses more).
    """
    if 1.01 * (bands + 1) * bands * (2 * records + 1000) * 2.0**-52 > ROOM:
        raise PrivacyError(
            f"with {bands} bands and {records:.0f} records sums cannot be rounded well enough; use fewer bands"
        )


@dataclass(frozen=True, kw_only=True)
class BandChoice:
    """A number of bands at the wanted ε.

    sigma: the noise Z needs, in clipping norms.
    error: the noise in the sum of the answers so far, as a root mean square over all queries, relative to independent noise.
    """

    bands: int
    sigma: float
    rate: float
    turns: int
    error: float


def compare_bands(
    calibrate: Callable[[float, int], float], rate: float, queries: int, numbers: Sequence[int] | None = None
) -> list[BandChoice]:
    """Compare numbers of bands at one ε: 1 first, then each of `numbers`, or the powers of two that rate and queries allow.

    `calibrate(rate, count)` returns the σ that this many queries at that rate need.
    """
    allowed = [2**power for power in range(1, 8) if 2**power * rate <= 1 and 2**power <= queries]
    alone = calibrate(rate, queries)
    found = [BandChoice(bands=1, sigma=alone, rate=rate, turns=queries, error=1.0)]
    base = alone * prefix_error([1.0], queries)
    for bands in allowed if numbers is None else numbers:
        check_rate(bands, rate)
        turns = turns_of(queries, bands)
        sigma = calibrate(bands * rate, turns)
        error = sigma * prefix_error(coefficients(bands, queries), queries) / base
        found.append(BandChoice(bands=bands, sigma=sigma, rate=bands * rate, turns=turns, error=error))
    return found


def best_bands(compared: Sequence[BandChoice]) -> int:
    """Return the number of bands with the least error; 1 where none is clearly better than independent noise."""
    best = compared[first_smallest(each.error for each in compared)]
    return best.bands if best.error <= 1 - _LEAST_GAIN else 1


def check_rate(bands: int, rate: float) -> None:
    """Refuse more bands than the sampling rate allows: a group of records is sampled at b times the rate."""
    if bands * rate > 1:
        raise PrivacyError(
            f"with {bands} bands a group's records would be in a lot with probability {bands * rate:.3g}; it cannot be above 1. Use "
            f"at most {int(1 / rate)} bands, or smaller lots"
        )
