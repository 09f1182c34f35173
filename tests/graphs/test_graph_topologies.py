import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit import graphs
from tacit.errors import GraphError, InvalidInput
from tacit.registry import GRAPHS

FIXED = ["complete", "ring", "path", "star", "wheel", "grid", "torus", "exponential"]


def degrees(graph: nx.Graph) -> list[int]:
    return sorted(degree for _, degree in graph.degree())


def edges(graph: nx.Graph) -> set[frozenset[int]]:
    return {frozenset(edge) for edge in graph.edges()}


def assert_usable(graph: nx.Graph, agents: int) -> None:
    assert type(graph) is nx.Graph
    assert list(graph) == list(range(agents))
    assert all(type(node) is int for node in graph)
    assert nx.is_connected(graph)
    assert nx.number_of_selfloops(graph) == 0


@pytest.mark.parametrize("kind", FIXED)
@given(agents=st.integers(1, 40))
def test_fixed_families_are_simple_and_connected_at_every_size(kind, agents):
    assert_usable(graphs.build(kind, agents), agents)


@pytest.mark.parametrize("kind", [*FIXED, "hypercube"])
def test_one_agent_is_a_single_node_and_two_are_one_edge(kind):
    assert graphs.build(kind, 1).number_of_edges() == 0
    assert edges(graphs.build(kind, 2)) == {frozenset({0, 1})}


@pytest.mark.parametrize(
    ("graph", "same"),
    [
        (graphs.complete(7), nx.complete_graph(7)),
        (graphs.ring(7), nx.cycle_graph(7)),
        (graphs.path(7), nx.path_graph(7)),
        (graphs.star(7), nx.star_graph(6)),
        (graphs.wheel(7), nx.wheel_graph(7)),
        (graphs.grid(12), nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 4))),
        (graphs.torus(12), nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 4, periodic=True))),
        (graphs.exponential(16), nx.circulant_graph(16, [1, 2, 4, 8])),
        (graphs.exponential(11), nx.circulant_graph(11, [1, 2, 4, 8])),
    ],
)
def test_fixed_families_are_those_of_networkx(graph, same):
    assert edges(graph) == edges(same)


def test_hub_is_agent_zero():
    assert graphs.star(9).degree(0) == 8
    assert graphs.wheel(9).degree(0) == 8
    assert degrees(graphs.wheel(9)) == [3] * 8 + [8]


def test_hypercube_links_numbers_one_digit_apart():
    graph = graphs.hypercube(16)
    assert_usable(graph, 16)
    assert degrees(graph) == [4] * 16
    assert all((i ^ j).bit_count() == 1 for i, j in graph.edges())


@pytest.mark.parametrize(("agents", "near"), [(10, "8 and 16"), (3, "2 and 4"), (1000, "512 and 1024")])
def test_hypercube_of_another_size_names_the_nearest_powers(agents, near):
    with pytest.raises(GraphError, match=f"got {agents}; the nearest are {near}"):
        graphs.hypercube(agents)


def test_grid_is_the_most_square_one_or_has_the_rows_asked_for():
    assert edges(graphs.grid(12, rows=2)) == edges(nx.convert_node_labels_to_integers(nx.grid_2d_graph(2, 6)))
    assert degrees(graphs.torus(25)) == [4] * 25
    assert edges(graphs.grid(7)) == edges(graphs.path(7))
    assert edges(graphs.torus(7)) == edges(graphs.ring(7))


def test_rows_that_do_not_fit_name_those_that_do():
    with pytest.raises(GraphError, match="12 agents do not fill 5 rows; rows can be 1, 2, 3, 4, 6, 12"):
        graphs.torus(12, rows=5)


@pytest.mark.parametrize("agents", [0, -3, 2.0, "10", True, None])
@pytest.mark.parametrize("kind", sorted(GRAPHS))
def test_a_number_of_agents_that_is_none_is_an_error(kind, agents):
    with pytest.raises(GraphError, match="agents must be a whole number of at least 1, got"):
        graphs.build(kind, agents)


def test_numpy_integers_count_as_whole_numbers():
    assert edges(graphs.ring(np.int64(5))) == edges(graphs.ring(5))


def test_build_calls_the_function_of_that_name():
    assert edges(graphs.build("grid", 12, rows=2)) == edges(graphs.grid(12, rows=2))
    built = graphs.build("small_world", 20, seed=3, degree=6, rewire=0.5)
    assert edges(built) == edges(graphs.small_world(20, 6, 0.5, seed=3))


def test_every_kind_builds_with_its_defaults():
    for kind in GRAPHS:
        assert_usable(graphs.build(kind, 16), 16)


def test_a_misspelt_kind_names_the_nearest():
    with pytest.raises(InvalidInput, match=r"unknown graph kind 'hypercub'; did you mean 'hypercube'\?"):
        graphs.build("hypercub", 8)


def test_a_misspelt_option_names_the_nearest():
    with pytest.raises(InvalidInput, match=r"'small_world' 'degre'; did you mean 'degree'\?"):
        graphs.build("small_world", 8, degre=4)


def test_an_option_for_a_kind_without_any_is_an_error():
    with pytest.raises(GraphError, match="graph kind 'ring' takes no options, got 'degree'"):
        graphs.build("ring", 8, degree=2)
