import math

import numpy as np
import pytest
import torch

from tacit.errors import InvalidInput, PrivacyError
from tacit.privacy import Budget, Cancelling, Discrete, NoPrivacy, Privacy, Unit

BASE = {"delta": 1e-5, "clip": 1.0, "lot_size": 10}


def test_rate_is_lot_over_declared_size_and_divisor_is_the_lot():
    plan = Privacy(noise_multiplier=2.0, **BASE).plan([100, 40], queries=3)
    assert plan.sample_rates == (0.1, 0.25)
    assert plan.lot_sizes == (10.0, 10.0)
    assert plan.noise_multipliers == (2.0, 2.0)


def test_agents_with_less_data_or_a_stricter_budget_get_more_noise():
    plan = Privacy(epsilon=[1.0, 1.0, 0.5], **BASE).plan([1000, 100, 1000], queries=50)
    most_data, least_data, strict = plan.noise_multipliers
    assert least_data > most_data
    assert strict > most_data
    for found, wanted in zip(plan.epsilons([50])[0], [1.0, 1.0, 0.5], strict=True):
        assert 0.998 * wanted < found <= wanted


def test_noise_is_calibrated_to_the_queries_that_are_made():
    few, many = (Privacy(epsilon=1.0, **BASE).plan([100], queries=q).noise_multipliers[0] for q in (100, 200))
    assert many > 1.3 * few


def test_numbers_of_numpy_and_torch_are_numbers():
    settings = {"delta": np.float32(1e-5), "clip": np.float64(1), "lot_size": np.int64(10)}
    plan = Privacy(noise_multiplier=torch.tensor([1.0, 2.0]), **settings).plan([100, 100], queries=3)
    assert plan.lot_sizes == (10.0, 10.0)
    assert plan.noise_multipliers == (1.0, 2.0)


def test_trials_lie_side_by_side():
    plan = Privacy(noise_multiplier=[1.0, 2.0], **BASE).plan([20, 40], queries=3).repeated(2)
    assert plan.agents == 4
    assert plan.noise_multipliers == (1.0, 2.0, 1.0, 2.0)
    assert plan.sample_rates == (0.5, 0.25, 0.5, 0.25)


def test_without_privacy_epsilon_is_infinite():
    plan = NoPrivacy(lot_size=5).plan([10], queries=3)
    assert plan.epsilons([0, 3]).tolist() == [[0.0], [math.inf]]
    assert plan.clips == (math.inf,)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epsilon": 1.0, "noise_multiplier": 1.0}, "exactly one of epsilon and noise_multiplier"),
        ({}, "exactly one of epsilon and noise_multiplier"),
        ({"epsilon": -1.0}, "epsilon is -1.0"),
        ({"epsilon": math.inf}, "epsilon is inf"),
        ({"noise_multiplier": 0.0}, "noise_multiplier is 0.0"),
        ({"noise_multiplier": [1.0, math.nan]}, "noise_multiplier is nan"),
        ({"epsilon": 1.0, "clip": 0}, "clip is 0"),
        ({"epsilon": 1.0, "clip": 1e-20}, "clip is 1e-20; it must lie between"),
        ({"epsilon": "1"}, "epsilon is '1'; it must be a number"),
        ({"epsilon": True}, "epsilon is True; it must be a number"),
        ({"epsilon": 1.0, "lot_size": -3}, "lot_size is -3"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta is 1.0"),
        ({"epsilon": 1.0, "adjacency": "replace_one", "accountant": "rdp"}, "the pld accountant has one"),
    ],
)
def test_refuses_settings_that_make_no_sense(settings, message):
    with pytest.raises(PrivacyError, match=message):
        Privacy(**(BASE | settings))


@pytest.mark.parametrize(
    ("settings", "sizes", "queries", "message"),
    [
        ({"epsilon": 1.0}, [100, 5], 3, "larger than agent 1's 5 records"),
        ({"epsilon": [1.0, 2.0]}, [100], 3, "epsilon has 2 values for 1 agents"),
        ({"noise_multiplier": 1.0, "clip": [1.0]}, [100, 100], 3, "clip has 1 values for 2 agents"),
        ({"epsilon": 1.0}, [100], 0, "makes no query"),
    ],
)
def test_refuses_a_plan_that_does_not_fit(settings, sizes, queries, message):
    with pytest.raises(PrivacyError, match=message):
        Privacy(**(BASE | settings)).plan(sizes, queries)


@pytest.mark.parametrize(
    ("make", "wrong", "message"),
    [
        (Cancelling, "curios", "unknown setting of Cancelling 'curios'; did you mean 'curious'"),
        (Privacy, "epsilno", "unknown setting of Privacy 'epsilno'; did you mean 'epsilon'"),
        (Discrete, "bit", "unknown setting of Discrete 'bit'; did you mean 'bits'"),
        (Unit, "nmae", "unknown setting of Unit 'nmae'; did you mean 'name'"),
        (Budget, "detla", "unknown setting of Budget 'detla'; did you mean 'delta'"),
    ],
)
def test_a_misspelt_setting_is_an_error_that_names_the_nearest_one(make, wrong, message):
    with pytest.raises(InvalidInput, match=message):
        make(**{wrong: 1})
