"""Bounds for discrete Gaussian noise, of which neither the trade-off curve nor the privacy loss distribution is known in many dimensions.

The curve is made from δ(ε) by Rényi divergences of whole orders, which are proven (`tacit.privacy.rounding`). It lies on or below the true one.

When noise is refuted, its ε is bounded from below by that of a record along one axis, which adds C in whole steps of the grid. There the
noise is one-dimensional, and its privacy loss distribution, rounded down, is a lower bound. What an accountant states is an upper bound, which an
audit must not use in its place.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from dp_accounting import pld, rdp
from jaxtyping import Float

from tacit.errors import PrivacyError
from tacit.privacy import accounting
from tacit.privacy.accounting import WHOLE_ORDERS
from tacit.privacy.event import Event
from tacit.privacy.mechanisms import Mechanism
from tacit.privacy.noise_kinds import DiscreteGaussian

_LOST, _LARGEST_CELL = 0.004, 2.0**-7  # share of ε that rounding losses down may take from it


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The grid of discrete noise: the whole steps in the clipping norm, and the largest length of a rounded vector, in steps."""

    steps: int
    bound: float

    @staticmethod
    def of(mechanism: Mechanism) -> "Grid | None":
        """Return the grid of a mechanism; None if its noise is not discrete."""
        if not isinstance(mechanism.noise, DiscreteGaussian):
            return None
        rounding, clip = mechanism.noise.rounding, mechanism.clip
        step = rounding.step(clip)
        return Grid(steps=math.floor(clip / step), bound=rounding.bound(clip) / step)


def renyi_deltas(event: Event, epsilons: Float[np.ndarray, " lines"]) -> Float[np.ndarray, " lines"]:
    """Return a δ(ε) that holds for the event's noise, by Rényi divergences of whole orders."""
    orders = np.asarray(WHOLE_ORDERS, dtype=float)
    with accounting.quiet_accountants():
        divergences = np.asarray(rdp.RdpAccountant(orders).compose(accounting.dp_event(event), event.count).rdp)
    # Canonne, Kamath & Steinke 2020, Proposition 12.
    logs = (orders - 1) * (divergences - epsilons[:, None] + np.log1p(-1 / orders)) - np.log(orders)
    return np.exp(np.minimum(logs.min(axis=1), 0.0))


@lru_cache(maxsize=1024)
def least_epsilon(event: Event, grid: Grid, delta: float) -> float:
    """Return a lower bound on the ε of discrete noise of the event's size on this grid."""
    if not event.discrete or len(event.cases) > 1:
        raise PrivacyError("this bound is for one kind of discrete noise")
    interval = min(2 * _LOST * accounting.rough_epsilon([event], delta) / event.count, _LARGEST_CELL)
    with accounting.quiet_accountants():
        one = pld.privacy_loss_distribution.from_discrete_gaussian_mechanism(
            event.noise_multiplier * grid.bound,
            sensitivity=grid.steps,
            sampling_prob=event.sample_rate,
            pessimistic_estimate=False,
            value_discretization_interval=interval,
        )
        return float(max(0.0, one.self_compose(event.count).get_epsilon_for_delta(delta)))
