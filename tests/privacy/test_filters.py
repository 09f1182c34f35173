"""Why a budget over several runs needs a filter, and that ours is what the theorems ask for."""

import math

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp, ndtr
from tampering import gaussians

from tacit.errors import BudgetExceeded
from tacit.privacy import Budget, Event, Ledger, epsilon
from tacit.privacy.filters import _divergence, filtered_epsilon, order_of


def moved(limit, rate, sigma):
    """Return δ(ε) of one query when a record is removed, for an array of ε: in closed form, since its loss is monotone."""
    grown = np.exp(limit)
    needed = (grown - (1 - rate)) / rate
    at = sigma**2 * np.log(np.maximum(needed, 1e-300)) + 0.5
    above = (1 - rate) * ndtr(-at / sigma) + rate * ndtr(-(at - 1) / sigma) - grown * ndtr(-at / sigma)
    return np.where(needed > 0, above, 1 - grown)


def test_an_analyst_who_chooses_by_results_passes_a_sum_of_distributions_and_not_the_filter():
    """After a first run, two second runs fit ε=1 at δ=1e-3, each. Whoever takes the one that suits its results has 1.5 δ.

    The first is a Gaussian mechanism, so that its loss L is known in closed form; the best choice of the second at each of
    its results has δ = E[max(δ_1(ε - L), δ_2(ε - L))], which is integrated here.
    """
    delta, first = 1e-3, Event(sample_rate=1.0, noise_multiplier=4.0)
    choices = [Event(sample_rate=1.0, noise_multiplier=3.38), Event(sample_rate=0.02, noise_multiplier=0.522)]
    for second in choices:
        assert 0.95 < epsilon([first, second], delta=delta) <= 1.0

    results = np.linspace(-48, 49, 100_001)
    chances = np.exp(-(((results - 1) / 4) ** 2) / 2) / (4 * math.sqrt(2 * math.pi)) * (results[1] - results[0])
    losses = (2 * results - 1) / (2 * 4**2)
    left = [moved(1.0 - losses, second.sample_rate, second.noise_multiplier) for second in choices]
    assert all(0.9 * delta < float(chances @ each) <= delta for each in left), (
        "either of them, fixed beforehand, is fine"
    )
    assert float(chances @ np.maximum(*left)) > 1.5 * delta

    for second in choices:
        ledger = Ledger(Budget(epsilon=1.0, delta=delta))
        for run, event in (("first", first), ("second", second)):
            asked = {"mechanisms": gaussians([event.sample_rate], [event.noise_multiplier])}
            if run == "second":
                with pytest.raises(BudgetExceeded, match="After the first run the Rényi filter decides"):
                    ledger.open(run=run, owners=["a"], queries=1, release=True, **asked)
                continue
            account = ledger.open(run=run, owners=["a"], queries=1, release=True, **asked)
            account.spend()
            account.close(finished=True)


@pytest.mark.parametrize(("rate", "sigma", "order"), [(0.04, 7.2, 18), (0.3, 0.9, 4), (1.0, 2.0, 33), (1e-3, 0.7, 2)])
def test_the_divergence_of_a_query_is_that_of_the_sampled_gaussian(rate, sigma, order):
    """Mironov, Talwar & Zhang 2019, equation 6: a binomial sum."""
    k = np.arange(order + 1)
    ways = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    chance = k * math.log(rate) + (order - k) * (math.log1p(-rate) if rate < 1 else -1e9)
    wanted = logsumexp(ways + chance + (k * k - k) / (2 * sigma**2)) / (order - 1)
    assert _divergence(rate, sigma, order, "add_remove") == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("rate", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("sigma", [0.8, 2.0, 10.0])
@pytest.mark.parametrize("order", [2, 5, 20])
def test_the_divergence_under_replacement_is_bounded_by_a_removal_and_an_addition(rate, sigma, order):
    """The worst pair moves the mean to +1 and to -1; its divergence is integrated."""
    reach = (order + 10) * max(1.0, sigma) + 2 * order
    x = np.linspace(-reach, reach, 400_001)

    def log_density(mean):
        with np.errstate(divide="ignore"):
            parts = np.stack([np.log1p(-rate) - x**2 / (2 * sigma**2), np.log(rate) - (x - mean) ** 2 / (2 * sigma**2)])
        return logsumexp(parts, axis=0) - math.log(sigma * math.sqrt(2 * math.pi))

    up, down = log_density(1.0), log_density(-1.0)
    true = (logsumexp(order * up + (1 - order) * down) + math.log(x[1] - x[0])) / (order - 1)
    bound = _divergence(rate, sigma, order, "replace_one")
    assert true * (1 - 1e-6) <= bound
    if rate == 1.0:
        assert bound <= true * (1 + 1 / (4 * order * (order - 1))) * (1 + 1e-6), (
            "for a Gaussian it is nearly all there is"
        )


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize(("limit", "delta"), [(0.1, 1e-6), (1.0, 1e-5), (8.0, 1e-3)])
def test_the_filter_is_never_below_the_sum_of_distributions(adjacency, limit, delta):
    events = [Event(sample_rate=0.05, noise_multiplier=8.0, count=200), Event(sample_rate=0.2, noise_multiplier=20.0)]
    derived = filtered_epsilon(events, epsilon=limit, delta=delta, adjacency=adjacency)
    assert derived >= epsilon(events, delta=delta, adjacency=adjacency)


def test_the_order_follows_from_the_budget_alone():
    assert order_of(1.0, 1e-5, "add_remove") == 18
    assert order_of(10.0, 1e-5, "add_remove") == 3
    assert order_of(0.1, 1e-5, "add_remove") > 100


@pytest.mark.parametrize(("adjacency", "sigma", "fit"), [("add_remove", 7.1893, 1696), ("replace_one", 14.236, 1683)])
def test_how_many_of_2000_queries_that_spend_1_fit_the_filter(adjacency, sigma, fit):
    """docs/guarantee.md states these numbers."""
    event = Event(sample_rate=256 / 6000, noise_multiplier=sigma)
    assert epsilon([event] * 2000, delta=1e-5, adjacency=adjacency) == pytest.approx(1.0, abs=1e-3)
    terms = {"epsilon": 1.0, "delta": 1e-5, "adjacency": adjacency}
    assert filtered_epsilon([event] * fit, **terms) <= 1.0 < filtered_epsilon([event] * (fit + 1), **terms)


def test_nothing_asked_passes_every_filter():
    assert filtered_epsilon([], epsilon=1e-3, delta=1e-9, adjacency="add_remove") == 0
