"""The problem of `convergence` is what it says: strongly convex, with its optimum, and noise that only adds."""

import pytest
import torch

from tacit.experiments.convergence_problem import (
    PENALTY,
    RULES,
    Decaying,
    RidgeLogistic,
    distance,
    noiseless,
    problem,
    ridge_loss,
    watch,
)


def test_the_gradient_of_all_records_is_zero_at_the_optimum():
    data, optimum = problem(5)
    theta = optimum.clone().requires_grad_()
    module = RidgeLogistic(len(optimum), PENALTY)
    outputs = torch.func.functional_call(module, {"weight": theta}, (data.dataset.train.inputs,))
    (gradient,) = torch.autograd.grad(ridge_loss(outputs, data.dataset.train.targets).mean(), theta)
    assert float(gradient.norm()) < 1e-8
    assert float(data.dataset.train.inputs.norm(dim=1).max()) <= 1 + 1e-12


@pytest.mark.parametrize("rule", RULES)
def test_dsgt_and_dinno_find_the_optimum_and_dsgd_stops_short(rule):
    end = noiseless(rule, 5, 300, "constant")[-1]
    away = float(distance(end, problem(5)[1]))
    assert away > 0.02 if rule == "dsgd" else away < 1e-6


def test_the_average_of_dsgds_agents_stops_short_too():
    average = noiseless("dsgd", 10, 400, "constant")[-1].mean(dim=0)
    assert float((average - problem(10)[1]).norm()) == pytest.approx(0.0070, abs=1e-4)


@pytest.mark.parametrize("rule", ["dsgd", "dsgt", pytest.param("dinno", marks=pytest.mark.slow)])
def test_a_smaller_step_ends_no_further_from_the_optimum(rule, monkeypatch):
    algorithm, first = RULES[rule]
    optimum = problem(5)[1]
    before = float(distance(noiseless(rule, 5, 300, "constant")[-1], optimum))
    monkeypatch.setitem(RULES, rule, (algorithm, first / 2))
    rounds = 150 if rule == "dsgd" else 480  # which half the step needs to end
    after = float(distance(watch(rule, agents=5, rounds=rounds).theta[-1, 0], optimum))
    assert after < max(before, 1e-6)


def test_full_lots_without_noise_leave_nothing_to_chance():
    one, other = (watch("dsgt", agents=5, rounds=5, seed=seed).theta for seed in (0, 1))
    assert torch.equal(one, other)


def test_twice_the_noise_of_the_same_seed_is_about_twice_as_far():
    base = watch("dsgd", agents=5, rounds=20).theta[-1]
    near, far = (
        float(distance(watch("dsgd", agents=5, rounds=20, sigma=sigma).theta[-1], base)) for sigma in (0.05, 0.1)
    )
    assert far == pytest.approx(2 * near, rel=0.05)


def test_clipping_is_shown_and_moves_the_limit():
    course = watch("dsgt", agents=5, rounds=60, sigma=0.02, clip=0.2)
    assert course.clipped > 0.5
    assert float(distance(course.theta[-1, 0], problem(5)[1])) > 0.02


def test_summable_steps_are_as_the_theorem_asks():
    steps = [Decaying(start=0.5, power=2.1)(k, 10**5) * k for k in range(1, 10**5)]
    assert sum(steps[10**4 :]) < 0.5 * sum(steps[: 10**4])
    assert Decaying(start=0.5, power=0.0)(99, 100) == 0.5
