"""Privacy loss distributions of one query: those of dp-accounting, with arrays instead of a Python loop.

dp-accounting inverts the privacy loss cell by cell, which is most of the time that an ε takes. The formulas here are the
same, for all cells at once, and everything else (what a cell holds, how its rounding is made an upper bound, composition)
is dp-accounting's. The latest distributions are cached: ε along a run composes the same one, only more often.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from dp_accounting.pld.pld_pmf import PLDPmf, create_pmf_pessimistic_connect_dots_fixed_gap
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution, identity
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss
from jaxtyping import Float64

from tacit.privacy.event import Case

_Cells = Float64[np.ndarray, "cells"]


def composed_epsilon(
    queries: Sequence[tuple[tuple[Case, ...], int]], delta: float, adjacency: str, interval: float
) -> float:
    """Return ε of all queries together; each entry is one case, or several of which any may be true, and the number of queries."""
    whole = identity(value_discretization_interval=interval)
    for cases, count in queries:
        whole = whole.compose(query_losses(cases, interval, adjacency).self_compose(count))
    return float(whole.get_epsilon_for_delta(delta))


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
