"""A whole run is the same to the bit where processes host several agents each."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hosted_runs import AGENTS, GRAPHS, RULES, make_data, played, to_the_end, training
from ranks import on_ranks

import tacit
from tacit.errors import InvalidInput
from tacit.networks import DENSE, Loopback, WiredNetwork
from tacit.training.runtimes import Hosted, Sharded


@pytest.fixture(scope="module")
def data():
    return make_data()


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

    def connect(self, topologies, wanted):
        (topology,) = topologies
        return ShardNetwork(self.agents, topology, self.wires, wanted.device)

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


def play_shard(rank, rule, where, shards, changes):
    """Play one rank's agents, with their own records, sources and ledger alone; return what it has in the end."""
    settings = training(make_data(), RULES[rule], GRAPHS[where], **changes)
    own = replace(settings, data=settings.data.only(list(shards[rank])), sizes=settings.data.sizes)
    session = played(own, Sharded(shards, rank))
    everyone = session.runtime.gather(session.state.theta)
    (result,) = session.results()
    facts = [(guarantee.epsilon, guarantee.delta) for guarantee in result.guarantees()]
    return (
        session.state.theta.numpy(),
        None if everyone is None else everyone.numpy(),
        session.network.bytes_sent.tolist(),
        facts,
        session.ledger.owners,
        session.cost.bytes_sent.tolist(),
        [(look.loss.tolist(), look.consensus_distance) for look in result.history],
    )


# Every rule and every graph in a quick run is not needed: tests/networks/test_sharded.py plays them all.
@pytest.mark.parametrize(
    ("rule", "where", "shards"),
    [
        ("dsgt", "irregular", SHARDS),
        pytest.param("dinno", "matchings", SHARDS, marks=pytest.mark.slow),
        pytest.param("ranked", "ring", SHARDS, marks=pytest.mark.slow),
        pytest.param("dsgd", "star", ((1,), (0, 4), (2,), (3,)), marks=pytest.mark.slow),
    ],
)
def test_a_run_over_ranks_is_the_same_to_the_bit(rule, where, shards, data):
    found = on_ranks(len(shards), play_shard, rule, where, shards, {})
    together, order = played(training(data, RULES[rule], GRAPHS[where])), [agent for own in shards for agent in own]
    theta = together.state.theta.numpy()
    assert np.array_equal(theta[order], np.concatenate([each[0] for each in found]))
    assert np.array_equal(theta, found[0][1])
    assert [each[1] is None for each in found] == [False, *[True] * (len(shards) - 1)]
    assert together.network.bytes_sent[order].tolist() == [sent for each in found for sent in each[2]]
    assert together.cost.bytes_sent[order].tolist() == [sent for each in found for sent in each[5]]
    (whole,) = together.results()
    expected = [(guarantee.epsilon, guarantee.delta) for guarantee in whole.guarantees()]
    assert [expected[agent] for agent in order] == [each for facts in found for each in facts[3]]
    for own, each in zip(shards, found, strict=True):
        assert each[4] == tuple(data.owners[agent] for agent in own)
    for look, (loss, distance) in zip(whole.history, found[0][6], strict=True):
        assert loss == pytest.approx(look.loss.tolist())  # rank 0 has every agent's
        assert distance == look.consensus_distance
    assert all(len(loss) == len(shards[1]) and np.isnan(distance) for loss, distance in found[1][6])


def test_what_a_rank_cannot_do_is_said(data):
    settings = training(data, tacit.DSGT(), GRAPHS["ring"])
    with pytest.raises(InvalidInput, match="rank 0 hosts 2 agents, but the data is that of 5; give only theirs"):
        tacit.Session(settings, Sharded(SHARDS, 0))
    with pytest.raises(InvalidInput, match="rank 2 is not among 2"):
        Sharded(SHARDS, 2)
    alone = Sharded(((0, 1, 2, 3, 4),), 0)
    with pytest.raises(InvalidInput, match="agents in several processes add up in one order only"):
        tacit.Session(replace(settings, any_order=True), alone)
