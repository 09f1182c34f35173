import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit import graphs
from tacit.errors import GraphError

RANDOM = {
    "small_world": lambda seed: graphs.small_world(20, 4, 0.3, seed=seed),
    "random_regular": lambda seed: graphs.random_regular(20, 3, seed=seed),
    "erdos_renyi": lambda seed: graphs.erdos_renyi(20, 0.3, seed=seed),
}


@pytest.mark.parametrize("draw", RANDOM.values(), ids=RANDOM)
def test_a_seed_fixes_the_graph_and_another_changes_it(draw):
    first, again, other = draw(1), draw(1), draw(2)
    assert set(first.edges()) == set(again.edges())
    assert set(first.edges()) != set(other.edges())


@pytest.mark.parametrize("draw", RANDOM.values(), ids=RANDOM)
def test_a_generator_is_used_and_moved_on(draw):
    rng = np.random.default_rng(1)
    first, second = draw(rng), draw(rng)
    assert set(first.edges()) == set(draw(1).edges())
    assert set(first.edges()) != set(second.edges())


@pytest.mark.parametrize("draw", RANDOM.values(), ids=RANDOM)
def test_global_randomness_is_left_alone(draw):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    draw(5)
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


@pytest.mark.parametrize("draw", RANDOM.values(), ids=RANDOM)
@pytest.mark.parametrize("seed", [-1, 1.5, None, "seed"])
def test_a_seed_that_is_none_is_an_error(draw, seed):
    with pytest.raises(GraphError, match="seed must be a whole number of at least 0 or a numpy Generator"):
        draw(seed)


@given(agents=st.integers(2, 30), degree=st.integers(1, 29), seed=st.integers(0, 2**32))
def test_regular_graphs_are_connected_with_every_degree_the_same(agents, degree, seed):
    if degree >= agents or agents * degree % 2 or degree < 2 < agents:
        return
    graph = graphs.random_regular(agents, degree, seed=seed)
    assert list(graph) == list(range(agents))
    assert {d for _, d in graph.degree()} == {degree}
    assert nx.is_connected(graph)


def test_large_two_regular_graphs_are_one_ring():
    graph = graphs.random_regular(1000, 2, seed=0)
    assert nx.is_connected(graph)
    assert set(graph.edges()) != set(graphs.ring(1000).edges())


@given(agents=st.integers(1, 40), seed=st.integers(0, 2**32))
def test_erdos_renyi_connects_with_its_default(agents, seed):
    graph = graphs.erdos_renyi(agents, seed=seed)
    assert list(graph) == list(range(agents))
    assert nx.is_connected(graph)


def test_erdos_renyi_links_every_pair_equally_often():
    # 2,000 graphs of 8 agents at p=0.7. All but 8·0.3^7 = 0.0018 of them connect at once, so a pair is linked with
    # a probability between 0.7 and 0.7/0.998 = 0.7013. One pair is 5 standard deviations off in 6e-7 of runs, one
    # of the 28 in 2e-5.
    rng = np.random.default_rng(0)
    counts = sum(nx.to_numpy_array(graphs.erdos_renyi(8, 0.7, seed=rng)) for _ in range(2000))
    share = counts[np.triu_indices(8, 1)] / 2000
    assert abs(share - 0.7).max() < 5 * np.sqrt(0.7 * 0.3 / 2000) + 0.0015


def test_erdos_renyi_at_the_extremes():
    assert graphs.erdos_renyi(6, 1.0).number_of_edges() == 15
    assert graphs.erdos_renyi(1, 0.0).number_of_nodes() == 1


def test_erdos_renyi_that_does_not_connect_says_what_would():
    with pytest.raises(GraphError, match=r"20 agents with probability 0.02 .* = 0.15 .* try 0.3$"):
        graphs.erdos_renyi(20, 0.02)


@pytest.mark.parametrize("probability", [-0.1, 1.5, float("nan"), "half"])
def test_a_probability_that_is_none_is_an_error(probability):
    with pytest.raises(GraphError, match="probability must be a number between 0 and 1, got"):
        graphs.erdos_renyi(10, probability)


def test_small_world_without_rewiring_is_a_ring_lattice():
    graph = graphs.small_world(12, 4, 0.0)
    assert {frozenset(edge) for edge in graph.edges()} == {
        frozenset(edge) for edge in nx.circulant_graph(12, [1, 2]).edges()
    }


def test_draws_that_do_not_connect_are_given_up(monkeypatch):
    monkeypatch.setattr("tacit.graphs.random_graphs.REDRAWS", 1)
    with pytest.raises(GraphError, match="degree 2 and rewire 1 were all disconnected; use degree 4 or more"):
        graphs.small_world(500, 2, 1.0, seed=1)


def test_small_world_keeps_its_number_of_edges():
    assert graphs.small_world(30, 6, 0.5, seed=4).number_of_edges() == 90


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: graphs.small_world(10, 3), "degree must be even and at least 2, .* got 3"),
        (lambda: graphs.small_world(10, 0), "degree must be even and at least 2, .* got 0"),
        (lambda: graphs.small_world(4), "degree must be below the number of agents: 4, got 4"),
        (lambda: graphs.small_world(10, 4, 1.2), "rewire must be a number between 0 and 1, got 1.2"),
        (lambda: graphs.random_regular(7, 3), "no graph of 7 agents has degree 3 .* use degree 2 or 4"),
        (lambda: graphs.random_regular(5, 5), "degree must be below the number of agents: 5, got 5"),
        (lambda: graphs.random_regular(6, 1), "6 agents of degree 1 cannot be connected; use degree 2"),
        (lambda: graphs.random_regular(6, -1), "degree must be a whole number of at least 0, got -1"),
    ],
)
def test_settings_that_make_no_graph_say_what_would(call, message):
    with pytest.raises(GraphError, match=message):
        call()
