"""One event in the place of several of which any may be true counts for no less than each, and for little more than the worst."""

import itertools
import random

import pytest

from tacit.errors import PrivacyError
from tacit.privacy import Event, epsilon, noise_multiplier
from tacit.privacy.accounting import epsilons, largest_epsilon
from tacit.privacy.event import worst_of
from tacit.privacy.filters import divergence

TERMS = [("pld", "add_remove"), ("pld", "replace_one"), ("rdp", "add_remove")]


def event(rate, sigma, count=50):
    return Event(sample_rate=rate, noise_multiplier=sigma, count=count)


def test_of_equal_noise_the_highest_rate_is_the_worst():
    assert worst_of([event(0.1, 2.0), event(0.3, 2.0), event(0.2, 3.0)]) == event(0.3, 2.0)


def test_what_is_worse_in_no_respect_is_left_out_and_the_order_makes_no_difference():
    several = [event(0.1, 1.0), event(0.4, 4.0, 60), event(0.05, 1.0), event(0.4, 5.0), event(0.2, 2.0)]
    worst = worst_of(several)
    assert worst.cases == ((0.4, 4.0), (0.2, 2.0), (0.1, 1.0))
    assert worst.count == 60
    for order in itertools.permutations(several):
        assert worst_of(order) == worst
    assert worst_of([worst, several[0]]) == worst


@pytest.mark.parametrize(("accountant", "adjacency"), TERMS)
def test_it_counts_for_no_less_than_any_choice_of_owners_and_runs(accountant, adjacency):
    """Two runs with three owners each, beside one that is known: all nine ways to hold a record are within what is stated."""
    known, chance = event(0.1, 3.0), random.Random(7)
    runs = [[event(rate, rate * chance.uniform(20, 40), count) for rate in (0.05, 0.2, 0.8)] for count in (20, 80)]
    terms = {"delta": 1e-5, "accountant": accountant, "adjacency": adjacency}
    stated = epsilon([known, *map(worst_of, runs)], **terms)
    each = [epsilon([known, *choice], **terms) for choice in itertools.product(*runs)]
    assert max(each) <= stated
    assert stated < 1.3 * max(each)


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_owners_with_the_same_stated_epsilon_cost_little_more_together_than_one_of_them(adjacency):
    """The largest rate with the least noise of any owner would be ε = 30."""
    terms = {"epsilon": 2.0, "delta": 1e-5, "adjacency": adjacency}
    rates = [24 / size for size in (30, 60, 100, 200, 300)]
    several = [event(rate, noise_multiplier(sample_rate=rate, queries=200, **terms), 200) for rate in rates]
    assert 1.99 < epsilon([worst_of(several)], delta=1e-5, adjacency=adjacency) < 2.2


def test_the_filter_counts_the_largest_divergence_at_its_order():
    several = [event(0.8, 20.0), event(0.05, 1.0)]
    for order in (2, 18, 60):
        for adjacency in ("add_remove", "replace_one"):
            each = [divergence(one, order, adjacency) for one in several]
            assert divergence(worst_of(several), order, adjacency) == max(each)


@pytest.mark.slow
def test_very_many_owners_are_taken_together_on_the_safe_side():
    several = [event(rate / 1000, rate / 100) for rate in range(1, 1001)]
    worst = worst_of(several)
    assert len(worst.cases) <= 64
    assert all(worst.dominates(one) for one in several)
    assert epsilon([worst], delta=1e-5) >= max(epsilon([several[place]], delta=1e-5) for place in (0, 9, 99, 999))


def test_the_largest_epsilon_of_histories_with_several_cases_is_found():
    other = worst_of([event(0.8, 30.0), event(0.05, 2.0)])
    histories = [[event(rate, 5.0), other] for rate in (0.01, 0.1, 0.05)]
    place, most = largest_epsilon(histories, delta=1e-5)
    assert (place, most) == (1, epsilon(histories[1], delta=1e-5))
    assert max(epsilons(histories, delta=1e-5)) == most


def test_a_case_that_makes_no_sense_is_refused():
    with pytest.raises(PrivacyError, match=r"sample_rate is 1\.5"):
        Event(sample_rate=0.1, noise_multiplier=1.0, otherwise=((1.5, 1.0),))
    with pytest.raises(PrivacyError, match="noise_multiplier is 0"):
        Event(sample_rate=0.1, noise_multiplier=1.0, otherwise=((0.5, 0.0),))
