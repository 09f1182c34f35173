"""Without gradients, mixing alone must keep the average and bring agents together."""

from dataclasses import dataclass

import pytest
import torch

import tacit
from tacit import algorithms, graphs
from tacit.networks import DENSE, StackedNetwork, as_topology
from tacit.training.counting import count
from tacit.training.schedules import Constant

ALL = {
    "complete": graphs.complete(8),
    "ring": graphs.ring(8),
    "path": graphs.path(8),
    "star": graphs.star(8),
    "wheel": graphs.wheel(8),
    "grid": graphs.grid(8),
    "torus": graphs.torus(9),
    "hypercube": graphs.hypercube(8),
    "exponential": graphs.exponential(8),
    "small world": graphs.small_world(8, seed=0),
    "random regular": graphs.random_regular(8, seed=0),
    "erdos renyi": graphs.erdos_renyi(8, seed=0),
    "found": graphs.find_graph(8, density=0.5, tolerance=0.05, seed=1),
}


@dataclass
class Still:
    """A round in which no agent's data say anything."""

    network: StackedNetwork
    round: int = 0
    lr: float = 0.5

    def gradient(self, theta):
        return torch.zeros_like(theta)

    def exchange(self, *tensors, codec=DENSE):
        return self.network.exchange(self.round, *tensors, codec=codec)


@pytest.mark.parametrize("rule", ["metropolis", "max_degree"])
@pytest.mark.parametrize("graph", ALL)
@pytest.mark.parametrize("algorithm", [tacit.DSGD(), tacit.DSGT()], ids=["dsgd", "dsgt"])
def test_average_stays_and_agents_agree(algorithm, graph, rule):
    topology = as_topology(ALL[graph], mixing=rule)
    agents = topology.agents
    theta = torch.randn(agents, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    at = Still(StackedNetwork(topology, dtype=torch.float64, any_order=True))
    state, averages = algorithm.init(theta), []
    for _ in range(1200):
        state = algorithm.round(state, at)
        averages.append(state.theta.mean(0))
    torch.testing.assert_close(torch.stack(averages), theta.mean(0).expand(1200, 3), rtol=0, atol=1e-12)
    torch.testing.assert_close(state.theta, theta.mean(0).expand(agents, 3), rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("algorithm", "queries", "messages", "vectors"),
    [
        (tacit.SGD(), 7, 0, 0),
        (tacit.Local(), 7, 0, 0),
        (tacit.DSGD(), 7, 7, 7),
        (tacit.DSGT(), 7, 7, 14),
        (tacit.DiNNO(inner_steps=3), 21, 7, 7),
        (algorithms.LocalDSGD(local_steps=4), 28, 7, 7),
        (algorithms.Muffliato(exchanges=3), 7, 21, 21),
        (algorithms.D2(), 7, 7, 7),
        (algorithms.EXTRA(), 7, 7, 7),
        (algorithms.ADPSGD(), 7, 7, 7),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, int) else str(value),
)
def test_playing_counts_queries_and_messages(algorithm, queries, messages, vectors):
    ring = as_topology(graphs.ring(4))
    cost = count(algorithm, 7, Constant(0.1), lambda device: StackedNetwork(ring, device=device), seed=0, width=10)
    assert (cost.queries, cost.messages, cost.vectors_sent) == (queries, messages, vectors)
    assert cost.bytes_sent.tolist() == [2 * vectors * 10 * 4] * 4
