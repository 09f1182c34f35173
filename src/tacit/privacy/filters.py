"""The Rényi filter: how a budget decides on runs that may have been planned after seeing earlier results.

Composing privacy loss distributions is proven for mechanisms whose parameters are fixed beforehand. A budget over several
runs must also hold if a run's σ, q and length were chosen from the results of earlier runs, and there that sum is known to
fail (docs/guarantee.md cites the proofs). Rényi divergences of *one order α fixed beforehand* still add up (Feldman & Zrnic
2021): if Σ ρ(α) over all queries stays within ρ on every path, all of them together are (α, ρ)-RDP.

The order follows from the budget alone: the whole number that allows a plain Gaussian mechanism the most queries.
Under add-or-remove-one, ρ(α) of a query is that of the sampled Gaussian. To replace a record is to remove one and to add
one, so under replace-one it is, by the weak triangle inequality (Mironov 2017, proposition 11, both exponents 2),
(α - ½)/(α - 1) · ρ(2α) + ρ(2α - 1).
"""

import math
from collections.abc import Sequence
from functools import lru_cache

from tacit.privacy import accounting
from tacit.privacy.accounting import Adjacency
from tacit.privacy.event import Event

_LARGEST_ORDER = 2**14
_ROUNDING = 1e-14  # more than what rounding can take from ρ of one query


def filtered_epsilon(events: Sequence[Event], *, epsilon: float, delta: float, adjacency: Adjacency) -> float:
    """Return the ε of all these queries under the filter of a budget of (ε, δ): they pass if it is at most the budget's ε."""
    order = order_of(epsilon, delta, adjacency)
    spent = sum(divergence(event, order, adjacency) for event in events)
    if spent == 0 or math.isinf(spent):
        return spent
    return max(0.0, spent + _conversion(order, delta))


def divergence(event: Event, order: int, adjacency: Adjacency) -> float:
    """Return ρ(α) of an event's queries together, in the worst of its cases."""
    return event.count * max(_divergence(rate, sigma, order, adjacency) for rate, sigma in event.cases)


@lru_cache(maxsize=1024)
def order_of(epsilon: float, delta: float, adjacency: Adjacency) -> int:
    """Return the order α of a budget: the one that leaves the most room for a plain Gaussian mechanism."""

    def room(order: int) -> float:
        """Return how many queries of a Gaussian mechanism fit, times the cost of one at order 1."""
        cost = order if adjacency == "add_remove" else (2 * order - 1) ** 2 / (order - 1)
        return (epsilon - _conversion(order, delta)) / cost

    return max(range(2, _LARGEST_ORDER), key=room)


def _conversion(order: int, delta: float) -> float:
    """Return what must be added to ρ to get ε at δ (Canonne, Kamath & Steinke 2020, proposition 12)."""
    return math.log1p(-1 / order) - math.log(accounting.for_ideal_noise(delta) * order) / (order - 1)


@lru_cache(maxsize=65536)
def _divergence(rate: float, sigma: float, order: int, adjacency: Adjacency) -> float:
    """Return ρ(α) of one query."""
    if adjacency == "add_remove":
        return _sampled_gaussian(rate, sigma, order)
    removed, added = _sampled_gaussian(rate, sigma, 2 * order), _sampled_gaussian(rate, sigma, 2 * order - 1)
    return (order - 0.5) / (order - 1) * removed + added


def _sampled_gaussian(rate: float, sigma: float, order: int) -> float:
    """Return the Rényi divergence of one query when a record is added or removed, whichever is larger."""
    from dp_accounting import rdp

    with accounting.quiet_accountants():
        accountant = rdp.RdpAccountant(orders=[order])
        accountant.compose(accounting.dp_event(Event(sample_rate=rate, noise_multiplier=sigma)))
    return max(0.0, float(accountant.rdp[0])) + _ROUNDING
