"""What a peer's network refuses to read, and how it mixes what is left."""

import networkx as nx
import numpy as np
import pytest
import torch

from tacit.errors import GraphError, InvalidInput
from tacit.networks import Links
from tacit.networks.skipped import WithSkips, skip_links
from tacit.networks.topology import Static, as_topology
from tacit.peer.network import PeerNetwork
from tacit.peer.protocol.driver import Suspended
from tacit.peer.protocol.interface import Refused, Slot

PATH = as_topology(nx.path_graph(3))


class _Core:
    """Knows the outcome of exchanges beforehand."""

    class terms:
        norm_bound = 10.0

    def __init__(self, heard=None):
        self.heard, self.asked = heard, []

    def outcome(self, pending):
        self.asked.append(pending)
        return self.heard


def numbers(*values):
    return torch.tensor(values).numpy().tobytes()


def pending_of(network, *tensors):
    with pytest.raises(Suspended) as suspended:
        network.exchange(0, *tensors)
    return suspended.value.pending


def test_an_exchange_that_is_not_settled_suspends_the_round():
    pending = pending_of(PeerNetwork(1, PATH, _Core()), torch.ones(1, 2))
    assert (pending.slot, pending.neighbors, pending.message) == (Slot(0, 0), (0, 2), numbers(1.0, 1.0))


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (numbers(1.0, float("nan")), "not finite"),
        (numbers(float("inf"), 1.0), "not finite"),
        (numbers(8.0, 8.0), "beyond the norm bound"),
        (numbers(1.0), "cannot be read"),
        (b"odd", "cannot be read"),
    ],
)
def test_messages_that_cannot_be_used_are_refused(message, why):
    accept = pending_of(PeerNetwork(1, PATH, _Core()), torch.ones(1, 2)).accept
    accept(numbers(6.0, 8.0))  # on the bound
    with pytest.raises(Refused, match=why):
        accept(message)


def test_the_weight_of_a_skipped_link_returns_to_self():
    core = _Core({0: numbers(5.0)})
    mixed = PeerNetwork(1, PATH, core).exchange(0, torch.ones(1, 1)).mix()
    weights = PATH.at(0)[0].weights.toarray()
    assert mixed.item() == pytest.approx(5 * weights[1, 0] + (1 - weights[1, 0]))


def test_exchanges_of_a_round_are_counted_anew_after_rewinding():
    core = _Core({0: numbers(5.0), 2: numbers(6.0)})
    network = PeerNetwork(1, PATH, core)
    for _ in range(2):
        network.rewind()
        network.exchange(3, torch.ones(1, 1))
        network.exchange(3, torch.ones(1, 1))
    assert [pending.slot for pending in core.asked] == [Slot(3, 0), Slot(3, 1)] * 2
    assert network.bytes_sent.tolist() == [2 * 2 * 4]  # a round that is played again sends nothing again


def test_links_that_are_not_mutual_are_refused():
    one_way = Static(Links.of(as_topology(np.array([[0.5, 0.5, 0], [0, 0.5, 0.5], [0.5, 0, 0.5]])).at(0)[0].weights))
    with pytest.raises(InvalidInput, match="not mutual with equal weights, which peers need"):
        PeerNetwork(1, one_way, _Core()).exchange(0, torch.ones(1, 1))
    with pytest.raises(GraphError, match="give symmetric weights"):
        skip_links(one_way.at(0)[0], [(0, 1)])


@pytest.mark.parametrize("seed", range(5))
def test_weights_stay_symmetric_and_doubly_stochastic_whatever_is_skipped(seed):
    chance = np.random.default_rng(seed)
    graph = nx.gnp_random_graph(8, 0.5, seed=seed)
    nx.add_path(graph, range(8))
    topology = as_topology(graph)
    pairs = [tuple(sorted(pair)) for pair in graph.edges if chance.random() < 0.4]
    (links,) = WithSkips(topology, {(2, 0): pairs}).at(2)
    weights = links.weights.toarray()
    assert (weights == weights.T).all()
    assert np.abs(weights.sum(axis=0) - 1).max() < 1e-12
    assert all(weights[pair] == 0 and not links.heard[pair] for pair in pairs)
    kept = [pair for pair in map(tuple, map(sorted, graph.edges)) if pair not in pairs]
    original = topology.at(2)[0].weights.toarray()
    assert all(weights[pair] == original[pair] for pair in kept)
    assert WithSkips(topology, {(2, 0): pairs}).at(1)[0] is topology.at(1)[0]


def test_an_agent_that_gives_itself_no_weight_takes_that_of_a_skipped_link():
    swap = as_topology(np.array([[0.0, 1.0], [1.0, 0.0]])).at(0)[0]
    assert (skip_links(swap, [(0, 1)]).weights.toarray() == np.eye(2)).all()
