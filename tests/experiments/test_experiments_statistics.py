"""Intervals over trials, slopes, and verdicts that follow from them."""

import math

import pytest

from tacit.experiments.statistics import (
    Summary,
    fit_slope,
    judge_change,
    judge_fall,
    judge_margin,
    state_doubt,
    subtract,
    summarise,
)


def test_intervals_are_students_over_trials():
    assert summarise([1.0, 2.0, 3.0]) == Summary(mean=2.0, margin=pytest.approx(4.302653 / math.sqrt(3)), trials=3)
    assert summarise([1.0]).margin is None


def test_differences_are_taken_trial_by_trial():
    found = subtract([2.0, 3.0, 5.0], [1.0, 2.0, 3.0])
    assert found == summarise([1.0, 1.0, 2.0])
    assert subtract([2.0, 30.0], [1.0, 29.0]).margin == 0.0
    with pytest.raises(ValueError, match="shorter"):
        subtract([1.0, 2.0, 3.0], [1.0, 2.0])


def test_a_slope_has_an_interval_that_holds_the_truth():
    line = fit_slope([0.0, 1.0, 2.0, 3.0], [0.1, 0.9, 2.1, 2.9])
    assert line is not None
    assert line.low <= 1.0 <= line.high < 2.0
    assert fit_slope([0.0, 1.0], [0.0, 1.0]) is None
    assert fit_slope([1.0, 1.0, 1.0], [0.0, 1.0, 2.0]) is None


@pytest.mark.parametrize(
    ("mean", "margin", "expected"),
    [
        (0.01, 0.01, "same"),
        (-0.01, 0.009, "same"),
        (0.015, 0.01, "inconclusive"),
        (0.05, 0.01, "different"),
        (0.05, 0.1, "inconclusive"),
        (0.0, 0.1, "inconclusive"),
        (0.5, None, "inconclusive"),
    ],
)
def test_verdicts(mean, margin, expected):
    assert judge_change(Summary(mean=mean, margin=margin, trials=3), 0.02) == expected


@pytest.mark.parametrize(
    ("mean", "margin", "expected"),
    [
        (-0.01, 0.005, "falls"),
        (-0.1, 0.05, "falls"),
        (-0.005, 0.01, "does not"),
        (0.05, 0.01, "does not"),
        (-0.01, 0.015, "inconclusive"),
        (-0.5, None, "inconclusive"),
    ],
)
def test_falls(mean, margin, expected):
    assert judge_fall(Summary(mean=mean, margin=margin, trials=3), 0.02) == expected


@pytest.mark.parametrize(
    ("mean", "margin", "expected"),
    [
        (-0.01, 0.005, "within the 3 points"),
        (0.05, 0.01, "within the 3 points"),
        (-0.04, 0.005, "more than the 3 points"),
        (-0.04, 0.02, "inconclusive about the 3 points"),
    ],
)
def test_within(mean, margin, expected):
    assert judge_margin(Summary(mean=mean, margin=margin, trials=3), 0.03) == expected


def test_doubts_say_what_is_open():
    assert (
        state_doubt(Summary(mean=0.01, margin=0.02, trials=3), 0.02)
        == "inconclusive: these trials cannot distinguish it from zero"
    )
    assert "it may or may not be more than 2 points" in state_doubt(Summary(mean=0.016, margin=0.009, trials=3), 0.02)
