import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from tacit import graphs
from tacit.errors import GraphError, InvalidInput


@st.composite
def connected_graphs(draw):
    agents = draw(st.integers(1, 25))
    tree = [(draw(st.integers(0, node - 1)), node) for node in range(1, agents)]
    pairs = st.tuples(st.integers(0, agents - 1), st.integers(0, agents - 1))
    graph = nx.empty_graph(agents)
    graph.add_edges_from([*tree, *(pair for pair in draw(st.lists(pairs, max_size=60)) if len(set(pair)) == 2)])
    return graph


def by_the_book(graph: nx.Graph, rule: str) -> np.ndarray:
    """W from its definition, entry by entry."""
    agents, degree = len(graph), dict(graph.degree())
    weights = np.zeros((agents, agents))
    for i in range(agents):
        for j in graph[i]:
            weights[i, j] = {
                "metropolis": 1 / (1 + max(degree[i], degree[j])),
                "max_degree": 1 / (1 + max(degree.values())),
                "uniform": 1 / (1 + degree[i]),
            }[rule]
        weights[i, i] = 1 - weights[i].sum()
    return weights


@pytest.mark.parametrize("rule", ["metropolis", "max_degree", "uniform"])
@given(graph=connected_graphs())
def test_weights_are_those_of_the_equation(rule, graph):
    weights = graphs.mixing_matrix(graph, rule, allow_drift=True)
    np.testing.assert_allclose(weights.toarray(), by_the_book(graph, rule), rtol=0, atol=1e-15)


@pytest.mark.parametrize("rule", ["metropolis", "max_degree"])
@given(graph=connected_graphs())
def test_weights_are_symmetric_doubly_stochastic_and_on_the_edges_only(rule, graph):
    weights = graphs.mixing_matrix(graph, rule).toarray()
    np.testing.assert_array_equal(weights, weights.T)
    np.testing.assert_allclose(weights.sum(axis=0), 1, rtol=0, atol=1e-12)
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(weights > 0, nx.to_numpy_array(graph) + np.eye(len(graph)) > 0)
    assert (weights >= 0).all()


@pytest.mark.parametrize("rule", ["metropolis", "max_degree"])
@given(graph=connected_graphs())
def test_own_weights_pass_the_check_unchanged(rule, graph):
    weights = graphs.mixing_matrix(graph, rule)
    checked = graphs.check_mixing_matrix(weights, graph)
    np.testing.assert_array_equal(checked.toarray(), weights.toarray())


@pytest.mark.parametrize("graph", [graphs.star(10), graphs.complete(10), graphs.complete(1)])
def test_the_form_is_sorted_sparse_float64_with_a_stored_diagonal(graph):
    weights = graphs.mixing_matrix(graph)
    assert isinstance(weights, sparse.csr_array)
    assert weights.dtype == np.float64
    assert weights.has_sorted_indices
    assert weights.nnz == len(graph) + 2 * graph.number_of_edges()


def test_metropolis_is_the_default():
    star = graphs.star(10)
    np.testing.assert_array_equal(
        graphs.mixing_matrix(star).toarray(), graphs.mixing_matrix(star, "metropolis").toarray()
    )


@pytest.mark.parametrize(
    "graph", [graphs.complete(10), graphs.ring(9), graphs.hypercube(16), graphs.torus(20), graphs.complete(1)]
)
def test_all_rules_agree_on_regular_graphs(graph):
    first = graphs.mixing_matrix(graph, "metropolis").toarray()
    for rule in ("max_degree", "uniform"):
        np.testing.assert_array_equal(graphs.mixing_matrix(graph, rule).toarray(), first)


def test_uniform_on_an_irregular_graph_says_how_the_average_drifts():
    with pytest.raises(GraphError, match=r"degrees 1 to 9.* between 0\.6 and 4\.6 instead of one.* drifts"):
        graphs.mixing_matrix(graphs.star(10), "uniform")


def test_uniform_is_let_through_for_reproducing_the_published_code():
    weights = graphs.mixing_matrix(graphs.star(10), "uniform", allow_drift=True)
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    np.testing.assert_allclose(weights.sum(axis=0), [4.6] + [0.6] * 9)


def test_a_misspelt_rule_names_the_nearest():
    with pytest.raises(InvalidInput, match=r"unknown mixing rule 'metropolys'; did you mean 'metropolis'\?"):
        graphs.mixing_matrix(graphs.ring(4), "metropolys")


def test_a_disconnected_graph_cannot_mix():
    with pytest.raises(GraphError, match="not connected"):
        graphs.mixing_matrix(nx.Graph([(0, 1), (2, 3)]))


RING = graphs.mixing_matrix(graphs.ring(4)).toarray()


@pytest.mark.parametrize(
    "form", [np.asarray, np.ndarray.tolist, sparse.csr_array, sparse.coo_matrix, sparse.lil_array, np.float32]
)
def test_ones_own_weights_may_come_in_any_form(form):
    own = np.array([[0.5, 0.25, 0, 0.25], [0.25, 0.5, 0.25, 0], [0, 0.25, 0.5, 0.25], [0.25, 0, 0.25, 0.5]])
    checked = graphs.check_mixing_matrix(form(own), graphs.ring(4))
    np.testing.assert_array_equal(checked.toarray(), own)
    assert checked.nnz == 12


def test_a_zero_diagonal_is_stored_and_rounding_below_zero_becomes_zero():
    own = np.array([[-1e-17, 1], [1, 0]])
    checked = graphs.check_mixing_matrix(own, graphs.complete(2))
    assert checked.nnz == 4
    assert checked.min() == 0
    assert own[0, 0] == -1e-17  # the caller's matrix is not changed


def test_unused_edges_are_allowed():
    graphs.check_mixing_matrix(RING, graphs.complete(4))


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (np.full((2, 3), 0.5), r"W must be square with one row for each agent, got shape \(2, 3\)"),
        (np.array([0.5, 0.5]), r"W must be square with one row for each agent, got shape \(2,\)"),
        (np.zeros((0, 0)), r"got shape \(0, 0\)"),
        ([["a", "b"], ["c", "d"]], "W must be a square matrix of numbers, got list"),
        (np.array([[1, np.nan], [np.nan, 1]]), r"W\[0, 1\] = nan; every weight must be finite"),
        (np.array([[1.5, -0.5], [-0.5, 1.5]]), r"W\[0, 1\] = -0.5; no weight may be negative"),
        (
            np.array([[0.5, 0.5, 0], [0.25, 0.5, 0.25], [0, 0.5, 0.5]]),
            "column 1 of W sums to 1.5; every row and column must sum to one, or the agents' average drifts",
        ),
        (np.array([[0.5, 0.5], [0.5, 0.4]]), r"row 1 of W sums to 0.9; every row and column must sum to one"),
        (np.zeros((2, 2)), "row 0 of W sums to 0;"),
        (np.diag([0.9, 1.1]), "row 0 of W sums to 0.9;"),
    ],
)
def test_weights_that_cannot_mix_say_why(own, message):
    with pytest.raises(GraphError, match=message):
        graphs.check_mixing_matrix(own)


def test_a_column_that_drifts_by_many_small_weights_is_found():
    own = np.full((50, 50), 0.02)
    own[:, 0] += 9e-10
    own[:, 1] -= 9e-10
    with pytest.raises(GraphError, match="column 0 of W sums to"):
        graphs.check_mixing_matrix(own)


ONE_WAY = 0.5 * np.eye(4) + 0.5 * np.roll(np.eye(4), 1, axis=1)


def test_weights_need_not_be_symmetric():
    np.testing.assert_array_equal(graphs.check_mixing_matrix(ONE_WAY, graphs.ring(4)).toarray(), ONE_WAY)


@pytest.mark.parametrize(
    ("own", "groups"),
    [(np.eye(4), 4), (np.kron(np.eye(2), np.full((2, 2), 0.5)), 2), (np.diag([1 - 1e-10] * 4) + 1e-10 * RING, None)],
)
def test_weights_must_join_all_agents_of_a_graph(own, groups):
    if groups is None:
        graphs.check_mixing_matrix(own / own.sum(0), graphs.complete(4))
        return
    with pytest.raises(
        GraphError, match=f"W divides the agents into {groups} groups that take nothing from each other"
    ):
        graphs.check_mixing_matrix(own, graphs.complete(4))


def test_weights_off_the_graph_name_the_pair():
    with pytest.raises(GraphError, match=r"W\[0, 3\] = 0.333333, but agents 0 and 3 are not neighbours"):
        graphs.check_mixing_matrix(RING, graphs.path(4))


def test_weights_for_another_number_of_agents_are_refused():
    with pytest.raises(GraphError, match="W is for 4 agents, but the graph has 5"):
        graphs.check_mixing_matrix(RING, graphs.ring(5))


def test_ten_thousand_agents_mix():
    weights = graphs.mixing_matrix(graphs.small_world(10_000, 6, 0.2, seed=0))
    np.testing.assert_allclose(weights.sum(axis=0), 1, rtol=0, atol=1e-12)
