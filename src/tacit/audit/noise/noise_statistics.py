"""Tests of recovered noise and lots against what is stated.

For normal noise the p-values are exact, by χ², Fisher's F and the Kolmogorov-Smirnov distribution, or slightly too large
(`lag`, `agents`, `repeats`). That of `shifts` is a bound for quadratic forms (`find_shift`); those of lots, `rate` and `lots`, are
Chernoff bounds (`lot_statistics`): never too small, however few records are drawn.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
from jaxtyping import Float
from scipy.fft import irfft2, next_fast_len, rfft2
from scipy.spatial import cKDTree
from scipy.stats import chi2, f, kstest, norm
from torch import Tensor

from tacit.audit.noise.lot_statistics import Draws, rate_interval, rate_p_value, spread_p_value
from tacit.audit.noise.report import Estimate, NoiseTest
from tacit.ties import first_largest

_TINY = 1e-300  # in place of a sum of squares that is 0
_LEAST_NOISE = 1e-9  # in place of no noise


@dataclass(frozen=True, kw_only=True, eq=False)
class RecoveredNoise:
    """One agent's recovered answers, in clipping norms.

    bare: along axes without records, in units of the stated σ; standard normal if all is as stated. With masks it is what the other
        agents' noise leaves of it.
    apart: the same, made independent of the other agents' by the stated covariance; `bare` itself without masks.
    drawn: along the records' sum, Σ pulls of those drawn + noise of standard deviation `drawn_sigma`, which includes masks.
    pulls: what each record adds there.
    rounding: how far at most each value of `bare` is from the noise that was drawn.
    """

    agent: int
    bare: Float[Tensor, "trials queries axes"]
    apart: Float[Tensor, "trials queries axes"]
    drawn: Float[Tensor, "trials queries"]
    pulls: Float[Tensor, " records"]
    rate: float
    sigma: float
    drawn_sigma: float
    rounding: float


def check_agent(noise: RecoveredNoise) -> list[NoiseTest]:
    """Test one agent alone; how lots vary is tested only where all records pull equally."""
    # What recurs is looked for in `apart`: little of a mask is left in `bare`.
    bare, apart, drawn = noise.bare.numpy(), noise.apart.numpy(), _draws(noise)
    values = {
        "sigma": size_p_value(bare),
        "shape": float(kstest(bare.ravel(), "norm").pvalue),
        "tail": tail_p_value(bare),
        "lag": _lag(apart),
        "rounds": _common(np.moveaxis(apart, 1, 0)),
        "trials": _common(apart),
        "shifts": find_shift(_over_time(noise)).p_value,
        "rate": rate_p_value(drawn, noise.rate, noise.drawn_sigma),
    }
    if drawn.alike:
        values["lots"] = spread_p_value(drawn, noise.rate, noise.drawn_sigma)
    return [NoiseTest(name=name, agents=(noise.agent,), p_value=value) for name, value in values.items()]


def check_between_agents(noises: Sequence[RecoveredNoise]) -> list[NoiseTest]:
    """Test every two agents, and all of them together for noise that occurs twice."""
    tests = []
    for one, other in combinations(noises, 2):
        values = {
            "agents": _normal(_correlation(*_shared(one, other))),
            "shifts": find_shift(_over_time(one), _over_time(other)).p_value,
        }
        tests += [NoiseTest(name=name, agents=(one.agent, other.agent), p_value=p) for name, p in values.items()]
    return [*tests, NoiseTest(name="repeats", agents=tuple(each.agent for each in noises), p_value=_repeats(noises))]


def check_sum(total: Float[Tensor, "trials queries axes"], agents: Sequence[int]) -> list[NoiseTest]:
    """Test the sum of all agents' noise, in units of its stated size: masks cancel in it, and own noise is left."""
    return [NoiseTest(name="sum", agents=tuple(agents), p_value=size_p_value(total.numpy()))]


def estimate_sigma(noise: RecoveredNoise, risk: float) -> Estimate:
    """Return σ with its χ² interval, wrong with probability `risk`."""
    total, count = float(noise.bare.square().sum()), noise.bare.numel()
    low, high = (noise.sigma * math.sqrt(total / quantile) for quantile in chi2(count).ppf([1 - risk / 2, risk / 2]))
    return Estimate(stated=noise.sigma, estimate=noise.sigma * math.sqrt(total / count), low=low, high=high)


def estimate_rate(noise: RecoveredNoise, risk: float) -> Estimate:
    """Return q by least squares of the answers on the records' sum, with an interval of all q that are not refuted.

    σ is taken at the upper end of its own interval; if that one is right, this one is wrong with probability `risk`.
    """
    drawn = _draws(noise)
    sigma = estimate_sigma(noise, risk).high * noise.drawn_sigma / noise.sigma
    low, high = rate_interval(drawn, max(sigma, _LEAST_NOISE), risk)
    return Estimate(stated=noise.rate, estimate=drawn.rate, low=low, high=high)


def _over_time(noise: RecoveredNoise) -> Float[np.ndarray, "times axes"]:
    """Return the noise of all runs, one after another."""
    return noise.apart.flatten(0, 1).numpy()


def _draws(noise: RecoveredNoise) -> Draws:
    return Draws(answers=noise.drawn.numpy().ravel(), pulls=noise.pulls.numpy())


def size_p_value(bare: Float[np.ndarray, "..."]) -> float:
    """Test the variance of standard normal noise, by χ²."""
    law, squares = chi2(bare.size), float(np.sum(bare**2))
    return _two_sided(float(law.cdf(squares)), float(law.sf(squares)))


def tail_p_value(bare: Float[np.ndarray, "..."]) -> float:
    """Test the largest absolute value of standard normal noise, which is too small where noise is truncated."""
    log_below = bare.size * np.log1p(-min(2 * norm.sf(np.abs(bare).max()), 1 - 1e-16))
    return _two_sided(float(np.exp(log_below)), float(-np.expm1(log_below)))


def _lag(bare: Float[np.ndarray, "trials queries axes"]) -> float:
    """Sum the correlations of each round's noise with the round before; given the past, every term has mean 0."""
    rounds = np.moveaxis(bare, 1, 0).reshape(bare.shape[1], -1)
    scores = [_correlation(one, other) for one, other in pairwise(rounds)]
    return _normal(sum(scores) / math.sqrt(len(scores)))


def _common(repeated: Float[np.ndarray, "times ..."]) -> float:
    """Compare the noise that recurs with the noise that does not: variance between groups and within, Fisher's F."""
    times, groups = len(repeated), repeated[0].size
    between = times * float(np.sum(repeated.mean(axis=0) ** 2))
    within = max(float(np.sum(repeated**2)) - between, _TINY)
    law, ratio = f(groups, groups * (times - 1)), between * (times - 1) / within
    return _two_sided(float(law.cdf(ratio)), float(law.sf(ratio)))


def _repeats(noises: Sequence[RecoveredNoise]) -> float:
    """Bound the probability that any two answers have noise as close as the two closest; rounding may have moved them together.

    With a single axis it shows nothing.
    """
    axes = min(noise.apart.shape[2] for noise in noises)
    points = np.concatenate([noise.apart[:, :, :axes].flatten(0, 1).numpy() for noise in noises])
    distances, _ = cKDTree(points).query(points, k=[2])  # the first is the point itself
    nearest = float(np.min(distances)) + 2 * math.sqrt(axes) * max(noise.rounding for noise in noises)
    return min(1.0, math.comb(len(points), 2) * float(chi2(axes).cdf(nearest**2 / 2)))


def _shared(one: RecoveredNoise, other: RecoveredNoise) -> tuple[np.ndarray, np.ndarray]:
    axes = min(one.apart.shape[2], other.apart.shape[2])
    return one.apart[:, :, :axes].numpy().ravel(), other.apart[:, :, :axes].numpy().ravel()


def _correlation(one: Float[np.ndarray, " n"], other: Float[np.ndarray, " n"]) -> float:
    """Return √n·cos of the angle between two noises: it has variance 1 and lighter tails than the normal."""
    return float(math.sqrt(one.size) * (one @ other) / max(np.linalg.norm(one) * np.linalg.norm(other), _TINY))


def _normal(score: float) -> float:
    return float(2 * norm.sf(abs(score)))


def _two_sided(below: float, above: float) -> float:
    return min(1.0, 2 * min(below, above))


@dataclass(frozen=True)
class Shifted:
    """The least probable of all lags and shifts. The p-value is multiplied by their number."""

    p_value: float
    lag: int
    shift: int
    correlation: float


def find_shift(one: Float[np.ndarray, "times width"], other: Float[np.ndarray, "times width"] | None = None) -> Shifted:
    """Return where two noises, or one and itself, are correlated most significantly, by one Fourier transform for each pair.

    S(d, s) = Σ x[t, i]·y[t + d, i + s] over all n indices where both exist. For independent standard normals S is a quadratic form
    whose matrix has Frobenius norm √(n/2) and spectral norm at most 1, so P(|S| ≥ √(2nt) + 2t) ≤ 2e^(-t) (Laurent & Massart 2000).
    The same holds for x with itself at any lag or shift other than none. Nothing is approximated, however short the vectors.
    """
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
    best = np.unravel_index(first_largest(exponent.ravel(), scale=1.0), exponent.shape)
    p_value = math.exp(min(math.log(2 * int(valid.sum())) - float(exponent.max()), 0.0))
    return Shifted(p_value, int(lags[best[0]]), int(shifts[best[1]]), float(sums[best] / counts[best]))


def _overlaps(first: int, second: int, lags: np.ndarray) -> np.ndarray:
    """Count the indices i with 0 ≤ i < first and 0 ≤ i + lag < second."""
    return np.maximum(np.minimum(first, second - lags) - np.maximum(0, -lags), 0)


def _exponent(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Solve √(2nt) + 2t = |S| for t."""
    root = (np.sqrt(2 * counts + 8 * sums) - np.sqrt(2 * counts)) / 4
    return np.asarray(root**2)
