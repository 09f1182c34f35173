"""Faults are planted here, by sources that draw otherwise than they should; none of them is in the library."""

import json
from dataclasses import dataclass, replace
from itertools import count

import networkx as nx
import numpy as np
import pytest
import torch
from scipy.stats import norm

from tacit.algorithms import DSGD, DSGT, Local, Momentum
from tacit.audit.attacks.worlds import dirac, images, noise_world
from tacit.audit.noise.check import NoiseCheck
from tacit.audit.noise.lot_statistics import Draws, rate_interval, rate_p_value, spread_p_value
from tacit.audit.noise.report import TESTS
from tacit.data import load
from tacit.errors import InvalidInput
from tacit.graphs import complete, path, ring
from tacit.privacy import Fast, Privacy
from tacit.privacy.noise import grid

TRIALS, ROUNDS = 40, 12
PRIVACY = Privacy(noise_multiplier=1.2, delta=1e-5, clip=2.0, lot_size=10)


@dataclass(frozen=True)
class Faulty:
    """Sources with one fault each, from a seed."""

    fault: str = "none"
    size: float = 1.0
    secret = False

    def make(self, agents, trial=0):
        return [FaultySource(self, trial, agent) for agent in range(agents)]


class FaultySource:
    def __init__(self, how, trial, agent):
        self.how, self.trial, self.agent, self.position = how, trial, agent, 0

    def next(self):
        self.position += 1
        return FaultyStream(self.how, self.trial, self.agent, self.position)


class FaultyStream:
    def __init__(self, how, trial, agent, query):
        self.how, self.agent = how, agent
        shared = {
            "none": (trial, agent, query),
            "same every round": (trial, agent, 0),
            "every other round": (trial, agent, query % 2),
            "shared by agents": (trial, 0, query),
            "same every run": (0, agent, query),
            "a round late": (trial, 0, query + agent),
            "moved along the axes": (trial, 0, query),
        }
        self.lots = np.random.default_rng([1, trial, agent, query])
        self.noise = np.random.default_rng([2, *shared.get(how.fault, shared["none"])])

    def words(self, records):
        if self.how.fault == "lots of one size":
            words = np.full(records, 2**64 - 1, dtype=np.uint64)
            words[self.lots.choice(records, 10, replace=False)] = 0
            return words
        words = self.lots.integers(0, 2**64, size=records, dtype=np.uint64)
        return np.minimum(words / self.how.size, 2.0**63).astype(np.uint64) if self.how.fault == "rate" else words

    def normals(self, width):
        draws = {
            "size": lambda: self.how.size * self.noise.standard_normal(width),
            "one agent without": lambda: (self.agent != 1) * self.noise.standard_normal(width),
            "uniform": lambda: self.noise.uniform(-(3**0.5), 3**0.5, width),
            "moved along the axes": lambda: np.roll(self.noise.standard_normal(width), self.agent),
            "cut off": lambda: np.clip(self.noise.standard_normal(width), -2.7, 2.7),
        }
        return draws.get(self.how.fault, lambda: self.noise.standard_normal(width))()


def check(sources, rule=None, graph=None, make=noise_world, observers=(1,), **settings):
    graph = complete(3) if graph is None else graph
    world = make(rule or DSGD(), privacy=PRIVACY, rounds=ROUNDS, graph=graph, **settings)
    return NoiseCheck(world=world, observers=observers, sources=sources)


def failed(report):
    return {(each.name, each.agents) for each in report.failed}


@pytest.mark.chance(2e-9)
@pytest.mark.parametrize(
    ("make", "rule", "graph", "observers"),
    [
        (noise_world, DSGD(), complete(3), [1]),
        (noise_world, DSGD(step=Momentum(0.9)), ring(4), [1, 3]),
        (dirac, DSGT(), complete(3), [2]),
    ],
)
def test_secret_noise_is_as_stated(make, rule, graph, observers):
    """Tests fail with 1e-9 together, and intervals, which share that with more tests than there are intervals, miss no oftener."""
    world = make(rule, privacy=PRIVACY, rounds=ROUNDS, graph=graph)
    attack = NoiseCheck(world=world, observers=observers, false_alarm=1e-9)
    assert set(attack.seen) >= {0, *observers}
    report = attack.run(TRIALS)
    assert report.verdict == "as stated"
    assert all(each.sigma.low < PRIVACY.noise_multiplier < each.sigma.high for each in report.agents)
    assert all(each.rate.low < 0.1 < each.rate.high for each in report.agents)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Faulty("size", 0.5), {("sigma", (0,)), ("sigma", (1,)), ("sigma", (2,)), ("shape", (0,))}),
        (Faulty("size", 0.9), {("sigma", (0,))}),
        (Faulty("same every round"), {("lag", (0,)), ("rounds", (0,)), ("repeats", (0, 1, 2))}),
        (Faulty("every other round"), {("rounds", (0,)), ("repeats", (0, 1, 2))}),
        (Faulty("same every run"), {("trials", (0,)), ("repeats", (0, 1, 2))}),
        (Faulty("shared by agents"), {("agents", (0, 1)), ("agents", (1, 2)), ("repeats", (0, 1, 2))}),
        (Faulty("a round late"), {("repeats", (0, 1, 2))}),
        (Faulty("moved along the axes"), {("shifts", (0, 1)), ("shifts", (1, 2))}),
        (Faulty("one agent without"), {("sigma", (1,)), ("shape", (1,))}),
        (Faulty("rate", 1.3), {("rate", (0,)), ("rate", (1,))}),
        (Faulty("rate", 0.7), {("rate", (0,)), ("rate", (1,))}),
        (Faulty("uniform"), {("shape", (0,)), ("tail", (0,))}),
        (Faulty("cut off"), {("tail", (0,))}),
        (Faulty("lots of one size"), {("lots", (0,))}),
    ],
    ids=lambda value: f"{value.fault} {value.size}" if isinstance(value, Faulty) else "",
)
def test_a_planted_fault_is_found_and_named(fault, expected):
    report = check(fault).run(TRIALS)
    assert report.verdict == "not as stated"
    assert expected <= failed(report)


def test_the_same_sources_without_a_fault_pass():
    assert check(Faulty()).run(TRIALS).verdict == "as stated"


def test_only_the_agent_without_noise_is_named():
    report = check(Faulty("one agent without")).run(10)
    assert {agents for name, agents in failed(report) if name in ("sigma", "shape")} == {(1,)}
    assert report.agent(1).sigma.high < 1e-3
    assert report.agent(1).epsilon.at_least > 100 * report.agent(0).epsilon.stated


def test_halved_noise_is_measured_and_its_epsilon_derived():
    agent = check(Faulty("size", 0.5)).run(TRIALS).agent(0)
    assert agent.sigma.low < 0.6 < agent.sigma.high < 0.65
    assert agent.epsilon.stated < agent.epsilon.at_least < agent.epsilon.estimate


def test_a_wrong_rate_is_measured():
    agent = check(Faulty("rate", 1.3)).run(TRIALS).agent(0)
    assert agent.rate.low < 0.13 < agent.rate.high
    assert agent.rate.high - agent.rate.low < 0.02
    assert agent.rate.stated == 0.1


def test_p_values_of_a_sound_system_are_spread_evenly():
    """The seeds are fixed, so there is no false alarm; bounds are left out."""
    world = noise_world(DSGD(), privacy=PRIVACY, rounds=3, graph=complete(3))
    values = np.array(
        [
            each.p_value
            for seed in range(12)
            for each in NoiseCheck(world=world, observers=[1], sources=Fast(seed)).run(4, seed=seed).checks
            if each.name not in ("repeats", "rate", "lots", "shifts")
        ]
    )
    assert (values < 0.01).mean() < 0.03
    assert 0.45 < values.mean() < 0.55


@pytest.mark.parametrize("rate", [0.0005, 0.02])
@pytest.mark.parametrize("sigma", [0.2, 1.0])
def test_p_values_of_lots_are_never_too_small_however_few_are_drawn(rate, sigma):
    """From 1 draw in all to 40. The seed is fixed, so there is no false alarm."""
    rng, audits, answers, records = np.random.default_rng(0), 600, 20, 100
    pulls = np.ones(records)
    found = []
    for _ in range(audits):
        counted = rng.binomial(records, rate, size=answers) + sigma * rng.standard_normal(answers)
        drawn = Draws(answers=counted, pulls=pulls)
        found.append((rate_p_value(drawn, rate, sigma), spread_p_value(drawn, rate, sigma)))
    for level in (0.3, 0.1, 0.03):
        share = (np.array(found) < level).mean(axis=0)
        assert (share <= level).all()


def test_p_values_of_lots_follow_the_exact_tail():
    """One answer and one record: a mixture of two normals. The bound is above the exact tail, and not far."""
    exact = 2 * (0.9 * norm.sf(3.0 / 0.5) + 0.1 * norm.sf(2.0 / 0.5))
    drawn = Draws(answers=np.array([3.0]), pulls=np.array([1.0]))
    assert exact < rate_p_value(drawn, 0.1, 0.5) < 30 * exact


def test_the_interval_of_a_rate_holds_it():
    """Unlike pulls, too; each of 300 intervals misses with probability 0.1 at most, and the seed is fixed."""
    rng, pulls = np.random.default_rng(0), np.linspace(-0.2, 1.0, 50)
    inside = 0
    for _ in range(300):
        lots = rng.random((30, 50)) < 0.05
        drawn = Draws(answers=lots @ pulls + 0.3 * rng.standard_normal(30), pulls=pulls)
        low, high = rate_interval(drawn, 0.3, 0.1)
        assert 0 <= low <= max(drawn.rate, 0) <= high <= 1
        inside += low <= 0.05 <= high
    assert inside >= 270
    assert not drawn.alike


def test_the_report_is_plain_data():
    report = check(Faulty("uniform"), graph=complete(2)).run(TRIALS)
    plain = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert plain["verdict"] == "not as stated"
    assert [each["agent"] for each in plain["agents"]] == [0, 1]
    assert all(each["meaning"] == TESTS[each["name"]][1] for each in plain["failed"])
    assert {each["name"] for each in plain["checks"]} == set(TESTS) - {"sum"}  # of masks
    assert plain["threshold"] == pytest.approx(1e-3 / len(plain["checks"]))


def test_recovered_answers_are_those_of_the_oracle():
    """Noise without randomness: the k-th normals of an agent are all k."""

    class Counting(Faulty):
        def make(self, agents, trial=0):
            return [CountingSource() for _ in range(agents)]

    class CountingSource:
        def __init__(self):
            self.numbers = count()

        def next(self):
            stream = FaultyStream(Faulty(), 0, 0, 0)
            number = next(self.numbers)
            stream.normals = lambda width: np.full(width, float(number))
            return stream

    attack = check(Counting(), DSGT(), ring(4), observers=[1, 3])
    noise = attack._play(2, seed=0)[0][0]
    answers, error = noise.bare * noise.sigma, noise.rounding * noise.sigma
    step = grid(PRIVACY.noise_multiplier * PRIVACY.clip) / PRIVACY.clip
    expected = PRIVACY.noise_multiplier * torch.arange(float(ROUNDS), dtype=torch.float64)
    expected = step * (expected / step).round()
    assert torch.allclose(answers[:, :, 0], expected.expand(2, -1), atol=1e-3)
    assert (answers[:, :, 0] - expected).abs().max() < error


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: check(None, graph=path(4), observers=[3]), "cannot reconstruct all answers of agent 0"),
        (lambda: check(None, make=dirac, pull=0.5), "lie along every axis"),
        (lambda: check(None, rule=Local()), "cannot reconstruct"),
        (lambda: check(None).run(1), "trials is 1"),
        (lambda: far_from_zero().run(2), "rounding of messages"),
        (lambda: NoiseCheck(world=image_world(), observers=[1]), "noise_world or dirac"),
    ],
)
def test_what_cannot_be_checked_is_refused(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()


def test_a_single_query_is_too_few():
    world = noise_world(DSGD(), privacy=PRIVACY, rounds=1, graph=nx.complete_graph(3))
    with pytest.raises(InvalidInput, match="one query"):
        NoiseCheck(world=world, observers=[1]).run(3)


def far_from_zero():
    attack = check(None, lr=1e-8)
    return replace(attack, world=replace(attack.world, model=torch.nn.Linear(8, 1, bias=False)))


def image_world():
    return images(load("digits"), DSGD(), privacy=PRIVACY, rounds=1, lr=0.1)
