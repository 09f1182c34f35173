"""Audits of discrete noise: a sound system passes the curious neighbour and the tests of its noise.

Width 8, a grid as coarse as C, and a canary with the same share of every axis: rounding makes it 1.7 C long on average. That noise covers rounding is tested in `test_audit_check_noise.py` and, without an audit, in
`tests/privacy/test_discrete.py`.
"""

import networkx as nx
import numpy as np
import pytest
from scipy.stats import kstest

from tacit import DSGD, Discrete, Privacy
from tacit.audit.attacks.collection import collect
from tacit.audit.attacks.neighbor import Neighbor
from tacit.audit.attacks.worlds import dirac, noise_world
from tacit.audit.bounds.discrete import Grid, least_epsilon, renyi_deltas
from tacit.audit.bounds.findings import Claim, judge
from tacit.audit.bounds.rates import Outcomes
from tacit.audit.bounds.tradeoff import event_curve, tradeoff_bound
from tacit.audit.noise.check import NoiseCheck
from tacit.audit.noise.discrete_scores import normal_scores
from tacit.audit.noise.report import AgentNoise, Estimate
from tacit.errors import PrivacyError
from tacit.experiments.trials import read_event, write_event
from tacit.privacy import Event, Fast, epsilon

DELTA, RUNS = 1e-2, 100


@pytest.mark.slow
@pytest.mark.chance(1e-7)
def test_sound_system_with_discrete_noise_passes():
    privacy = Privacy(epsilon=1.0, delta=DELTA, clip=1.0, lot_size=2, accountant="rdp", noise=Discrete(0))
    graph = nx.complete_graph(3)
    world = dirac(DSGD(), privacy=privacy, rounds=20, lr=0.05, graph=graph, records=20, dense=True)
    neighbor = Neighbor(world=world, observers=[1])
    claim = Claim.of(neighbor.event, DELTA, neighbor.grid)
    findings = judge(collect(neighbor, RUNS, batch=RUNS), claim, confidence=1 - 1e-7)
    assert findings.verdict == "no violation found", findings.to_json()["thresholds"]


def test_reports_and_rows_count_discrete_noise_as_such():
    event = Event(sample_rate=0.05, noise_multiplier=0.6, count=40, discrete=True)
    assert read_event(write_event(event)) == event
    privacy = Privacy(noise_multiplier=0.6, delta=1e-5, clip=1.0, lot_size=50, accountant="rdp", noise=Discrete(8))
    sigma, rate = (Estimate(stated=value, estimate=value, low=value, high=value) for value in (0.6, 0.05))
    found = AgentNoise(agent=0, sigma=sigma, rate=rate, queries=40, privacy=privacy).epsilon.stated
    assert found == epsilon([event], delta=1e-5, accountant="rdp") == pytest.approx(11.607, abs=1e-3)


def test_size_of_discrete_noise_is_compared_in_the_units_in_which_it_is_stated():
    """Rounding makes vectors up to 1.37 C long here; an estimate in units of C would be as much too large. The seed is fixed."""
    privacy = Privacy(noise_multiplier=1.0, delta=DELTA, clip=1.0, lot_size=2, accountant="rdp", noise=Discrete(3))
    world = noise_world(DSGD(), privacy=privacy, rounds=20, lr=0.05, graph=nx.complete_graph(3))
    report = NoiseCheck(world=world, observers=[1], sources=Fast(1)).run(10)
    assert "sigma" not in [check.name for check in report.failed]
    assert report.agents[0].sigma.high < 1.3


@pytest.mark.chance(1e-6)
def test_a_coarse_grid_is_not_taken_for_a_fault():
    """At zero bits the step is as long as C, nearly the size of the noise."""
    privacy = Privacy(noise_multiplier=0.3, delta=DELTA, clip=1.0, lot_size=2, accountant="rdp", noise=Discrete(0))
    world = noise_world(DSGD(), privacy=privacy, rounds=20, lr=0.05, graph=nx.complete_graph(3))
    check = NoiseCheck(world=world, observers=[1], false_alarm=1e-6)
    assert check.run(6).failed == ()


def test_discrete_noise_becomes_normal_at_any_size():
    """Made from the probabilities themselves, by another way than `normal_scores`. The seed is fixed."""
    chance = np.random.default_rng(3)
    for deviation in (0.6, 1.0, 20.0):
        numbers = np.arange(-400, 401)
        weights = np.exp(-((numbers / deviation) ** 2) / 2)
        drawn = chance.choice(numbers, size=20_000, p=weights / weights.sum())
        assert kstest(normal_scores(drawn, deviation, chance), "norm").pvalue > 1e-6
        assert kstest(normal_scores(drawn, 0.8 * deviation, chance), "norm").pvalue < 1e-6


@pytest.mark.chance(1e-6)
def test_noise_on_a_coarse_grid_is_as_stated():
    """The grid is as coarse as C."""
    privacy = Privacy(noise_multiplier=1.0, delta=DELTA, clip=1.0, lot_size=2, accountant="rdp", noise=Discrete(0))
    world = noise_world(DSGD(), privacy=privacy, rounds=10, lr=0.05, graph=nx.complete_graph(3))
    assert NoiseCheck(world=world, observers=[1], false_alarm=1e-6).run(10).verdict == "as stated"


@pytest.mark.parametrize("steps", [1, 3, 40])
@pytest.mark.parametrize("rate", [0.2, 1.0])
def test_the_curve_of_discrete_noise_lies_below_the_exact_one(steps, rate):
    """One query of a record along one axis, where the best test can be computed: the curve by Rényi divergences is never above it."""
    event = Event(sample_rate=rate, noise_multiplier=0.8, count=1, discrete=True)
    numbers = np.arange(-60 * steps, 61 * steps + 1)
    absent, drawn = (np.exp(-((numbers - at) ** 2) / (2 * (0.8 * steps) ** 2)) for at in (0, steps))
    absent, drawn = absent / absent.sum(), drawn / drawn.sum()
    present = (1 - rate) * absent + rate * drawn
    curve = event_curve(event)
    for one, other in ((absent, present), (present, absent)):
        order = np.argsort(-other / np.maximum(one, 1e-300), kind="stable")
        alarms, misses = np.cumsum(one[order]), 1 - np.cumsum(other[order])
        assert all(curve(alarm) <= miss + 1e-9 for alarm, miss in zip(alarms, misses, strict=True))


@pytest.mark.parametrize("bits", [0, 3, 8])
def test_what_a_refuted_discrete_noise_has_at_least_is_below_what_is_stated_and_close(bits):
    privacy = Privacy(
        noise_multiplier=1.3, delta=1e-4, clip=1.5, lot_size=5, accountant="rdp", noise=Discrete(bits, room=1.7)
    )
    mechanism = privacy.plan([50], 20).mechanism(0)
    event, grid = mechanism.event(20), Grid.of(mechanism)
    assert grid.steps <= 1.5 / mechanism.noise.rounding.step(1.5) < grid.steps + 1
    least, stated = least_epsilon(event, grid, 1e-4), epsilon([event], delta=1e-4)
    assert 0 < least < stated
    like = Event(
        sample_rate=0.1, noise_multiplier=1.3 * grid.bound / grid.steps, count=20
    )  # continuous, as wide and as far apart
    assert least == pytest.approx(epsilon([like], delta=1e-4), rel=0.02)


def test_bounds_of_discrete_noise_need_its_grid_and_never_exceed_those_of_a_sound_system():
    event = Event(sample_rate=1.0, noise_multiplier=2.0, count=4, discrete=True)
    few = Outcomes(absent=2000, false_alarms=640, present=2000, misses=640)  # the best test has 31 %
    with pytest.raises(PrivacyError, match="depends on its grid"):
        tradeoff_bound(few, event, delta=DELTA, confidence=0.95)
    grid = Grid(steps=8, bound=9.0)
    bound = tradeoff_bound(few, event, delta=DELTA, confidence=0.95, grid=grid)
    assert 0 < bound.epsilon < epsilon([event], delta=DELTA)
    assert bound.noise_multiplier > event.noise_multiplier
    perfect = Outcomes(absent=2000, false_alarms=0, present=2000, misses=0)
    assert tradeoff_bound(perfect, event, delta=DELTA, confidence=0.95, grid=grid).epsilon > epsilon(
        [event], delta=DELTA
    )
    assert (np.diff(renyi_deltas(event, np.linspace(0, 5, 20))) <= 0).all()
