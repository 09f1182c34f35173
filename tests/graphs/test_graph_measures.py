import json
import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit import graphs
from tacit.errors import GraphError
from tacit.graphs import eigen

RANDOM = [graphs.erdos_renyi(agents, seed=seed) for agents in (4, 5, 12, 30) for seed in range(3)]


@pytest.fixture
def as_if_large(monkeypatch):
    """Send graphs of moderate size through the solvers for large ones."""
    monkeypatch.setattr("tacit.graphs.eigen.DENSE_LIMIT", 100)
    monkeypatch.setattr("tacit.graphs.measures.DENSE_LIMIT", 100)


def test_ring_of_ten_has_the_connectivity_of_the_paper():
    assert graphs.algebraic_connectivity(graphs.ring(10)) == pytest.approx(2 - 2 * math.cos(math.pi / 5))
    assert graphs.algebraic_connectivity(graphs.ring(10)) == pytest.approx(0.381966, abs=1e-6)
    assert graphs.normalized_algebraic_connectivity(graphs.ring(10)) == pytest.approx(0.0382, abs=1e-4)


@pytest.mark.parametrize("agents", [1, 2, 3, 10, 57])
def test_complete_graph_measures_one(agents):
    graph = graphs.complete(agents)
    assert graphs.normalized_algebraic_connectivity(graph) == pytest.approx(1)
    assert graphs.density(graph) == 1
    assert graphs.spectral_gap(graphs.mixing_matrix(graph)) == pytest.approx(1)
    np.testing.assert_allclose(graphs.eigenvector_centrality(graph), agents**-0.5)
    assert graphs.diameter(graph) == (agents > 1)


@pytest.mark.parametrize(
    ("graph", "connectivity", "diameter"),
    [
        (graphs.ring(37), 2 - 2 * math.cos(2 * math.pi / 37), 18),
        (graphs.path(20), 2 - 2 * math.cos(math.pi / 20), 19),
        (graphs.star(12), 1, 2),
        (graphs.hypercube(32), 2, 5),
        (graphs.grid(35), 2 - 2 * math.cos(math.pi / 7), 10),
        (graphs.torus(30), 2 - 2 * math.cos(2 * math.pi / 6), 5),
    ],
)
def test_families_have_their_known_connectivity_and_diameter(graph, connectivity, diameter):
    assert graphs.algebraic_connectivity(graph) == pytest.approx(connectivity)
    assert graphs.diameter(graph) == diameter


@pytest.mark.parametrize("graph", RANDOM)
def test_random_graphs_measure_as_networkx_says(graph):
    assert graphs.algebraic_connectivity(graph) == pytest.approx(sorted(nx.laplacian_spectrum(graph))[1])
    assert graphs.density(graph) == pytest.approx(nx.density(graph))
    assert graphs.diameter(graph) == nx.diameter(graph)
    centrality = nx.eigenvector_centrality_numpy(graph)
    np.testing.assert_allclose(graphs.eigenvector_centrality(graph), list(centrality.values()), atol=1e-8)


@given(agents=st.integers(2, 30), seed=st.integers(0, 2**32))
def test_diameter_of_random_trees_is_that_of_networkx(agents, seed):
    tree = nx.random_labeled_tree(agents, seed=seed)
    assert graphs.diameter(tree) == nx.diameter(tree)


@pytest.mark.parametrize("graph", [*RANDOM, graphs.star(10), graphs.path(8)])
def test_spectral_gap_is_one_minus_the_second_largest_absolute_eigenvalue(graph):
    weights = graphs.mixing_matrix(graph)
    values = sorted(abs(np.linalg.eigvalsh(weights.toarray())))
    assert graphs.spectral_gap(weights) == pytest.approx(1 - values[-2])


def test_spectral_gap_counts_negative_eigenvalues():
    swap = np.array([[0.1, 0.9], [0.9, 0.1]])  # eigenvalues 1 and -0.8
    assert graphs.spectral_gap(swap) == pytest.approx(0.2)
    bipartite = 0.5 * nx.to_numpy_array(graphs.ring(6))  # an eigenvalue of -1: values swing for ever
    assert graphs.spectral_gap(bipartite) == pytest.approx(0, abs=1e-12)
    assert graphs.spectral_gap(bipartite) >= 0


@pytest.mark.parametrize("agents", [3, 4, 7])
def test_spectral_gap_of_one_way_weights_is_that_of_singular_values(agents):
    own = 0.6 * np.eye(agents) + 0.3 * np.roll(np.eye(agents), 1, axis=1) + 0.1 * np.roll(np.eye(agents), -1, axis=1)
    own = own @ graphs.mixing_matrix(graphs.star(agents)).toarray()  # not normal: eigenvalues are another matter
    assert graphs.spectral_gap(own) == pytest.approx(1 - np.linalg.svd(own)[1][1], abs=1e-12)


def test_spectral_gap_wants_a_mixing_matrix():
    with pytest.raises(GraphError, match="column 0 of W sums to"):
        graphs.spectral_gap(graphs.mixing_matrix(graphs.star(5), "uniform", allow_drift=True))


def test_hub_of_a_star_has_the_largest_centrality_there_is():
    centrality = graphs.eigenvector_centrality(graphs.star(10))
    np.testing.assert_allclose(centrality, [math.sqrt(1 / 2)] + [math.sqrt(1 / 18)] * 9)


@pytest.mark.parametrize("agents", [2, 9, 10, 64])
def test_centrality_of_a_path_is_a_half_sine(agents):
    # Of even length or not: paths are bipartite, and power iteration would swing for ever.
    wave = np.sin(np.pi * np.arange(1, agents + 1) / (agents + 1))
    np.testing.assert_allclose(
        graphs.eigenvector_centrality(graphs.path(agents)), wave / np.linalg.norm(wave), atol=1e-10
    )


def test_centrality_of_two_hubs_far_apart_is_shared_and_positive():
    graph = nx.barbell_graph(15, 60)  # their eigenvalues tie to machine precision
    centrality = graphs.eigenvector_centrality(graph)
    assert (centrality > 0).all()
    assert np.linalg.norm(centrality) == pytest.approx(1)
    np.testing.assert_allclose(centrality, centrality[::-1], atol=1e-6)


@pytest.mark.parametrize("narrow", [0, 1e9], ids=["lanczos", "inverse"])
@pytest.mark.parametrize("kind", ["ring", "path", "wheel", "grid", "small_world", "erdos_renyi"])
def test_solvers_for_large_graphs_agree_with_the_dense_ones(monkeypatch, request, kind, narrow):
    graph = graphs.build(kind, 160)
    dense = graphs.measure(graph)
    request.getfixturevalue("as_if_large")
    monkeypatch.setattr("tacit.graphs.eigen.NARROW", narrow)
    large = graphs.measure(graph)
    assert large.fiedler == pytest.approx(dense.fiedler, rel=1e-7)
    assert large.spectral_gap == pytest.approx(dense.spectral_gap, rel=1e-7)
    np.testing.assert_allclose(large.centrality, dense.centrality, atol=1e-6)


@pytest.mark.parametrize("narrow", [0, 1e9], ids=["lanczos", "inverse"])
def test_solvers_for_large_graphs_find_negative_eigenvalues(as_if_large, monkeypatch, narrow):
    monkeypatch.setattr("tacit.graphs.eigen.NARROW", narrow)
    bipartite = nx.to_scipy_sparse_array(graphs.ring(160)) * 0.5
    assert graphs.spectral_gap(bipartite) == pytest.approx(0, abs=1e-9)


def test_large_rings_have_their_known_connectivity():
    assert eigen.DENSE_LIMIT < 2000
    found = graphs.algebraic_connectivity(graphs.ring(2000))
    assert found == pytest.approx(2 - 2 * math.cos(math.pi / 1000), rel=1e-6)


def test_lanczos_that_does_not_arrive_gives_way_to_the_inverse(as_if_large, monkeypatch):
    monkeypatch.setattr("tacit.graphs.eigen.NARROW", 0)
    monkeypatch.setattr("tacit.graphs.eigen.PATIENCE", 1)
    found = graphs.algebraic_connectivity(graphs.ring(500))
    assert found == pytest.approx(2 - 2 * math.cos(math.pi / 250), rel=1e-7)


def test_large_graphs_measure_the_same_every_time(as_if_large):
    graph = graphs.small_world(160, 4, 0.2, seed=5)
    assert graphs.measure(graph) == graphs.measure(graph)


def test_measure_gathers_everything():
    measures = graphs.measure(graphs.wheel(6), "max_degree")
    weights = graphs.mixing_matrix(graphs.wheel(6), "max_degree")
    assert (measures.agents, measures.edges, measures.diameter) == (6, 10, 2)
    assert measures.density == pytest.approx(10 / 15)
    assert measures.fiedler == pytest.approx(6 * measures.normalized_fiedler)
    assert measures.spectral_gap == graphs.spectral_gap(weights)
    assert measures.centrality == tuple(graphs.eigenvector_centrality(graphs.wheel(6)))


def test_measures_go_to_json_and_back():
    measures = graphs.measure(graphs.star(4))
    back = json.loads(json.dumps(measures.to_dict()))
    assert graphs.Measures(**{**back, "centrality": tuple(back["centrality"])}) == measures


def test_measure_of_one_agent():
    assert graphs.measure(graphs.complete(1)) == graphs.Measures(
        agents=1,
        edges=0,
        fiedler=1.0,
        normalized_fiedler=1.0,
        density=1.0,
        spectral_gap=1.0,
        centrality=(1.0,),
        diameter=0,
    )


def test_a_disconnected_graph_is_not_measured():
    with pytest.raises(GraphError, match="not connected"):
        graphs.measure(nx.Graph([(0, 1), (2, 3)]))
