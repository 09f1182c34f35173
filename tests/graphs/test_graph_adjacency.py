import networkx as nx
import numpy as np
import pytest

from tacit import graphs
from tacit.errors import GraphError
from tacit.graphs.adjacency import adjacency


def test_nodes_are_numbered_in_sorted_order():
    graph = nx.Graph([("c", "a"), ("c", "b")])
    normal = graphs.as_graph(graph)
    assert list(normal) == [0, 1, 2]
    assert set(normal.edges()) == {(0, 2), (1, 2)}


def test_labels_that_do_not_sort_keep_the_order_they_were_added_in():
    graph = nx.Graph()
    graph.add_nodes_from(["b", 7, (1, 2)])
    graph.add_edges_from([("b", 7), (7, (1, 2))])
    assert set(graphs.as_graph(graph).edges()) == {(0, 1), (1, 2)}


def test_numbers_that_are_right_already_stay():
    graph = nx.Graph([(2, 1), (1, 0)])  # added as 2, 1, 0
    assert list(graphs.as_graph(graph)) == [0, 1, 2]
    assert set(graphs.as_graph(graph).edges()) == {(0, 1), (1, 2)}


def test_self_loops_parallel_edges_and_attributes_are_dropped():
    graph = nx.MultiGraph(name="talkative")
    graph.add_node(0, colour="red")
    graph.add_edges_from([(0, 1), (0, 1), (1, 1)], weight=0.25)
    normal = graphs.as_graph(graph)
    assert type(normal) is nx.Graph
    assert list(normal.edges(data=True)) == [(0, 1, {})]
    assert list(normal.nodes(data=True)) == [(0, {}), (1, {})]
    assert normal.graph == {}


def test_the_graph_passed_in_is_not_changed():
    graph = nx.Graph([("x", "y"), ("x", "x")])
    graphs.as_graph(graph).add_edge(0, 5)
    assert set(graph) == {"x", "y"}
    assert graph.number_of_edges() == 2


def test_one_agent_is_a_graph():
    graph = nx.Graph()
    graph.add_node("alone")
    assert list(graphs.as_graph(graph)) == [0]


def test_adjacency_is_the_matrix_of_networkx():
    graph = graphs.small_world(25, 4, 0.4, seed=1)
    matrix = adjacency(graph)
    assert matrix.dtype == np.float64
    assert matrix.has_sorted_indices
    np.testing.assert_array_equal(matrix.toarray(), nx.to_numpy_array(graph))


def test_directed_graphs_are_refused():
    with pytest.raises(
        GraphError, match=r"directed graph .* average drifts .*to_undirected.*rows and columns all sum to one"
    ):
        graphs.as_graph(nx.DiGraph([(0, 1)]))


def test_empty_graphs_are_refused():
    with pytest.raises(GraphError, match="no nodes; a communication graph has at least one agent"):
        graphs.as_graph(nx.Graph())


def test_what_is_no_graph_is_refused():
    with pytest.raises(GraphError, match=r"is a networkx.Graph, got ndarray"):
        graphs.as_graph(np.eye(3))


def test_a_disconnected_graph_names_its_components_and_a_node():
    graph = nx.Graph([("a", "b"), ("c", "d"), ("d", "e")])
    with pytest.raises(GraphError, match="2 components of sizes 3, 2, and no path joins node 'c' to node 'a'"):
        graphs.as_graph(graph)


def test_many_components_are_not_all_listed():
    with pytest.raises(GraphError, match="8 components of sizes 1, 1, 1, 1, 1, …, and"):
        graphs.as_graph(nx.empty_graph(8))
