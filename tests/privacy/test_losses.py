"""Distributions by arrays are those that dp-accounting makes cell by cell."""

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld.pld_pmf import DensePLDPmf
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

from tacit.privacy.losses import _composed, _epsilon_of, _sides, composed_epsilon, query_losses

RELATIONS = {
    "add_remove": NeighboringRelation.ADD_OR_REMOVE_ONE,
    "replace_one": NeighboringRelation.REPLACE_ONE,
}
ROUNDING = 1e-11  # of float64, when differences of δ are divided by a cell: some 1e-13 between machines


@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize("interval", [2.0**-7, 2.0**-10])
@pytest.mark.parametrize("rate", [1.0, 0.5, 256 / 6000, 1e-3, 1e-6])
@pytest.mark.parametrize("sigma", [0.5, 3.0, 50.0])
def test_every_cell_holds_what_dp_accounting_puts_there(sigma, rate, interval, adjacency):
    found = query_losses(((rate, sigma),), interval, adjacency)
    expected = from_gaussian_mechanism(
        sigma, sampling_prob=rate, value_discretization_interval=interval, neighboring_relation=RELATIONS[adjacency]
    )
    assert found._symmetric == expected._symmetric
    for side in ("_pmf_remove", "_pmf_add"):
        one, other = getattr(found, side).to_dense_pmf(), getattr(expected, side).to_dense_pmf()
        assert (one._lower_loss, one._discretization) == (other._lower_loss, other._discretization)
        np.testing.assert_allclose(one._probs, other._probs, rtol=0, atol=ROUNDING)
        tails = [
            each._probs[::-1].cumsum() for each in (one, other)
        ]  # where δ comes from: small, so compared as a share
        np.testing.assert_allclose(*tails, rtol=1e-6, atol=1e-13)
        assert one._infinity_mass == pytest.approx(other._infinity_mass, abs=ROUNDING)
        assert one._pessimistic_estimate


@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize("delta", [1e-3, 1e-7])
def test_epsilon_is_that_of_dp_accountings_own_accountant(adjacency, delta):
    queries = [(0.1, 2.0, 40), (0.02, 1.0, 7), (1.0, 9.0, 2)]
    accountant = PLDAccountant(RELATIONS[adjacency], value_discretization_interval=2.0**-10)
    for rate, sigma, count in queries:
        accountant.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(sigma)), count)
    cases = [(((rate, sigma),), count) for rate, sigma, count in queries]
    found = composed_epsilon(cases, delta, adjacency, 2.0**-10)
    assert found == pytest.approx(accountant.get_epsilon(delta), rel=1e-7)


@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize("count", [1, 2, 40, 2000])
@pytest.mark.parametrize(("rate", "sigma"), [(1.0, 30.0), (0.1, 1.0), (256 / 6000, 7.19), (1e-3, 0.5)])
def test_many_queries_are_composed_to_the_bit_as_dp_accounting_does_and_have_its_epsilon(rate, sigma, count, adjacency):
    for pmf in _sides(query_losses(((rate, sigma),), 2.0**-9, adjacency)):
        found, expected = _composed(pmf, count).to_dense_pmf(), pmf.self_compose(count).to_dense_pmf()
        assert (found._lower_loss, found._infinity_mass) == (expected._lower_loss, expected._infinity_mass)
        assert np.array_equal(found._probs, expected._probs)
        for delta in (1e-15, 1e-9, 1e-5, 0.01, 0.9):
            assert _epsilon_of(found, delta) == pytest.approx(
                expected.get_epsilon_for_delta(delta), rel=1e-13, abs=1e-15
            )


def test_losses_too_large_for_float64_and_masses_without_bound_have_the_epsilon_of_dp_accounting():
    for losses, probs, unbounded in (
        (600, np.full(100, 0.01), 0.0),
        (760, np.full(100, 0.01), 0.0),
        (760, np.full(70, 0.01), 0.3),
        (-5, np.zeros(4), 1.0),
        (-5, np.array([0.5, 0.5]), 0.0),
    ):
        pmf = DensePLDPmf(1.0, losses, probs, unbounded, True)
        for delta in (1e-9, 0.1, 0.3, 0.7):
            assert _epsilon_of(pmf, delta) == pytest.approx(pmf.get_epsilon_for_delta(delta), rel=1e-13)


def test_the_distribution_of_a_query_is_made_once_however_often_it_is_asked():
    query_losses.cache_clear()
    for count in (1, 10, 100):
        composed_epsilon([(((0.1, 2.0),), count)], 1e-5, "add_remove", 2.0**-9)
    assert query_losses.cache_info().misses == 1


@pytest.mark.parametrize("adjacency", RELATIONS)
def test_of_several_cases_the_delta_at_every_epsilon_is_the_largest_of_theirs(adjacency):
    """Small lots under little noise lose more at large ε, and large lots under much noise at small ε."""
    cases, interval = ((0.8, 15.0), (0.2, 4.2), (0.05, 1.2)), 2.0**-9
    worst = query_losses(cases, interval, adjacency)
    epsilons = np.arange(1, 2000) * interval
    each = np.array([query_losses((case,), interval, adjacency).get_delta_for_epsilon(epsilons) for case in cases])
    np.testing.assert_allclose(worst.get_delta_for_epsilon(epsilons), each.max(axis=0), rtol=1e-9, atol=1e-13)
    assert len(set(each[:, each.max(axis=0) > 1e-9].argmax(axis=0))) > 1, "no case is the worst everywhere"
