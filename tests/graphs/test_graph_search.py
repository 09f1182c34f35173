import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import graphs
from tacit.errors import GraphError
from tacit.graphs.reach import Target, edge_counts


def values(graph: nx.Graph) -> dict[str, float]:
    return {
        "fiedler": graphs.normalized_algebraic_connectivity(graph),
        "density": graphs.density(graph),
        "centrality": graphs.eigenvector_centrality(graph)[0],
    }


def assert_found(graph: nx.Graph, agents: int, tolerance: float, **wanted: float) -> None:
    assert list(graph) == list(range(agents))
    assert nx.is_connected(graph)
    for name, value in wanted.items():
        assert values(graph)[name] == pytest.approx(value, abs=tolerance + 1e-8)


@pytest.mark.parametrize("fiedler", [0.06, 0.39, 0.7, 1.0])
def test_the_papers_fiedler_values_are_found(fiedler):
    assert_found(graphs.find_graph(10, fiedler=fiedler), 10, 0.01, fiedler=fiedler)


@pytest.mark.parametrize("density", [0.2, 0.4, 0.6, 0.8, 1.0])
def test_the_papers_densities_are_found_exactly(density):
    assert_found(graphs.find_graph(10, density=density), 10, 0, density=density)


@pytest.mark.parametrize("centrality", [0.05, 0.5, 0.71])
def test_the_papers_centralities_are_found(centrality):
    assert_found(graphs.find_graph(10, centrality=centrality), 10, 0.01, centrality=centrality)


@pytest.mark.parametrize(
    "wanted",
    [
        {"fiedler": 0.038, "density": 0.4, "centrality": 0.05},  # the paper's example graphs: it gives
        {"fiedler": 0.062, "density": 0.29, "centrality": 0.5},  # the connectivity not divided by ten
        {"fiedler": 0.39, "density": 0.6},
        {"fiedler": 0.2, "centrality": 0.5},
        {"density": 0.49, "centrality": 0.1},
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_values_are_found_together(wanted, seed):
    assert_found(graphs.find_graph(10, **wanted, seed=seed), 10, 0.01, **wanted)


@pytest.mark.parametrize(
    "wanted",
    [{"fiedler": 0.4}, {"fiedler": 0.3, "density": 0.5}, {"centrality": 0.05}, {"density": 0.2, "centrality": 0.3}],
)
def test_larger_graphs_are_found(wanted):
    assert_found(graphs.find_graph(30, **wanted), 30, 0.01, **wanted)


@settings(max_examples=25)
@given(agents=st.integers(2, 14), seed=st.integers(0, 2**32), data=st.data())
def test_the_values_of_a_graph_that_exists_are_never_out_of_reach(agents, seed, data):
    rng = np.random.default_rng(seed)
    probability = data.draw(st.sampled_from([None, 0.5, 0.9, 1.0]))
    graph = graphs.erdos_renyi(agents, probability if agents > 4 else None, seed=rng)
    counts = edge_counts(Target(agents=agents, tolerance=1e-6, **values(graph)))
    assert graph.number_of_edges() in counts


@pytest.mark.parametrize("agents", [2, 3, 4, 5])
def test_every_small_graph_is_within_reach(agents):
    seen = [graph for graph in nx.graph_atlas_g() if len(graph) == agents and nx.is_connected(graph)]
    for graph in seen:
        assert_found(graphs.find_graph(agents, **values(graph), tolerance=1e-6), agents, 1e-6, **values(graph))


@pytest.mark.parametrize(
    "wanted", [{"fiedler": 0.06}, {"density": 0.4}, {"centrality": 0.5}, {"fiedler": 0.2, "density": 0.49}]
)
def test_a_seed_fixes_the_graph_and_other_seeds_give_others(wanted):
    found = [graphs.find_graph(10, **wanted, seed=seed) for seed in (0, 0, *range(1, 8))]
    assert set(found[0].edges()) == set(found[1].edges())
    assert len({frozenset(graph.edges()) for graph in found}) == 8
    shapes = {tuple(np.round(nx.laplacian_spectrum(graph), 6) + 0.0) for graph in found}
    assert len(shapes) >= 6  # not one graph with its agents shuffled


def test_a_generator_is_used_and_moved_on():
    rng = np.random.default_rng(3)
    first, second = (graphs.find_graph(10, density=0.4, seed=rng) for _ in range(2))
    assert set(first.edges()) == set(graphs.find_graph(10, density=0.4, seed=3).edges())
    assert set(first.edges()) != set(second.edges())


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({}, "nothing to search for: give fiedler, density or centrality"),
        ({"fiedler": 1.2}, "fiedler must be a number between 0 and 1, got 1.2"),
        ({"density": float("nan")}, "density must be a number between 0 and 1, got nan"),
        ({"centrality": "high"}, "centrality must be a number between 0 and 1, got 'high'"),
        ({"fiedler": 0.5, "tolerance": -0.1}, "tolerance must be a number between 0 and 1, got -0.1"),
        ({"fiedler": 0.5, "restarts": 0}, "restarts must be a whole number of at least 1, got 0"),
        ({"fiedler": 0.5, "steps": -1}, "steps must be a whole number of at least 0, got -1"),
        ({"fiedler": 0.5, "seed": -1}, "seed must be a whole number of at least 0"),
    ],
)
def test_settings_that_make_no_search_are_errors(wanted, message):
    with pytest.raises(GraphError, match=message):
        graphs.find_graph(10, **wanted)


def test_a_single_agent_leaves_nothing_to_search():
    with pytest.raises(GraphError, match="agents must be a whole number of at least 2, got 1"):
        graphs.find_graph(1, density=1)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"density": 0.1}, "density 0.1 is out of reach: .* 10 agents has at least 9 edges, density 0.2"),
        ({"density": 0.39, "tolerance": 0.009}, "within 0.009 of 0.39; the nearest are 0.377778 and 0.4"),
        ({"fiedler": 0.9}, "fiedler 0.9 is out of reach: no graph .* between 0.8 and the complete graph's 1"),
        ({"fiedler": 0.0, "tolerance": 0.009}, "fiedler 0 is out of reach: the path, .* has 0.009789"),
        ({"centrality": 0.75}, "centrality 0.75 is out of reach: the hub of a star has the largest"),
        ({"fiedler": 0.6, "density": 0.4}, "fiedler 0.6 is not possible with density 0.4: .* from 0.6 to 0.9333"),
        ({"fiedler": 1.0, "density": 0.8}, "fiedler 1 is not possible with density 0.8: .* from 1 to 1"),
        ({"fiedler": 0.1, "density": 1.0}, "fiedler 0.1 is not possible with density 1: .* to 0.8222"),
    ],
)
def test_what_no_graph_has_is_said_at_once(wanted, message):
    with pytest.raises(GraphError, match=message):
        graphs.find_graph(10, **{"tolerance": 0.01} | wanted, restarts=10**9)


def test_what_is_not_found_says_how_close_it_came():
    with pytest.raises(
        GraphError,
        match=r"no graph of 10 agents found within 0.01 of fiedler 0.7, centrality 0.05; the closest in 1 restarts "
        r"of 50 steps has fiedler 0\.\d+, density 0\.\d+, centrality 0\.\d+; widen the tolerance",
    ):
        graphs.find_graph(10, fiedler=0.7, centrality=0.05, restarts=1, steps=50)


def test_the_complete_graph_cannot_be_moved_to_another_centrality():
    with pytest.raises(GraphError, match=r"the closest .* has fiedler 1, density 1, centrality 0.3162"):
        graphs.find_graph(10, density=1, centrality=0.5, restarts=1, steps=10)
