"""A whole run, private gradients and all, is the same to the bit wherever its agents are hosted."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import NamedTuple

import networkx as nx
import numpy as np
import pytest
import torch
from torch import nn

import tacit
from tacit import graphs
from tacit.algorithms import Momentum
from tacit.data import DataSet
from tacit.errors import DataError, InvalidInput, PrivacyError
from tacit.models.hashing import models_sha256
from tacit.networks import (
    DENSE,
    Loopback,
    Moving,
    RandomMatchings,
    TopK,
    WiredNetwork,
    base_graphs,
    one_peer_exponential,
)
from tacit.training.runtimes import Hosted, Stacked, Wired

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


@pytest.fixture(scope="module")
def data():
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


def everyone_apart(settings):
    """Play every agent as a process of its own would: with its own records, source, ledger and network alone.

    Sessions are made one after another: a start follows from torch's global generator, which a process has for itself.
    """
    wires, failed = Loopback(AGENTS, timeout=60), []
    sessions = [
        tacit.Session(
            replace(settings, data=settings.data.only([agent]), sizes=settings.data.sizes),
            Wired(agent, AGENTS, wires.end(agent)),
        )
        for agent in range(AGENTS)
    ]

    def run(agent):
        try:
            to_the_end(sessions[agent])
        except BaseException as error:
            failed.append(error)
        finally:
            wires.leave(agent)

    threads = [threading.Thread(target=run, args=(agent,)) for agent in range(AGENTS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if failed:
        raise failed[0]
    return sessions


# Every rule and every graph in a quick run, all pairs in a slow one.
PAIRS = [
    pytest.param(rule, where, marks=() if number % len(RULES) == place else pytest.mark.slow)
    for place, rule in enumerate(RULES)
    for number, where in enumerate(GRAPHS)
]


@pytest.mark.parametrize(("rule", "where"), PAIRS)
def test_a_run_is_the_same_to_the_bit_wherever_its_agents_are_hosted(rule, where, data):
    settings = training(data, RULES[rule], GRAPHS[where])
    together, apart = played(settings), everyone_apart(settings)
    thetas = torch.cat([each.state.theta for each in apart])
    assert torch.equal(together.state.theta, thetas)
    (whole,) = together.results()
    assert models_sha256(thetas) == models_sha256(whole.theta)
    assert together.network.bytes_sent.tolist() == [int(each.network.bytes_sent[0]) for each in apart]
    assert together.cost.bytes_sent.tolist() == [int(each.cost.bytes_sent[0]) for each in apart]
    assert together.cost.bytes_sent.tolist() == together.network.bytes_sent.tolist()


MASKED = {
    "complete keys": tacit.Cancelling(curious=1, ratio=2.0),
    "keys of the graph, ratio by the rule": tacit.Cancelling(curious=1, keys="graph"),
    "two lost": tacit.Cancelling(curious=1, lost=2, ratio=1.0),
}


@pytest.mark.parametrize(
    ("rule", "where", "noise"),
    [
        ("dsgd", "irregular", "complete keys"),
        ("dsgt", "ring", "keys of the graph, ratio by the rule"),
        ("dsgt", "base", "two lost"),
        ("ranked", "ring", "complete keys"),
    ],
)
def test_masks_are_the_same_to_the_bit_wherever_their_ends_are_hosted(rule, where, noise, data):
    privacy = tacit.Privacy(noise_multiplier=1.5, delta=1e-5, clip=[0.5, 1, 1, 2, 1], lot_size=8, noise=MASKED[noise])
    settings = training(data, RULES[rule], GRAPHS[where], privacy=privacy)
    together, apart = played(settings), everyone_apart(settings)
    assert together.plan.masks is not None
    assert all(each.plan == together.plan for each in apart)
    assert torch.equal(together.state.theta, torch.cat([each.state.theta for each in apart]))
    for agent, session in enumerate(apart):
        (result,), (whole,) = session.results(), together.results()
        for observer in (None, tacit.Observer(2), tacit.Observer()):
            assert result.guarantees(observer) == [whole.guarantees(observer)[agent]]


def test_rounds_of_gossip_exchanges_and_absences_agree_as_well(data):
    settings = training(
        data,
        tacit.DSGT(),
        GRAPHS["ring"],
        rounds=4,
        gossip_rounds=2,
        exchanges_per_query=2,
        absences=[tacit.Absence(1, 1, 3), tacit.Absence(4, 2, rekey=3)],
        privacy=tacit.Privacy(
            noise_multiplier=1.5, delta=1e-5, clip=1.0, lot_size=8, noise=tacit.Cancelling(lost=1, ratio=1.0)
        ),
    )
    together, apart = played(settings), everyone_apart(settings)
    assert torch.equal(together.state.theta, torch.cat([each.state.theta for each in apart]))
    assert together.network.bytes_sent.tolist() == [int(each.network.bytes_sent[0]) for each in apart]
    assert together.cost.bytes_sent.tolist() == together.network.bytes_sent.tolist()


def test_secret_masks_are_refused_where_their_ends_are_in_different_processes(data):
    """Every process would draw keys of its own, and masks would not cancel."""
    privacy = tacit.Privacy(noise_multiplier=1.5, delta=1e-5, clip=1.0, lot_size=8, noise=MASKED["complete keys"])
    settings = training(data, tacit.DSGT(), GRAPHS["ring"], privacy=privacy, sources=tacit.Secret())
    own = replace(settings, data=data.only([2]), sizes=data.sizes)
    with pytest.raises(PrivacyError, match=r"1 of 5 agents are hosted here.*masks would not cancel between processes"):
        tacit.Session(own, Wired(2, AGENTS, Loopback(AGENTS).end(2)))
    assert tacit.Session(settings).plan.masks is not None
    local = replace(own, privacy=replace(privacy, noise=None))
    assert tacit.Session(local, Wired(2, AGENTS, Loopback(AGENTS).end(2))).plan.masks is None


class ShardInbox:
    """The inboxes of several agents as one; what waits for messages is asked of all of them at once."""

    def __init__(self, each, pool):
        self._each, self._pool = each, pool

    @property
    def degree(self):
        return torch.cat([inbox.degree for inbox in self._each])

    @property
    def own(self):
        return self._joined([inbox.own for inbox in self._each])

    def mix(self):
        return self._joined(list(self._pool.map(lambda inbox: inbox.mix(), self._each)))

    def sum(self):
        return self._joined([inbox.sum() for inbox in self._each])

    def _joined(self, parts):
        return (
            torch.cat(parts) if isinstance(parts[0], torch.Tensor) else tuple(map(torch.cat, zip(*parts, strict=True)))
        )


class ShardNetwork:
    """Some agents in one process, each with its own end of the wires."""

    trials = 1

    def __init__(self, agents, topology, wires, device):
        self._each = [WiredNetwork(agent, topology, wires.end(agent), device=device) for agent in agents]
        self._pool = ThreadPoolExecutor(len(agents))
        self.hosted = torch.tensor(agents, device=device)

    @property
    def bytes_sent(self):
        return np.concatenate([network.bytes_sent for network in self._each])

    def exchange(self, round, *tensors, codec=DENSE):
        def one(place):
            rows = [tensor[place : place + 1] for tensor in tensors]
            return self._each[place].exchange(round, *rows, codec=codec)

        return ShardInbox(list(self._pool.map(one, range(len(self._each)))), self._pool)

    def close(self):
        for network in self._each:
            network.close()


@dataclass(frozen=True)
class Shard:
    """A runtime of some agents, neither all nor one."""

    agents: tuple
    wires: Loopback
    trials = 1

    def host(self, parts):
        assert parts == len(self.agents)
        return Hosted(self.agents, AGENTS)

    def connect(self, topologies, *, dtype, device, taps, any_order):
        (topology,) = topologies
        return ShardNetwork(self.agents, topology, self.wires, device)

    def gather(self, rows):
        return None


SHARDS = ((0, 3), (1, 2, 4))


@pytest.mark.parametrize("where", ["ring", "irregular", "matchings"])
@pytest.mark.parametrize("rule", ["dsgd", "dsgt", "dinno"])
def test_a_run_in_two_shards_is_the_same_to_the_bit(rule, where, data):
    settings, wires = training(data, RULES[rule], GRAPHS[where]), Loopback(AGENTS, timeout=60)
    sessions = [
        tacit.Session(replace(settings, data=data.only(list(agents)), sizes=data.sizes), Shard(agents, wires))
        for agents in SHARDS
    ]
    with ThreadPoolExecutor(len(SHARDS)) as pool:
        list(pool.map(to_the_end, sessions))
    together, order = played(settings), [agent for agents in SHARDS for agent in agents]
    assert torch.equal(together.state.theta[order], torch.cat([session.state.theta for session in sessions]))
    for agents, session in zip(SHARDS, sessions, strict=True):
        assert session.network.bytes_sent.tolist() == together.network.bytes_sent[list(agents)].tolist()
        assert session.cost.bytes_sent.tolist() == session.network.bytes_sent.tolist()
        (whole,), (part,) = together.results(), session.results()
        assert part.guarantees() == [whole.guarantees()[agent] for agent in agents]
        assert session.ledger.owners == tuple(data.owners[agent] for agent in agents)


def test_an_agent_by_itself_is_charged_for_its_own_records_alone(data):
    settings = training(data, tacit.DSGT(), GRAPHS["ring"])
    whole, apart = played(settings).results()[0], everyone_apart(settings)
    for agent, session in enumerate(apart):
        (result,) = session.results()
        assert session.ledger.owners == (data.owners[agent],)
        assert result.guarantees() == [whole.guarantees()[agent]]
        assert result.history[-1].loss == pytest.approx(whole.history[-1].loss[[agent]])
        assert np.isnan(result.consensus_distance)
        assert result.samples_per_second > 0
        assert len(session.training.data.dataset.train) == data.sizes[agent]


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [False, True])
def test_two_threads_and_compiled_steps_agree_as_well(data, compiled):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        settings = training(data, tacit.DSGT(), GRAPHS["ring"], compile=compiled)
        together, apart = played(settings), everyone_apart(settings)
    finally:
        torch.set_num_threads(before)
    assert {session.chosen.compiled for session in (together, *apart)} == {compiled}
    assert torch.equal(together.state.theta, torch.cat([each.state.theta for each in apart]))


def test_without_privacy_runtimes_agree_as_well(data):
    settings = training(data, tacit.DSGT(), GRAPHS["irregular"], privacy=tacit.NoPrivacy(lot_size=8), sources=None)
    thetas = torch.cat([each.state.theta for each in everyone_apart(settings)])
    assert torch.equal(played(settings).state.theta, thetas)


def test_all_agents_of_several_trials_count_as_they_send(data):
    settings = training(data, tacit.DSGT(), [GRAPHS["ring"], GRAPHS["star"]], lr=0.1)
    both = played(settings, Stacked(2))
    assert both.cost.bytes_sent.tolist() == both.network.bytes_sent.tolist()
    assert len(set(both.cost.bytes_sent[:AGENTS])) == 1 < len(set(both.cost.bytes_sent[AGENTS:]))


def test_what_an_agent_by_itself_cannot_do_is_told(data):
    settings, wires = training(data, tacit.DSGT(), GRAPHS["ring"]), Loopback(AGENTS)
    alone = Wired(2, AGENTS, wires.end(2))
    with pytest.raises(InvalidInput, match="the data is that of 5; give its own alone"):
        tacit.Session(settings, alone)
    own = replace(settings, data=data.only([2]))
    with pytest.raises(InvalidInput, match="1 of 5 agents are hosted here; give sizes"):
        tacit.Session(own, alone)
    with pytest.raises(InvalidInput, match="one order only"):
        tacit.Session(replace(own, sizes=data.sizes, any_order=True), alone)
    with pytest.raises(InvalidInput, match="agent 5 is not among 5"):
        Wired(5, AGENTS, wires.end(4))
    with pytest.raises(DataError, match="there is no agent 7"):
        data.only([7])


def test_what_some_agents_hold_is_without_anybody_elses_records(data):
    own = data.only([3, 1])
    assert own.owners == (data.owners[3], data.owners[1])
    assert own.sizes == (data.sizes[3], data.sizes[1])
    assert len(own.dataset.train) == sum(own.sizes)
    assert torch.equal(own.dataset.train.inputs[own.indices[1]], data.dataset.train.inputs[data.indices[1]])
