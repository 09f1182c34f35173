"""Whole private runs, by rule and graph, for any runtime."""

from dataclasses import dataclass
from typing import NamedTuple

import networkx as nx
import torch
from torch import nn

import tacit
from tacit import graphs
from tacit.algorithms import Momentum
from tacit.data import DataSet
from tacit.networks import Moving, RandomMatchings, TopK, base_graphs, one_peer_exponential

AGENTS, ROUNDS = 5, 3
IRREGULAR = nx.Graph([(0, 1), (1, 2), (2, 0), (2, 3), (3, 4)])
GRAPHS = {
    "ring": graphs.ring(AGENTS),
    "star": graphs.star(AGENTS),
    "irregular": IRREGULAR,
    "matchings": RandomMatchings(AGENTS, seed=3),
    "one peer": one_peer_exponential(AGENTS),
    "base": base_graphs(AGENTS, peers=2),
    "moving": Moving(AGENTS, reach=0.6, seed=1, window=40),
}


class ThetaState(NamedTuple):
    theta: torch.Tensor


def shrunk(record, theta):
    return theta * record.input.sum() * 1e-3


@dataclass(frozen=True)
class Ranked:
    """Asks for other vectors than gradients and for the loss on public records, draws by public chance, sends its largest numbers."""

    def init(self, theta):
        return ThetaState(theta)

    def round(self, state, at):
        g = at.query(shrunk, state.theta)
        inbox = at.exchange(state.theta + 0.01 * at.chance(state.theta.shape[1]), codec=TopK(0.5))
        near = inbox.mix() - inbox.own
        return ThetaState(state.theta + near - at.lr * g * at.public_loss(state.theta)[:, None])


RULES = {
    "dsgd": tacit.DSGD(step=Momentum(0.5)),
    "dsgt": tacit.DSGT(),
    "dinno": tacit.DiNNO(inner_steps=2),
    "ranked": Ranked(),
}


def make_model():
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 3))


def make_data():
    chance = torch.Generator().manual_seed(2)
    inputs = torch.randn(260, 4, 4, generator=chance)
    targets = torch.randint(0, 3, (260,), generator=chance)
    table = DataSet.from_records(
        name="made up", train=(inputs[:200], targets[:200]), validation=(inputs[200:], targets[200:]), classes=3
    )
    return table.split(AGENTS, tacit.data.Dirichlet(alpha=5.0), seed=0)


def training(data, rule, graph, **changes):
    settings = {
        "model": make_model,
        "data": data,
        "privacy": tacit.Privacy(noise_multiplier=1.5, delta=1e-5, clip=[0.5, 1.0, 1.0, 2.0, 1.0], lot_size=8),
        "rounds": ROUNDS,
        "lr": [0.1, 0.2, 0.1, 0.3, 0.1],
        "graph": graph,
        "sources": tacit.Seeded(4),
        "same_start": False,
        "step_agents": 1,
        "compile": False,
    }
    return tacit.Training(algorithm=rule, **settings | changes)


def played(settings, runtime=None):
    return to_the_end(tacit.Session(settings, runtime))


def to_the_end(session):
    with session:
        while not session.finished:
            session.advance()
    return session
