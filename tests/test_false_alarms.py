"""Tests of chance say how often they fail, and together they fail a sound system less than once in 10,000 runs of all tests."""

import re

import numpy as np
import pytest
from false_alarms import COLLECTED, MOST, judges_chance, rates_of, table
from scipy.stats import kstest

from tacit.privacy import Secret, Seeded


def test_all_that_was_collected_fails_less_often_than_allowed(request):
    """Quick and slow tests, whichever of them are played now."""
    rates = rates_of(request.config.stash[COLLECTED])
    assert sum(rates.values()) < MOST, "\n".join(table(rates, set()))


def test_whoever_speaks_of_false_alarms_states_a_rate_or_has_fixed_seeds(request):
    speaking = re.compile(r"false alarms?(:| has| have| with| below)|once in a|standard errors", re.I)
    items = request.config.stash[COLLECTED]
    declared = {item.function for item in items if item.get_closest_marker("chance")}
    silent = {
        item.nodeid
        for item in items
        if item.function not in declared
        and speaking.search(item.function.__doc__ or "")
        and "seed" not in f"{item.function.__doc__} {item.module.__doc__}"
    }
    assert silent == set()


def test_a_judgement_without_a_stated_rate_gets_no_secret_randomness():
    with pytest.raises(pytest.fail.Exception, match="chance"):
        kstest(Secret().make(1)[0].next().normals(100), "norm")
    assert len(Seeded(0).make(1)[0].next().normals(100)) == 100


def judging(values):
    return kstest(values, "norm").pvalue


def document(*words):
    return words


WORDS = ("audit", "neighbor")


@pytest.mark.parametrize(
    ("test", "judges"),
    [
        (lambda: judging(np.zeros(3)), True),
        (lambda: [judging(each) for each in np.zeros((2, 3))], True),
        (lambda: document(*WORDS), True),
        (lambda: print(*WORDS), False),
        (lambda: np.zeros(3).mean() < 5, False),
    ],
)
def test_a_judgement_is_found_in_helpers_and_in_words(test, judges):
    assert judges_chance(test) is judges


class Item:
    def __init__(self, nodeid, *args):
        self.nodeid, self.args = nodeid, args

    def iter_markers(self, name):
        return [mark.mark for mark in (pytest.mark.chance(*args) for args in self.args)]


def test_rates_of_cases_are_added_by_test_and_by_suite():
    rates = rates_of(
        [Item("a::one[x]", (1e-6,)), Item("a::one[y]", (1e-6,), (2e-6,)), Item("a::two", (1e-5,)), Item("b")]
    )
    assert rates == pytest.approx({"a::one[x]": 1e-6, "a::one[y]": 3e-6, "a::two": 1e-5})
    assert [line.split() for line in table(rates, {"a::two"})] == [
        ["rate", "cases", "test"],
        ["1.0e-05", "1", "a::two"],
        ["4.0e-06", "2", "a::one"],
        ["4.0e-06", "2", "quick"],
        ["1.0e-05", "1", "slow"],
        ["1.4e-05", "3", "all"],
    ]


@pytest.mark.parametrize("args", [(), (0,), (1e-4,), (1e-6, 2)])
def test_a_rate_is_one_small_number(args):
    with pytest.raises(pytest.UsageError, match="one probability below"):
        rates_of([Item("a", args)])
