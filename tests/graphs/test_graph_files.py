import os

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit import graphs
from tacit.errors import GraphError, StorageError
from tacit.graphs.files import graph_of, read_graph
from tacit.runs.describe import weights_of
from tacit.training.preparation import connect


def same(one: nx.Graph, other: nx.Graph) -> bool:
    return list(one) == list(other) and set(one.edges()) == set(other.edges())


@pytest.fixture
def file(tmp_path):
    def write(content: str | bytes):
        path = tmp_path / "graph.txt"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@given(agents=st.integers(1, 30), seed=st.integers(0, 2**32))
def test_an_edge_list_comes_back_as_it_was(tmp_path_factory, agents, seed):
    path = tmp_path_factory.mktemp("graphs") / "edges.txt"
    graph = graphs.erdos_renyi(agents, seed=seed)
    graphs.write_edge_list(graph, path)
    assert same(graphs.read_graph(path), graph)


def test_a_written_file_states_its_agents(tmp_path):
    graphs.write_edge_list(graphs.path(3), tmp_path / "path")
    assert (tmp_path / "path").read_text() == "# agents 3\n0 1\n1 2\n"
    graphs.write_edge_list(graphs.complete(1), tmp_path / "one")
    assert (tmp_path / "one").read_text() == "# agents 1\n"


def test_writing_replaces_a_file_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "edges.txt"
    path.write_text("old")
    graphs.write_edge_list(graphs.ring(4), str(path))
    assert same(graphs.read_graph(str(path)), graphs.ring(4))
    assert os.listdir(tmp_path) == ["edges.txt"]


def test_a_write_that_fails_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "edges.txt"
    path.write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=r"edges.txt: cannot be written: No space left on device"):
        graphs.write_edge_list(graphs.ring(4), path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["edges.txt"]


@pytest.mark.parametrize("place", ["file/edges.txt", "."])
def test_a_place_that_cannot_be_written_is_an_error(tmp_path, place):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be written"):
        graphs.write_edge_list(graphs.ring(4), tmp_path / place)


@pytest.mark.parametrize(
    "content",
    [
        "0 1\n1 2\n",
        "\ufeff# a comment\r\n\r\n0 1 # the first\r\n1,2\r\n",
        "# agents 3\n1 0\n0 1\n2 2\n2\t1",
        "0 1 0\n1 0 1\n0 1 0\n",
        "0,1,0\n\n# middle\n1,1,1\n0,1,0",
        "0.0 1.0 0.0\n1e0 0 1\n0 1 0",
    ],
)
def test_text_is_read_by_what_is_in_it(file, content):
    assert same(graphs.read_graph(file(content)), graphs.path(3))


@pytest.mark.parametrize("content", ["# agents 1", "0", "1", "#agents 1\n0 0\n", "0 0"])
def test_a_single_agent_can_be_written_in_every_way(file, content):
    assert same(graphs.read_graph(file(content)), graphs.complete(1))


@pytest.mark.parametrize("content", ["0 1", "0 1\n1 0", "0,1\n1,0\n"])
def test_two_agents_are_the_same_as_edges_and_as_a_matrix(file, content):
    assert same(graphs.read_graph(file(content)), graphs.complete(2))


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int64, np.float32])
def test_numpy_matrices_are_known_by_their_content(tmp_path, dtype):
    with (tmp_path / "matrix.txt").open("wb") as file:
        np.save(file, nx.to_numpy_array(graphs.wheel(6)).astype(dtype))
    assert same(graphs.read_graph(tmp_path / "matrix.txt"), graphs.wheel(6))


def test_savetxt_writes_what_is_read(tmp_path):
    np.savetxt(tmp_path / "matrix.csv", nx.to_numpy_array(graphs.wheel(6)), delimiter=",")
    assert same(graphs.read_graph(tmp_path / "matrix.csv"), graphs.wheel(6))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "graph.txt: no graph in it; a single agent is written as '# agents 1'"),
        ("# nothing\n\n", "graph.txt: no graph in it"),
        ("0 1\n1 2 3\n", "graph.txt, line 2: an edge is two agents, got 3 values"),
        ("0 1\n\n1\n", "graph.txt, line 3: an edge is two agents, got 1 values"),
        ("0 1\n1 x\n", "graph.txt, line 2: 'x' is not a whole number from 0"),
        ("0 1\n1 -2\n", "graph.txt, line 2: '-2' is not a whole number from 0"),
        ("0 1\n1 2.0\n", "graph.txt, line 2: '2.0' is not a whole number from 0"),
        ("0 1_0\n", "graph.txt, line 1: '1_0' is not a whole number from 0"),
        ("0 99999999999999999999\n", "line 1: '99999999999999999999' is not a whole number"),
        ("1 2\n2 3\n", "graph.txt: agent 0 is in no edge; the 4 agents are numbered 0 to 3"),
        ("0 1\n1 3\n", "graph.txt: agent 2 is in no edge; the 4 agents"),
        ("0 900000000000\n", "graph.txt: agent 1 is in no edge"),
        ("# agents 4\n0 1\n1 2", "graph.txt: agent 3 is in no edge; the 4 agents"),
        ("# agents 2\n0 1\n1 2", "graph.txt, line 3: agent 2 is not one of 0 to 1"),
        ("# agents two\n0 1", "graph.txt, line 1: 'two' is not a whole number"),
        ("# agents 0\n", "graph.txt, line 1: a graph has one number of agents above 0, got 0"),
        ("# agents 2\n# agents 3\n0 1", "graph.txt, line 2: a graph has one number of agents"),
        ("0 1\n2 3\n", "graph.txt: the graph is not connected: it has 2 components"),
        ("0 1 1\n1 0 1\n", "graph.txt, line 1: 3 values in a matrix of 2 rows; .* an edge list two agents"),
        ("0 1 0\n1 0\n0 0 0\n", "graph.txt, line 2: 2 values in a matrix of 3 rows"),
        ("0 1 0\n1 0 y\n0 1 0\n", "graph.txt, line 2: 'y' is not a number"),
        ("0 1 0\n1 0 2\n0 2 0\n", "graph.txt, line 2: the value 2.0 in column 2 is neither 0 nor 1"),
        ("0 1 0\n1 0 nan\n0 1 0\n", "graph.txt, line 2: the value nan in column 2 is neither"),
        ("# m\n0 1 1\n1 0 1\n0 1 0\n", "graph.txt, line 2: the value 1.0 in column 2 differs from its mirror"),
        ("0 1 0\n1 0 0\n0 0 0\n", "graph.txt: the graph is not connected"),
        (b"0 1\n1 \xff\xfe\n", "graph.txt, line 2: not text"),
    ],
)
def test_a_malformed_file_names_the_line_and_the_fault(file, content, message):
    with pytest.raises(GraphError, match=message):
        graphs.read_graph(file(content))


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(GraphError, match=r"none.txt: cannot be read: No such file"):
        graphs.read_graph(tmp_path / "none.txt")
    with pytest.raises(GraphError, match="cannot be read: Is a directory"):
        graphs.read_graph(tmp_path)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones((2, 3)), r"m.npy: an adjacency matrix is square and of numbers, got shape \(2, 3\)"),
        (np.ones(3), r"got shape \(3,\)"),
        (np.ones((0, 0)), "m.npy: the graph has no nodes"),
        (np.array([["0", "1"], ["1", "0"]]), "of <U1"),
        (np.array([[0, 2], [2, 0]]), "m.npy, row 0: the value 2 in column 1 is neither 0 nor 1"),
        (np.array([[0, 1], [0, 0]]), "m.npy, row 0: the value 1 in column 1 differs from its mirror image"),
    ],
)
def test_a_malformed_numpy_matrix_names_the_fault(tmp_path, array, message):
    np.save(tmp_path / "m.npy", array)
    with pytest.raises(GraphError, match=message):
        graphs.read_graph(tmp_path / "m.npy")


def test_pickled_arrays_are_never_loaded(tmp_path):
    np.save(tmp_path / "m.npy", np.array([[0, 1], [1, 0]], dtype=object), allow_pickle=True)
    with pytest.raises(GraphError, match=r"m.npy: not a readable numpy array"):
        graphs.read_graph(tmp_path / "m.npy")


def test_a_numpy_file_cut_short_is_an_error(tmp_path):
    path = tmp_path / "m.npy"
    np.save(path, np.ones((50, 50)))
    for size in (7, 60, 500):
        (tmp_path / "short.npy").write_bytes(path.read_bytes()[:size])
        with pytest.raises(GraphError, match=r"short.npy: not a readable numpy array"):
            graphs.read_graph(tmp_path / "short.npy")


def test_agents_may_have_names_which_are_sorted(file):
    graph = graphs.read_graph(file("# hospitals\nwest north\nsouth,north\n"))
    assert graph.graph["names"] == ("north", "south", "west")
    assert same(graph, graphs.star(3))


def test_weights_in_a_file_make_the_mixing_matrix(file):
    graph = graphs.read_graph(file("b a 0.25\nb c 0.5\n"))
    expected = [[0.75, 0.25, 0], [0.25, 0.25, 0.5], [0, 0.5, 0.5]]
    assert np.allclose(graph.graph["weights"].toarray(), expected)
    numbered = graphs.read_graph(file("0 1 0.25\n1 2 0.5\n2 1 0.5\n"))
    assert np.allclose(numbered.graph["weights"].toarray(), expected)
    (topology,) = connect(graph, "metropolis", allow_drift=False, agents=3, trials=1, rounds=1)
    assert np.allclose(topology.at(0)[0].weights.toarray(), expected)
    with pytest.raises(GraphError, match="the graph's file has its own weights"):
        connect(graph, "max_degree", allow_drift=False, agents=3, trials=1, rounds=1)


def test_weights_in_a_file_may_differ_by_direction(file, tmp_path):
    graph = graphs.read_graph(file("0 1 0.5\n1 0 0\n1 2 0.5\n2 1 0\n2 0 0.5\n0 2 0\n"))
    expected = [[0.5, 0.5, 0], [0, 0.5, 0.5], [0.5, 0, 0.5]]
    np.testing.assert_array_equal(graph.graph["weights"].toarray(), expected)
    graphs.write_edge_list(graph, tmp_path / "copy.txt")
    copy = graphs.read_graph(tmp_path / "copy.txt")
    np.testing.assert_array_equal(copy.graph["weights"].toarray(), expected)
    (topology,) = connect(copy, "metropolis", allow_drift=False, agents=3, trials=1, rounds=1)
    (links,) = topology.at(0)
    np.testing.assert_array_equal(links.weights.toarray(), expected)
    assert not links.symmetric


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("0 1 0.7\n1 2 0.7\n", "the weights of agent 1 sum to 1.4; they must sum to at most one"),
        ("0 1 0.5\n1 0 0.4\n", "column 0 of W sums to 0.9; every row and column must sum to one"),
        ("0 1 0.5\n1 0 0.5\n0 1 0.4\n", "line 3: the weight is 0.4 here and 0.5 in a line above; give it once"),
        ("0 1 0.5\n1 2\n", "line 2: the first edge has a weight, .* got 2 values"),
        ("0 1 0.5\n1 2 x\n", "line 2: the weight is 'x'; it must lie between 0 and 1"),
        ("0 1 0.5\n1 2 -0.1\n", "line 2: the weight is '-0.1'"),
        ("0 1 0.5\n1 1 0.2\n", "line 2: an agent's own weight follows from the others'"),
        ("# agents 3\nnorth south\n", "agent 2 is in no edge; the 3 agents"),
        ("north south\nsouth 3\n", "'north' is not a whole number"),
    ],
)
def test_names_and_weights_that_make_no_sense_are_refused(file, content, message):
    with pytest.raises(GraphError, match=message):
        graphs.read_graph(file(content))


def test_weights_that_differ_by_direction_are_kept_with_a_run_and_made_again(tmp_path):
    path = tmp_path / "links.txt"
    path.write_text("0 1 0.2\n1 0 0.5\n1 2 0.2\n2 1 0.5\n2 0 0.2\n0 2 0.5\n")
    graph = read_graph(path)
    kept = weights_of(graph)
    assert len(kept) == 6
    again = graph_of(3, list(graph.edges), kept)
    assert (again.graph["weights"] != graph.graph["weights"]).nnz == 0
    assert graph.graph["weights"][0, 1] == 0.2
    with pytest.raises(GraphError, match="5 weights for 3 links"):
        graph_of(3, list(graph.edges), kept[:5])
