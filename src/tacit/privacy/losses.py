"""Privacy loss distributions of one query and of many: those of dp-accounting, with arrays instead of Python loops.

dp-accounting inverts the privacy loss cell by cell, looks for ε cell by cell, and bounds the tails of a composition order by order, which is
most of the time that an ε takes. The formulas here are the same, for all cells at once, and everything else (what a cell holds, how its
rounding is made an upper bound) is dp-accounting's. The latest distributions are cached: ε along a run composes the same one, only more often.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from dp_accounting.pld.pld_pmf import DensePLDPmf, PLDPmf, create_pmf_pessimistic_connect_dots_fixed_gap
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution, identity
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss
from jaxtyping import Float64
from scipy import fft

from tacit.privacy.event import Case

_Cells = Float64[np.ndarray, "cells"]
_SPARSE = 1000  # up to so many cells dp-accounting composes them one by one
_TAILS = 1e-15  # what the tails that a composition leaves out may hold; it is added to what is lost without bound
_ORDERS = 20  # of moments on either side, by which these tails are bounded


def composed_epsilon(
    queries: Sequence[tuple[tuple[Case, ...], int]], delta: float, adjacency: str, interval: float
) -> float:
    """Return ε of all queries together; each entry is one case, or several of which any may be true, and the number of queries."""
    whole = identity(value_discretization_interval=interval)
    for cases, count in queries:
        sides = [_composed(pmf, count) for pmf in _sides(query_losses(cases, interval, adjacency))]
        whole = whole.compose(PrivacyLossDistribution(*sides))
    return max(_epsilon_of(pmf, delta) for pmf in _sides(whole))


def _sides(losses: PrivacyLossDistribution) -> list[PLDPmf]:
    """Return what is lost when a record is removed and, if that is something else, when it is added."""
    return [losses._pmf_remove] if losses._symmetric else [losses._pmf_remove, losses._pmf_add]


def _composed(pmf: PLDPmf, count: int) -> PLDPmf:
    """Return the distribution of so many queries, as `pmf.self_compose` does."""
    if not isinstance(pmf, DensePLDPmf) and (count == 1 or pmf.size**count <= _SPARSE):
        return pmf.self_compose(count)
    dense = pmf.to_dense_pmf()
    low, high = _kept_cells(dense._probs, count)
    size = fft.next_fast_len(max(high - low + 1, dense.size))
    probs = np.real(fft.ifft(fft.fft(dense._probs, size) ** count))
    unbounded = _TAILS - math.expm1(count * math.log1p(-dense._infinity_mass))
    kept = np.roll(probs, -low)[: high - low + 1]
    return DensePLDPmf(dense._discretization, dense._lower_loss * count + low, kept, unbounded, True)


def _kept_cells(probs: _Cells, count: int) -> tuple[int, int]:
    """Return the first and last cell of a composition that are kept, by Chernoff's bound on its tails.

    The moments are of orders ±1/n to ±20/n for n cells, so that of a cell is the power of its moment of the first order.
    """
    low, high = 0, (len(probs) - 1) * count
    first = np.exp(np.arange(len(probs)) / len(probs))
    for sign, step in ((1, first), (-1, 1 / first)):
        weighted = probs
        for order in range(1, _ORDERS + 1):
            weighted = weighted * step
            if not weighted.any():
                break
            bound = (count * math.log(weighted.sum()) + math.log(2 / _TAILS)) / (sign * order / len(probs))
            if sign > 0:
                high = min(high, math.ceil(bound))
            else:
                low = max(low, math.floor(bound))
    return low, high


def _epsilon_of(pmf: PLDPmf, delta: float) -> float:
    """Return ε as `pmf.get_epsilon_for_delta` does: masses are added up from the largest loss on, as far as where δ is reached."""
    if not isinstance(pmf, DensePLDPmf) or pmf._infinity_mass > delta:
        return float(pmf.get_epsilon_for_delta(delta))
    positive = min(pmf.size, max(0, pmf._lower_loss + pmf.size - 1))  # the others make no ε
    probs = np.flip(pmf._probs)[:positive]
    losses = (pmf._lower_loss + pmf.size - 1 - np.arange(positive)) * pmf._discretization
    upper = np.append(pmf._infinity_mass, probs).cumsum()
    lower = np.append(0.0, np.exp(-losses) * probs).cumsum()
    if upper[lower == 0].max() >= delta:  # there are losses so large that e to the minus loss is zero
        return float(pmf.get_epsilon_for_delta(delta))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        found = np.log((upper - delta) / lower)
    reached = np.flatnonzero((upper[:-1] > delta) & (found[:-1] >= losses))
    last = reached[0] if len(reached) else positive
    return 0.0 if upper[last] <= lower[last] + delta else float(found[last])


@lru_cache(maxsize=32)  # of up to 2 MB each
def query_losses(cases: tuple[Case, ...], interval: float, adjacency: str) -> PrivacyLossDistribution:
    """Return the distribution of one query of a Poisson lot under Gaussian noise, on a grid of losses.

    For several cases, its δ at every ε is the largest of theirs.
    """
    if adjacency == "replace_one":
        return PrivacyLossDistribution(_losses(cases, interval, AdjacencyType.REPLACE))
    removed = _losses(cases, interval, AdjacencyType.REMOVE)
    if all(rate == 1 for rate, _ in cases):
        return PrivacyLossDistribution(removed)
    return PrivacyLossDistribution(removed, _losses(cases, interval, AdjacencyType.ADD))


def _losses(cases: tuple[Case, ...], interval: float, kind: AdjacencyType) -> PLDPmf:
    mechanisms = [GaussianPrivacyLoss(sigma, sampling_prob=rate, adjacency_type=kind) for rate, sigma in cases]
    bounds = [mechanism.connect_dots_bounds() for mechanism in mechanisms]
    low = math.floor(min(bound.epsilon_lower for bound in bounds) / interval)
    high = math.ceil(max(bound.epsilon_upper for bound in bounds) / interval)
    epsilons = np.arange(low, high + 1) * interval
    deltas = np.max([_divergences(mechanism, epsilons) for mechanism in mechanisms], axis=0)
    return create_pmf_pessimistic_connect_dots_fixed_gap(interval, low, high, deltas)


def _divergences(mechanism: GaussianPrivacyLoss, epsilons: _Cells) -> _Cells:
    """Return δ of one query at each ε, as `mechanism.get_delta_for_epsilon` does."""
    rate, kind = mechanism.sampling_prob, mechanism.adjacency_type
    deltas = np.zeros_like(epsilons)
    reached = np.full(len(epsilons), True)
    if rate < 1 and kind == AdjacencyType.ADD:
        reached = epsilons < -math.log1p(-rate)
    elif rate < 1 and kind == AdjacencyType.REMOVE:
        reached = epsilons > math.log1p(-rate)
        deltas[~reached] = -np.expm1(epsilons[~reached])
    asked = epsilons[reached]
    places = _inverse_losses(mechanism, asked)
    deltas[reached] = mechanism.mu_upper_cdf(places) - np.exp(asked + mechanism.mu_lower_log_cdf(places))
    return np.clip(deltas, 0, 1)


def _inverse_losses(mechanism: GaussianPrivacyLoss, losses: _Cells) -> _Cells:
    """Return the largest answer whose loss is at least this large, as `inverse_privacy_loss` does."""
    rate, variance, kind = mechanism.sampling_prob, mechanism.standard_deviation**2, mechanism.adjacency_type
    if kind == AdjacencyType.REPLACE:
        return variance * (_reflected(losses, rate, variance) - losses / 2)
    sign = 1 if kind == AdjacencyType.REMOVE else -1
    whole = losses
    if rate < 1:  # the loss without sampling: ±log(1 + (exp(±loss) - 1)/q)
        with np.errstate(invalid="ignore", divide="ignore"):
            whole = sign * losses + math.log(1 / rate)
            whole = whole + np.log1p(-np.exp(math.log(1 / rate - 1) - whole))
        whole[losses == 0] = 0.0
        edge = math.log(1 - rate)
        whole[np.abs(sign * losses - edge) <= 1e-9 * np.maximum(np.abs(losses), -edge)] = -math.inf
        whole = sign * whole
    removed = -0.5 - whole * variance
    return 1 + removed if kind == AdjacencyType.ADD else removed


def _reflected(losses: _Cells, rate: float, variance: float) -> _Cells:
    """Return arcsinh(-sinh(loss/2)·exp(1/2σ²)·(1 - q)/q), in logarithms."""
    if rate == 1:
        return np.zeros_like(losses)
    half, factor = np.abs(losses) / 2, 0.5 / variance + math.log1p(-rate) - math.log(rate)
    with np.errstate(divide="ignore"):
        scaled = factor + (half + np.log1p(-np.exp(-2 * half)) - math.log(2))
    return -np.sign(losses) * np.logaddexp(0.5 * np.logaddexp(0, 2 * scaled), scaled)
