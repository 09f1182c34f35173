import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import beta, binom, norm

from tacit.audit.bounds.rates import (
    Outcomes,
    choose_threshold,
    clopper_pearson_bound,
    count,
    gaussian_bound,
    gaussian_epsilon,
    held_out,
    upper_rate,
    upper_rates,
)
from tacit.audit.bounds.tradeoff import event_curve, gaussian_curve, tradeoff_bound
from tacit.errors import InvalidInput, PrivacyError
from tacit.privacy.accounting import epsilon
from tacit.privacy.calibration import noise_multiplier
from tacit.privacy.event import Event

LOTS = {"sample_rate": 0.1, "count": 100}
AT = {"delta": 1e-2, "confidence": 0.95}
PERFECT = Outcomes(absent=1000, false_alarms=0, present=1000, misses=0)
USELESS = Outcomes(absent=1000, false_alarms=500, present=1000, misses=500)


def calibrated():
    sigma = noise_multiplier(epsilon=1, delta=1e-2, sample_rate=0.1, queries=100)
    return Event(noise_multiplier=sigma, **LOTS)


def likelihood_ratios(event, runs, rng, *, present):
    """Σ_k log(1 - q + q·exp((2s_k - 1)/2σ²)), with s_k = b_k + σN, of runs with the record (b_k drawn) or without."""
    sigma, rate = event.noise_multiplier, event.sample_rate
    seen = sigma * rng.standard_normal((runs, event.count))
    if present:
        seen += rng.random(seen.shape) < rate
    return np.log(1 - rate + rate * np.exp((2 * seen - 1) / (2 * sigma**2))).sum(axis=1)


@pytest.mark.parametrize(
    ("errors", "runs", "upper"), [(0, 10, 0.3085), (5, 10, 0.8129), (1, 20, 0.2487), (10, 10, 1.0), (10, 100, 0.1762)]
)
def test_upper_rates_are_those_of_the_tables(errors, runs, upper):
    """The upper ends of two-sided 95 % intervals, 2.5 % on this side."""
    assert float(upper_rate(np.array(errors), runs, 0.025)) == pytest.approx(upper, abs=5e-5)


def test_upper_rates_have_the_defining_tail():
    errors = np.arange(0, 50)
    rates = upper_rate(errors, 50, 0.01)
    assert np.allclose(binom.cdf(errors, 50, rates), 0.01, rtol=1e-9)
    assert np.allclose(rates, beta.ppf(0.99, errors + 1, 50 - errors))


def test_a_perfect_attack_is_limited_by_its_runs():
    rate = 1 - 0.025 ** (1 / 1000)
    bound = clopper_pearson_bound(PERFECT, delta=1e-5, confidence=0.95)
    assert bound.epsilon == pytest.approx(math.log((1 - 1e-5 - rate) / rate))
    assert bound.epsilon == pytest.approx(5.601, abs=1e-3)
    assert bound.miss_rate == pytest.approx(rate)
    assert (bound.method, bound.adjacency) == ("clopper_pearson", "add_remove")


@pytest.mark.parametrize("outcomes", [USELESS, Outcomes(absent=9, false_alarms=9, present=9, misses=9)])
def test_an_attack_that_shows_nothing_gives_zero(outcomes):
    assert clopper_pearson_bound(outcomes, **AT).epsilon == 0
    assert gaussian_bound(outcomes, **AT).epsilon == 0
    bound = tradeoff_bound(outcomes, Event(noise_multiplier=1, **LOTS), **AT)
    assert (bound.epsilon, bound.noise_multiplier, bound.capped) == (0, None, False)


def test_the_two_errors_may_be_exchanged():
    one = Outcomes(absent=800, false_alarms=3, present=500, misses=200)
    other = Outcomes(absent=500, false_alarms=200, present=800, misses=3)
    event = Event(noise_multiplier=1, **LOTS)
    assert clopper_pearson_bound(one, **AT).epsilon == clopper_pearson_bound(other, **AT).epsilon
    assert gaussian_bound(one, **AT).epsilon == gaussian_bound(other, **AT).epsilon
    assert tradeoff_bound(one, event, **AT).epsilon == tradeoff_bound(other, event, **AT).epsilon


@pytest.mark.parametrize(("mu", "delta"), [(0.01, 1e-5), (1.0, 1e-5), (0.5, 1e-2), (8.0, 1e-9), (60.0, 1e-5)])
def test_gaussian_epsilon_solves_its_equation(mu, delta):
    found = gaussian_epsilon(mu, delta)
    far = math.exp(found + norm.logcdf(-mu / 2 - found / mu))
    assert norm.cdf(mu / 2 - found / mu) - far == pytest.approx(delta, rel=1e-6)


def test_gaussian_epsilon_agrees_with_the_accountant():
    events = [Event(sample_rate=1.0, noise_multiplier=2.0, count=3)]
    assert gaussian_epsilon(math.sqrt(3) / 2, 1e-5) == pytest.approx(epsilon(events, delta=1e-5), rel=3e-4)
    assert gaussian_epsilon(1e-3, 0.1) == 0


def test_gaussian_bound_comes_near_the_truth_and_not_above():
    """One run above the truth has probability below 5 %; the seed is fixed."""
    rng = np.random.default_rng(1)
    absent, present = rng.standard_normal(20_000), rng.standard_normal(20_000) + 1
    bound = gaussian_bound(held_out(absent, present, delta=1e-5, confidence=0.95)[1], delta=1e-5, confidence=0.95)
    assert 0.9 * gaussian_epsilon(1.0, 1e-5) < bound.epsilon < gaussian_epsilon(1.0, 1e-5)
    assert 0.9 < bound.mu < 1


def test_bounds_exceed_the_truth_no_oftener_than_stated():
    """Randomised response for any mechanism, Gaussian noise for Gaussian DP. The seed is fixed."""
    rng, times, runs = np.random.default_rng(2), 2000, 300
    allowed = binom.isf(1e-6, times, 0.1)
    wrong = 1 / (1 + math.e)
    gaussian_wrong = norm.cdf(-0.5)
    above = gaussian_above = 0
    for _ in range(times):
        alarms, misses = rng.binomial(runs, wrong, 2)
        outcomes = Outcomes(absent=runs, false_alarms=alarms, present=runs, misses=misses)
        above += clopper_pearson_bound(outcomes, delta=0, confidence=0.9).epsilon > 1
        alarms, misses = rng.binomial(runs, gaussian_wrong, 2)
        outcomes = Outcomes(absent=runs, false_alarms=alarms, present=runs, misses=misses)
        gaussian_above += gaussian_bound(outcomes, delta=1e-2, confidence=0.9).mu > 1
    assert above <= allowed
    assert gaussian_above <= allowed


def test_scores_above_the_threshold_are_called_present():
    outcomes = count(np.array([0.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0, 4.0]), 1.0)
    assert outcomes == Outcomes(absent=3, false_alarms=1, present=4, misses=1)


@pytest.mark.parametrize("criterion", ["clopper_pearson", "gaussian"])
def test_the_threshold_is_the_best_of_all(criterion):
    rng = np.random.default_rng(3)
    absent, present = rng.standard_normal(60).round(1), rng.standard_normal(50).round(1) + 1
    chosen = choose_threshold(absent, present, delta=0.01, confidence=0.95, criterion=criterion)

    def value(threshold):
        outcomes = count(absent, present, threshold)
        strict = 1 - 0.05 / 50
        if criterion == "gaussian":
            alarm, miss = upper_rates(outcomes, strict)
            return -norm.ppf(alarm) - norm.ppf(miss)
        return clopper_pearson_bound(outcomes, delta=0.01, confidence=strict).epsilon

    best = max(value(threshold) for threshold in np.concatenate([absent, present]))
    assert value(chosen) == pytest.approx(best)


def test_held_out_counts_only_the_rest():
    """The first fifth alone sets the threshold: the rest may be anything."""
    absent, present = np.zeros(50), np.ones(50)
    absent[10:], present[10:] = 5.0, -5.0
    _, outcomes = held_out(absent, present, **AT)
    assert outcomes == Outcomes(absent=40, false_alarms=40, present=40, misses=40)


def test_the_curve_of_full_lots_is_gaussian_and_symmetric():
    curve, exact = event_curve(Event(sample_rate=1.0, noise_multiplier=4.0, count=4)), gaussian_curve(0.5)
    for alarm in (1e-4, 1e-2, 0.2, 0.5, 0.9, 0.999):
        miss = exact(alarm)
        assert miss - 2e-5 < curve(alarm) < miss + 1e-9
        assert alarm - 2e-5 < curve(miss) < alarm + 1e-9


def test_no_likelihood_ratio_test_passes_below_the_curve_and_the_best_comes_near():
    """Within four standard deviations of each of seven rates; the seed is fixed."""
    event, runs, rng = calibrated(), 20_000, np.random.default_rng(4)
    curve = event_curve(event)
    absent, present = (likelihood_ratios(event, runs, rng, present=side) for side in (False, True))
    for threshold in np.quantile(absent, [0.05, 0.2, 0.5, 0.7, 0.9, 0.97, 0.99]):
        found = count(absent, present, threshold)
        alarm, miss = found.false_alarms / runs, found.misses / runs
        slope = (curve(alarm - 1e-3) - curve(alarm + 1e-3)) / 2e-3
        noise = math.sqrt((miss * (1 - miss) + slope**2 * alarm * (1 - alarm)) / runs)
        assert abs(miss - curve(alarm)) < 4 * noise + 3e-3


@pytest.mark.parametrize("outcomes", [PERFECT, Outcomes(absent=5000, false_alarms=700, present=4000, misses=2000)])
def test_full_lots_give_the_gaussian_bound(outcomes):
    event = Event(sample_rate=1.0, noise_multiplier=3.0, count=10)
    gaussian = gaussian_bound(outcomes, delta=1e-5, confidence=0.95)
    bound = tradeoff_bound(outcomes, event, delta=1e-5, confidence=0.95)
    assert 0.997 * gaussian.epsilon < bound.epsilon < 1.0005 * gaussian.epsilon
    assert math.sqrt(10) / bound.noise_multiplier == pytest.approx(gaussian.mu, rel=2e-3)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_tradeoff_bound_finds_most_of_epsilon_and_never_more(seed):
    """The truth is 1. Each seed could pass it with probability 5 %, and does not."""
    event, rng = calibrated(), np.random.default_rng(seed)
    absent, present = (likelihood_ratios(event, 20_000, rng, present=side) for side in (False, True))
    bound = tradeoff_bound(held_out(absent, present, **AT)[1], event, **AT)
    plain = clopper_pearson_bound(held_out(absent, present, criterion="clopper_pearson", **AT)[1], **AT)
    print(f"truth 1, tradeoff {bound.epsilon:.3f}, Clopper-Pearson {plain.epsilon:.3f}")
    assert 0.75 < bound.epsilon < 1
    assert plain.epsilon < bound.epsilon


def test_the_true_noise_is_refuted_no_oftener_than_stated():
    """At the best point of the true curve; the seed is fixed."""
    curve, rng = event_curve(calibrated()), np.random.default_rng(5)
    refuted = 0
    for _ in range(2000):
        alarms, misses = rng.binomial(1000, [0.2, curve(0.2)])
        found = Outcomes(absent=1000, false_alarms=int(alarms), present=1000, misses=int(misses))
        alarm, miss = upper_rates(found, 0.9)
        refuted += miss < curve(alarm)
    assert refuted <= binom.isf(1e-6, 2000, 0.1)


@pytest.mark.parametrize(("alarms", "misses"), [(20, 200), (100, 130), (0, 380), (350, 0), (150, 200)])
@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_the_noise_of_a_bound_is_the_least_that_is_refuted(alarms, misses, rate):
    """Whatever was drawn before: the curve of the noise is refuted, that of the next lower on the grid is not."""
    event = Event(sample_rate=rate, noise_multiplier=1.0, count=10)
    outcomes = Outcomes(absent=400, false_alarms=alarms, present=400, misses=misses)
    bound = tradeoff_bound(outcomes, event, **AT)
    assert not bound.capped
    at, below = (
        event_curve(replace(event, noise_multiplier=bound.noise_multiplier / step))(bound.false_alarm_rate)
        for step in (1.0, 1.001)
    )
    assert below <= bound.miss_rate < at


def test_rates_that_no_noise_explains_are_capped():
    """A record drawn once in twenty cannot be seen in all runs, however little the noise."""
    bound = tradeoff_bound(PERFECT, Event(sample_rate=0.05, noise_multiplier=1.0), delta=1e-5, confidence=0.95)
    assert bound.capped
    assert bound.noise_multiplier == 0.25
    assert 0 < bound.epsilon < math.inf


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ((0, 0, 5, 0), "absent is 0"),
        ((5, 0, 0, 0), "present is 0"),
        ((5, 6, 5, 0), "false_alarms is 6"),
        ((5, 0, 5, -1), "misses is -1"),
    ],
)
def test_impossible_counts_are_refused(counts, words):
    with pytest.raises(InvalidInput, match=words):
        Outcomes(**dict(zip(("absent", "false_alarms", "present", "misses"), counts, strict=True)))


def test_bad_settings_are_refused():
    scores = np.array([0.0, 1.0])
    with pytest.raises(InvalidInput, match="confidence is 1"):
        clopper_pearson_bound(PERFECT, delta=0, confidence=1)
    with pytest.raises(PrivacyError, match="delta is 1"):
        clopper_pearson_bound(PERFECT, delta=1, confidence=0.9)
    for bound in (gaussian_bound, lambda outcomes, **at: tradeoff_bound(outcomes, calibrated(), **at)):
        with pytest.raises(PrivacyError, match="strictly between"):
            bound(PERFECT, delta=0, confidence=0.9)
    with pytest.raises(PrivacyError, match="no queries"):
        tradeoff_bound(PERFECT, Event(sample_rate=0.1, noise_multiplier=1, count=0), **AT)
    with pytest.raises(InvalidInput, match="absent scores"):
        choose_threshold(np.array([math.nan]), scores, **AT)
    with pytest.raises(InvalidInput, match="did you mean 'gaussian'"):
        choose_threshold(scores, scores, criterion="gausian", **AT)
    with pytest.raises(InvalidInput, match="share is 1"):
        held_out(scores, scores, share=1.0, **AT)
    with pytest.raises(InvalidInput, match="not one of each"):
        held_out(scores, scores, share=0.1, **AT)
