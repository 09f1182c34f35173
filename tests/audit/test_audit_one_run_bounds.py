import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from tacit.audit.bounds.one_run import (
    Guesses,
    fdp_refutes,
    guess,
    one_run_bound,
    one_run_fdp_bound,
    one_run_p_value,
)
from tacit.audit.bounds.rates import gaussian_epsilon
from tacit.audit.bounds.tradeoff import gaussian_curve
from tacit.errors import InvalidInput, PrivacyError
from tacit.privacy.event import Event


def pure_curve(epsilon, delta=0.0):
    """The curve of (ε, δ)-DP."""
    return lambda alarm: max(0.0, 1 - delta - math.exp(epsilon) * alarm, math.exp(-epsilon) * (1 - delta - alarm))


def fdp_p_value(outcome, curve):
    """The least risk at which the curve is refuted."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if fdp_refutes(outcome, curve, middle) else (middle, high)
    return high


def refutes_by_the_paper(outcome, curve, risk):
    """The algorithm as Mahloujifar et al. state it, in r_i and h_i, with f̄⁻¹(x) = f(1 - x) for a symmetric f."""
    m, cap, c = outcome.canaries, outcome.guesses, outcome.correct
    r, h = risk * c / m, risk * (cap - c) / m
    for i in range(c - 1, -1, -1):
        after = max(h, curve(1 - min(r, 1.0)))
        r, h = r + i / (cap - i) * (after - h), after
    return r + h > cap / m


@pytest.mark.parametrize("delta", [0.0, 1e-5, 1e-3])
@pytest.mark.parametrize(("m", "r", "v"), [(50, 50, 40), (80, 30, 29), (40, 10, 0), (60, 60, 60)])
def test_p_value_is_the_theorem_term_by_term(m, r, v, delta):
    right = math.exp(0.7) / (1 + math.exp(0.7))
    mass = [math.comb(r, k) * right**k * (1 - right) ** (r - k) for k in range(r + 1)]
    largest = max((sum(mass[v - i : v]) / i for i in range(1, v + 1)), default=0.0)
    expected = min(1.0, sum(mass[v:]) + 2 * m * delta * largest)
    found = one_run_p_value(Guesses(canaries=m, guesses=r, correct=v), 0.7, delta)
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("r", "epsilon"), [(10, 1.052), (100, 3.493), (1000, 5.809)])
def test_all_guesses_right_gives_the_closed_form(r, epsilon):
    """(e^ε / (1 + e^ε))^r = 0.05."""
    right = 0.05 ** (1 / r)
    bound = one_run_bound(Guesses(canaries=r, guesses=r, correct=r), delta=0, confidence=0.95)
    assert bound.epsilon == pytest.approx(math.log(right / (1 - right)), rel=1e-9)
    assert bound.epsilon == pytest.approx(epsilon, abs=1e-3)
    assert (bound.method, bound.adjacency) == ("one_run", "add_remove")


def test_delta_and_abstentions_cost():
    """δ widens the p-value by every canary, also by those not guessed."""
    some = Guesses(canaries=1000, guesses=200, correct=190)
    pure, small, large = (one_run_bound(some, delta=d, confidence=0.95).epsilon for d in (0, 1e-5, 1e-4))
    assert pure > small > large > 0
    more = Guesses(canaries=5000, guesses=200, correct=190)
    assert one_run_bound(more, delta=1e-5, confidence=0.95).epsilon < small


@pytest.mark.parametrize("correct", [0, 50])
def test_guessing_blindly_shows_nothing(correct):
    outcome = Guesses(canaries=100, guesses=100, correct=correct)
    assert one_run_bound(outcome, delta=1e-5, confidence=0.95).epsilon == 0
    assert one_run_fdp_bound(outcome, delta=1e-5, confidence=0.95).epsilon == 0


def test_one_run_bound_exceeds_randomised_response_no_oftener_than_stated():
    """The mechanism for which the bound is tight; the seed is fixed."""
    rng, m, times = np.random.default_rng(0), 200, 2000
    correct = rng.binomial(m, math.e / (1 + math.e), times)
    values, counts = np.unique(correct, return_counts=True)
    bounds = [
        one_run_bound(Guesses(canaries=m, guesses=m, correct=int(v)), delta=0, confidence=0.9).epsilon for v in values
    ]
    above = int(counts[np.array(bounds) > 1].sum())
    assert 0 < above <= binom.isf(1e-6, times, 0.1)


@pytest.mark.parametrize("curve", [gaussian_curve(0.3), gaussian_curve(1.5), pure_curve(0.8), pure_curve(0.2, 0.05)])
@pytest.mark.parametrize(("m", "r"), [(60, 60), (200, 40)])
def test_tails_and_the_published_recursion_agree(curve, m, r):
    outcomes = [Guesses(canaries=m, guesses=r, correct=v) for v in range(r + 1)]
    for risk in (0.01, 0.05, 0.3):
        found = [fdp_refutes(outcome, curve, risk) for outcome in outcomes]
        assert found == [refutes_by_the_paper(outcome, curve, risk) for outcome in outcomes]


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("m", [60, 150])
def test_fdp_gives_randomised_response_its_own_probability_or_a_little_more(epsilon, m):
    """For which the number of correct guesses is binomial; also where most canaries are not guessed."""
    right = math.exp(epsilon) / (1 + math.exp(epsilon))
    for v in range(0, 61, 4):
        chance = float(binom.sf(v - 1, 60, right))
        if chance > 1e-7:
            found = fdp_p_value(Guesses(canaries=m, guesses=60, correct=v), pure_curve(epsilon))
            assert chance * (1 - 1e-7) <= found <= 2 * chance


def test_fdp_is_exact_for_a_mechanism_that_sometimes_tells_all():
    """With probability δ all the coins are told, else nothing: all guesses are right with probability δ + (1 - δ)/2^m."""
    found = fdp_p_value(Guesses(canaries=30, guesses=30, correct=30), pure_curve(0.0, 0.1))
    assert found == pytest.approx(0.1 + 0.9 * 2.0**-30, abs=1e-11)


def test_fdp_bounds_on_the_gaussian_mechanism_hold_and_grow_with_the_evidence():
    """Canaries under noise σ=0.5, so μ=2, the surest fifth guessed. Each repetition may fail with probability 10 %, so more than 40 of 200
    would be far too many. In fact none does: a single run is not tight here. The seed is fixed.
    """
    rng, m, times = np.random.default_rng(1), 500, 200
    found = []
    for _ in range(times):
        included = rng.random(m) < 0.5
        scores = included + 0.5 * rng.standard_normal(m)
        outcome = guess(scores, included, guesses=100)
        found.append(one_run_fdp_bound(outcome, delta=1e-5, confidence=0.9).mu)
    assert np.sum(np.array(found) > 2.0) <= 40
    assert np.median(found) > 0.8


def test_fdp_beats_the_plain_bound_on_gaussian_noise():
    outcome = Guesses(canaries=1000, guesses=1000, correct=800)
    plain = one_run_bound(outcome, delta=1e-5, confidence=0.95)
    fdp = one_run_fdp_bound(outcome, delta=1e-5, confidence=0.95)
    assert plain.epsilon < fdp.epsilon < gaussian_epsilon(2 * norm.ppf(0.8), 1e-5)
    assert fdp.epsilon == gaussian_epsilon(fdp.mu, 1e-5)


def test_fdp_of_full_lots_is_that_of_gaussian_noise():
    outcome, event = Guesses(canaries=300, guesses=100, correct=90), Event(sample_rate=1, noise_multiplier=2, count=4)
    gaussian = one_run_fdp_bound(outcome, delta=1e-5, confidence=0.95)
    family = one_run_fdp_bound(outcome, delta=1e-5, confidence=0.95, event=event)
    assert 0.99 * gaussian.epsilon < family.epsilon < 1.001 * gaussian.epsilon
    assert 2 / family.noise_multiplier == pytest.approx(gaussian.mu, rel=5e-3)


def test_fdp_of_rare_lots_stays_below_the_truth():
    """Six canaries in ten right, in lots at q=0.1; the noise named must itself be refuted."""
    event = Event(sample_rate=0.1, noise_multiplier=2.0458, count=100)
    bound = one_run_fdp_bound(
        Guesses(canaries=1000, guesses=1000, correct=600), delta=1e-2, confidence=0.95, event=event
    )
    assert 0.1 < bound.epsilon < 1
    assert bound.noise_multiplier > event.noise_multiplier


def test_the_surest_scores_are_guessed():
    scores = np.array([0.0, 3.0, 1.0, -4.0, 2.0])
    included = np.array([True, True, False, False, False])
    assert guess(scores, included, guesses=3) == Guesses(canaries=5, guesses=3, correct=2)
    assert guess(scores, included, guesses=0) == Guesses(canaries=5, guesses=0, correct=0)


def test_bad_input_is_refused():
    for counts in ((0, 0, 0), (5, 6, 0), (5, 3, 4), (5, 3, -1)):
        with pytest.raises(InvalidInput, match=r"must lie|at least one"):
            Guesses(**dict(zip(("canaries", "guesses", "correct"), counts, strict=True)))
    with pytest.raises(InvalidInput, match="equally long"):
        guess(np.zeros(3), np.ones(2, dtype=bool), guesses=1)
    with pytest.raises(InvalidInput, match="guesses is 4"):
        guess(np.zeros(3), np.ones(3, dtype=bool), guesses=4)
    outcome = Guesses(canaries=5, guesses=5, correct=5)
    with pytest.raises(PrivacyError, match="strictly between"):
        one_run_fdp_bound(outcome, delta=0, confidence=0.95)
    with pytest.raises(InvalidInput, match="confidence is 0"):
        one_run_bound(outcome, delta=0, confidence=0)
