"""How far masks protect, against brute force: every coalition, and noise that is drawn."""

import itertools

import networkx as nx
import numpy as np
import pytest

from tacit.errors import PrivacyError
from tacit.privacy import coalitions
from tacit.privacy.coalitions import protection
from tacit.privacy.keys import Keys


def obvious(own, mask, graph, agent, curious):
    """1/[Σ_H⁻¹]_ii, of one coalition."""
    honest = [other for other in sorted(graph) if other not in curious]
    covariance = np.zeros((len(honest), len(honest)))
    for place, other in enumerate(honest):
        covariance[place, place] += own[other]
    for one, two in graph.subgraph(honest).edges():
        a, b = honest.index(one), honest.index(two)
        covariance[a, a] += mask
        covariance[b, b] += mask
        covariance[a, b] -= mask
        covariance[b, a] -= mask
    return 1 / np.linalg.inv(covariance)[honest.index(agent), honest.index(agent)]


def worst(own, mask, graph, agent, curious):
    others = [other for other in graph if other != agent]
    return min(obvious(own, mask, graph, agent, some) for some in itertools.combinations(others, curious))


def drawn_systems(count, seed):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        agents = int(rng.integers(3, 8))
        graph = nx.gnp_random_graph(agents, rng.uniform(0.3, 1), seed=int(rng.integers(10**9)))
        yield rng.uniform(0.05, 2, agents), float(rng.uniform(0.01, 30)), graph


@pytest.mark.parametrize("curious", [0, 1, 2, 3])
def test_protection_is_that_of_the_worst_coalition(curious):
    for own, mask, graph in drawn_systems(40, seed=curious):
        if curious > len(graph) - 1:
            continue
        found = protection(own, mask, Keys.of(graph), curious).variances
        assert found == pytest.approx([worst(own, mask, graph, agent, curious) for agent in graph], rel=1e-9)


@pytest.mark.parametrize("curious", [0, 1, 2])
def test_the_bound_for_many_agents_is_never_above_the_truth_nor_below_own_noise(curious, monkeypatch):
    for own, mask, graph in drawn_systems(40, seed=10 + curious):
        if len(graph) - 1 <= curious or Keys.of(graph).pairs is None:
            continue
        exact = protection(own, mask, Keys.of(graph), curious).variances
        with monkeypatch.context() as patched:
            patched.setattr(coalitions, "_MOST_WORK", 0)
            bound = protection(own, mask, Keys.of(graph), curious).variances
        assert (bound <= exact * (1 + 1e-9)).all()
        assert (bound >= own * (1 - 1e-12)).all()


def test_the_bound_is_nearly_exact_on_a_long_ring(monkeypatch):
    """What is far away hardly matters, so half a ring conducts as well as all of it but one agent."""
    keys, own = Keys.of(nx.cycle_graph(40)), np.full(40, 0.2)
    exact = protection(own, 9.0, keys, 1).variances
    monkeypatch.setattr(coalitions, "_MOST_WORK", 0)
    assert protection(own, 9.0, keys, 1).variances == pytest.approx(exact, rel=0.02)


def test_slopes_are_the_derivatives_by_own_noise():
    for own, mask, graph in drawn_systems(10, seed=20):
        found = protection(own, mask, Keys.of(graph), 1)
        for other in graph:
            moved = own.copy()
            moved[other] *= 1 + 1e-7
            change = protection(moved, mask, Keys.of(graph), 1).variances - found.variances
            assert change / (own[other] * 1e-7) == pytest.approx(found.slopes[:, other], abs=1e-5)


def test_noise_that_is_drawn_has_this_covariance():
    """A coalition takes its own masks out and whitens what is left: it sees the target's shift as 1/protection says.

    The estimate is within 5 standard errors of the truth; the seed is fixed.
    """
    graph, draws = nx.cycle_graph(6), 200_000
    own, mask, agent, curious = np.array([0.3, 0.5, 0.2, 0.4, 0.6, 0.3]), 2.0, 0, (2,)
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(6, draws)) * np.sqrt(own)[:, None]
    for low, high in graph.edges():
        if not {low, high} & set(curious):  # the others are known to the coalition
            shared = rng.normal(size=draws) * np.sqrt(mask)
            noise[low] += shared
            noise[high] -= shared
    honest = [other for other in graph if other not in curious]
    sampled = np.cov(noise[honest])
    information = np.linalg.inv(sampled)[honest.index(agent), honest.index(agent)]
    assert 1 / information == pytest.approx(obvious(own, mask, graph, agent, curious), rel=5 * np.sqrt(2 / draws))


def test_between_two_curious_neighbours_on_a_ring_nothing_but_own_noise_is_left():
    graph, own = nx.cycle_graph(10), np.full(10, 0.1)
    assert obvious(own, 25.0, graph, 1, (0, 2)) == pytest.approx(0.1, rel=1e-12)
    assert protection(own, 25.0, Keys.of(graph), 2).variances.tolist() == [0.1] * 10


@pytest.mark.parametrize(
    ("graph", "ratio", "curious", "gap"),
    [
        (nx.complete_graph(10), 1.0, (), 1.05),
        (nx.complete_graph(10), 1.0, (3,), 1.11),
        (nx.complete_graph(10), 1.0, (3, 4), 1.18),
        (nx.cycle_graph(10), 5.0, (), 1.02),
        (nx.cycle_graph(10), 5.0, (9,), 1.11),
    ],
)
def test_noise_of_the_average_beside_that_of_central_training(graph, ratio, curious, gap):
    """With own noise such that each agent is protected as by unit noise, the average has this much more than central noise."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        own = np.full(10, middle)
        low, high = (middle, high) if worst(own, ratio**2, graph, 0, len(curious)) < 1 else (low, middle)
    assert np.sqrt(10 * high) == pytest.approx(gap, abs=0.006)


@pytest.mark.parametrize(("curious", "gap"), [((0, 1), 1.17), ((0, 5), 1.61), ((0, 2), 3.16)])
def test_two_curious_agents_on_a_ring_by_where_they_are(curious, gap):
    """Adjacent, opposite, and with one agent between them, who stands alone; ring keys, masks of 5, the least own noise for unit protection."""
    graph, low, high = nx.cycle_graph(10), 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        own = np.full(10, middle)
        least = min(obvious(own, 25.0, graph, agent, curious) for agent in graph if agent not in curious)
        low, high = (middle, high) if least < 1 else (low, middle)
    assert np.sqrt(10 * high) == pytest.approx(gap, abs=0.006)


def test_keys_are_checked():
    assert Keys.of(nx.complete_graph(4)).pairs is None
    assert Keys(3).all_pairs == ((0, 1), (0, 2), (1, 2))
    assert Keys(4).without([1]).pairs == ((0, 2), (0, 3), (2, 3))
    for wrong in (((1, 0),), ((0, 4),), ((0, 1), (0, 1))):
        with pytest.raises(PrivacyError):
            Keys(4, wrong)
    with pytest.raises(PrivacyError, match="undirected"):
        Keys.of(nx.DiGraph([(0, 1)]))


@pytest.mark.parametrize("curious", [0, 1, 2])
def test_quick_linear_algebra_finds_what_inverting_again_finds(curious):
    rng = np.random.default_rng(curious)
    for agents in (5, 9):
        graph = nx.gnp_random_graph(agents, 0.5, seed=agents)
        own, mask, keys = rng.uniform(0.05, 2, agents), float(rng.uniform(0.5, 30)), Keys.of(graph)
        quick, exact = (protection(own, mask, keys, curious, quick=each) for each in (True, False))
        assert np.allclose(quick.variances, exact.variances, rtol=1e-9, atol=0)
        assert np.allclose(quick.slopes, exact.slopes, rtol=1e-6, atol=1e-9)


def test_branches_are_the_same_with_dense_and_with_sparse_matrices():
    keys = Keys.of(nx.random_regular_graph(4, 30, seed=0))
    own = np.random.default_rng(0).uniform(0.1, 1, 30)
    for agent in range(30):
        each = [
            sorted(parts(own, 2.0, keys, agent), key=lambda part: part[0])
            for parts in (coalitions._dense_parts, coalitions._sparse_parts)
        ]
        for one, other in zip(*each, strict=True):
            assert one[0] == pytest.approx(other[0], rel=1e-12)
            assert np.allclose(one[2][np.argsort(one[1])], other[2][np.argsort(other[1])], rtol=1e-10)
