import networkx as nx
import numpy as np
import pytest
import reference
import torch
from scipy import sparse

from tacit.errors import InvalidInput
from tacit.graphs import mixing_matrix, random_regular, ring, star
from tacit.networks import Links, StackedNetwork, Static, adding, as_topology


def values(rows, columns=3, seed=0):
    return torch.randn(rows, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def network(graph, **settings):
    return StackedNetwork(as_topology(graph), dtype=torch.float64, **settings)


@pytest.fixture(params=["in order", "in small blocks", "dense", "sparse"])
def product(request, monkeypatch):
    """Every test here holds for the sum in order and for both kinds of product."""
    if request.param in ("dense", "sparse"):
        monkeypatch.setattr(
            StackedNetwork.__init__, "__kwdefaults__", StackedNetwork.__init__.__kwdefaults__ | {"any_order": True}
        )
    if request.param == "sparse":
        monkeypatch.setattr(adding, "_SPARSE_FROM", -1)
        monkeypatch.setattr(adding, "_SPARSE_PER_NEIGHBOR", 0)
    if request.param == "in small blocks":
        monkeypatch.setattr(adding, "_BLOCK_NUMBERS", 2)
    return request.param


@pytest.mark.usefixtures("product")
@pytest.mark.parametrize("graph", [ring(6), star(6), nx.path_graph(6)], ids=["ring", "star", "path"])
def test_inbox_mixes_sums_and_counts_neighbours(graph):
    x = values(6)
    inbox = network(graph).exchange(0, x)
    w = reference.metropolis(graph)
    mixed = torch.stack([sum(w[i][j] * x[j] for j in range(6)) for i in range(6)])
    summed = torch.stack([sum(x[j] for j in graph.neighbors(i)) for i in range(6)])
    torch.testing.assert_close(inbox.mix(), mixed, rtol=0, atol=1e-14)
    torch.testing.assert_close(inbox.sum(), summed, rtol=0, atol=1e-14)
    assert inbox.degree.flatten().tolist() == [graph.degree[i] for i in range(6)]


@pytest.mark.usefixtures("product")
def test_several_tensors_travel_in_one_message_and_bytes_are_counted():
    graph = star(4)
    net = network(graph)
    x, y = values(4, 3), values(4, 5, seed=1).float().double()
    mixed_x, mixed_y = net.exchange(0, x, y).mix()
    assert torch.equal(mixed_x, network(graph).exchange(0, x).mix())
    assert mixed_y.shape == (4, 5)
    message = (3 + 5) * 8
    assert net.bytes_sent.tolist() == [3 * message, message, message, message]
    net.exchange(0, x)
    assert net.bytes_sent[0] == 3 * message + 3 * 24


@pytest.mark.usefixtures("product")
def test_tensors_of_any_shape_can_be_exchanged():
    x = torch.randn(5, 2, 3, dtype=torch.float64)
    mixed = network(ring(5)).exchange(0, x).mix()
    torch.testing.assert_close(mixed[0], (x[0] + x[1] + x[4]) / 3)


@pytest.mark.usefixtures("product")
def test_no_message_crosses_between_trials():
    graph = ring(5)
    both = network(graph, trials=2)
    x = values(10)
    mixed = both.exchange(0, x).mix()
    changed = x.clone()
    changed[5:] = 100
    assert torch.equal(both.exchange(0, changed).mix()[:5], mixed[:5])
    torch.testing.assert_close(mixed[5:], network(graph).exchange(0, x[5:]).mix(), rtol=0, atol=1e-14)


@pytest.mark.usefixtures("product")
def test_every_trial_may_have_a_graph_of_its_own():
    graphs = [ring(5), star(5)]
    both = StackedNetwork([as_topology(g) for g in graphs], trials=2, dtype=torch.float64)
    x = values(10)
    inbox = both.exchange(0, x)
    for trial, graph in enumerate(graphs):
        part = slice(5 * trial, 5 * trial + 5)
        alone = network(graph).exchange(0, x[part])
        torch.testing.assert_close(inbox.mix()[part], alone.mix(), rtol=0, atol=1e-14)
        torch.testing.assert_close(inbox.sum()[part], alone.sum(), rtol=0, atol=1e-14)
        assert torch.equal(inbox.degree[part], alone.degree)


def test_a_tap_sees_what_was_sent():
    seen = []
    x = values(4)
    network(ring(4), taps=[seen.append]).exchange(0, x, 2 * x)
    ((first, second),) = seen
    assert torch.equal(first, x)
    assert torch.equal(second, 2 * x)


def test_large_sparse_graphs_get_a_sparse_product():
    graph = random_regular(600, 4, seed=0)
    x = values(600, 2)
    dense = torch.from_numpy(mixing_matrix(graph).toarray())
    torch.testing.assert_close(network(graph, any_order=True).exchange(0, x).mix(), dense @ x, rtol=0, atol=1e-13)
    kinds = [adding.product([mixing_matrix(g)], 1, torch.float64, torch.device("cpu")) for g in (graph, ring(6))]
    assert [kind.__name__ for kind in kinds] == ["multiply_sparse", "multiply"]


def test_repeats_to_the_bit():
    x = values(50, 400).float()
    net = StackedNetwork(as_topology(random_regular(50, 6, seed=0)), any_order=True)
    assert torch.equal(net.exchange(0, x).mix(), net.exchange(0, x).mix())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: network(ring(4)).exchange(0), "at least one tensor"),
        (lambda: network(ring(4)).exchange(0, values(5)), "5 rows for 1 trials of 4 agents"),
        (lambda: StackedNetwork([as_topology(ring(4))] * 2, trials=3), "2 topologies of"),
        (lambda: StackedNetwork([as_topology(ring(4)), as_topology(ring(5))], trials=2), "do not fit"),
    ],
)
def test_refuses_what_does_not_fit(call, message):
    with pytest.raises(InvalidInput, match=message):
        call()


def test_agents_without_links_hear_only_themselves():
    alone = StackedNetwork(Static(Links.of(sparse.csr_array(np.eye(3)))), dtype=torch.float64)
    x = values(3)
    inbox = alone.exchange(0, x)
    assert torch.equal(inbox.mix(), x)
    assert not inbox.sum().any()
    assert not inbox.degree.any()
    assert alone.bytes_sent.tolist() == [0, 0, 0]
