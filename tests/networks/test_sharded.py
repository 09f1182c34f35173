"""A network over ranks gives what the stack gives, to the bit, and each value crosses once for each rank that needs it."""

import numpy as np
import pytest
import torch
import torch.distributed as dist
from ranks import on_ranks
from rules import PAIRS, RULES
from test_conformance import (
    AGENTS,
    CASES,
    TOPOLOGIES,
    MixedTwice,
    bytes_sent,
    over_rounds,
    played,
    spread_out,
    stacked,
)

import tacit
from tacit import graphs
from tacit.errors import InvalidInput
from tacit.networks import Several, ShardedNetwork, StackedNetwork, as_topology
from tacit.networks.arriving import Room
from tacit.networks.sharded import find_crossing, ranks_of

# Neither contiguous nor equal; the order of the table's rows is not that of agents.
SHARDS = {1: ((0, 1, 2, 3, 4, 5, 6),), 2: ((0, 2, 5), (1, 3, 4, 6)), 4: ((3,), (0, 6), (1, 2), (4, 5))}
QUICK = [case.values for case in spread_out(1) if not case.marks]


def play_cases(rank, shards, cases, kind):
    """Play every case on one rank; return models over rounds, bytes sent by agents, and bytes that crossed."""
    found = []
    for rule, where in cases:
        network = ShardedNetwork(TOPOLOGIES[where], shards, rank, dtype=getattr(torch, kind))
        play = played(RULES[rule], network, list(shards[rank]), getattr(torch, kind))
        found.append((over_rounds([play]).numpy(), bytes_sent([play]), network.bytes_crossed))
    return found


def assert_agree(ranks, cases, kind):
    shards = SHARDS[ranks]
    each = on_ranks(ranks, play_cases, shards, cases, kind)
    order = np.argsort([agent for own in shards for agent in own])
    for number, (rule, where) in enumerate(cases):
        together = stacked(RULES[rule], TOPOLOGIES[where], getattr(torch, kind))
        models = np.concatenate([found[number][0] for found in each], axis=1)[:, order]
        assert np.array_equal(models, over_rounds(together).numpy()), (rule, where)
        sent = [count for found in each for count in found[number][1]]
        assert [sent[place] for place in order] == bytes_sent(together), (rule, where)
        assert sum(found[number][2] for found in each) <= sum(sent)


def test_two_ranks_agree_with_the_stack_to_the_bit():
    assert_agree(2, QUICK, "float32")


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "kind"), [(1, "float64"), (2, "float64"), (4, "float32")])
def test_every_rule_on_every_topology_agrees_with_the_stack_to_the_bit(ranks, kind):
    assert set(PAIRS) == set(RULES)
    assert_agree(ranks, CASES, kind)


def play_twice(rank, shards, exchanges):
    network = ShardedNetwork(Several(TOPOLOGIES["matchings"], exchanges), shards, rank, dtype=torch.float64)
    return over_rounds([played(MixedTwice(), network, list(shards[rank]), torch.float64)]).numpy()


@pytest.mark.slow
@pytest.mark.parametrize("exchanges", [1, 3])
def test_an_inbox_may_be_mixed_again_and_rounds_may_have_several_exchanges(exchanges):
    each = on_ranks(2, play_twice, SHARDS[2], exchanges)
    order = np.argsort([agent for own in SHARDS[2] for agent in own])
    together = stacked(MixedTwice(), Several(TOPOLOGIES["matchings"], exchanges), torch.float64)
    assert np.array_equal(np.concatenate(each, axis=1)[:, order], over_rounds(together).numpy())


def open_several(rank, shards):
    """Read three messages that are open at once, last first, drop one unread, and read another in buffers that were used before."""
    network, own = ShardedNetwork(TOPOLOGIES["ring"], shards, rank), torch.tensor(shards[rank], dtype=torch.float32)
    inboxes = [network.exchange(0, own[:, None] + 10.0 * number) for number in range(3)]
    found = [inbox.mix() for inbox in reversed(inboxes)]
    assert all(torch.equal(inbox.mix(), mixed) for inbox, mixed in zip(reversed(inboxes), found, strict=True))
    del inboxes
    network.exchange(0, own[:, None] - 99.0)
    found.append(network.exchange(0, own[:, None] + 30.0).mix())
    return torch.stack(found).numpy()


def test_messages_that_are_open_at_once_do_not_share_buffers():
    each = on_ranks(2, open_several, SHARDS[2])
    order = np.argsort([agent for own in SHARDS[2] for agent in own])
    everyone = torch.arange(AGENTS, dtype=torch.float32)[:, None]
    network = StackedNetwork([TOPOLOGIES["ring"]])
    expected = torch.stack([network.exchange(0, everyone + added).mix() for added in (20.0, 10.0, 0.0, 30.0)])
    assert np.array_equal(np.concatenate(each, axis=1)[:, order], expected.numpy())


def test_buffers_are_used_again_and_only_the_largest_are_kept():
    room, rows = Room(), torch.zeros(1, 6)
    small, large, other = (room.take(rows, count) for count in (2, 5, 3))
    places = {name: each.data_ptr() for name, each in {"small": small, "large": large, "other": other}.items()}
    room.give_back(small, large)
    room.give_back(other)
    assert room.take(rows, 2).data_ptr() == places["other"]  # the small one was dropped
    again = room.take(rows, 4)
    assert (again.data_ptr(), again.shape) == (places["large"], (4, 6))
    assert room.take(rows.double(), 1).dtype == torch.float64
    room.give_back(again)
    assert room.take(rows, 5).data_ptr() == places["large"]  # all of it, not the part that was used last


def test_a_value_crosses_once_to_each_rank_that_needs_it():
    """On a star, the centre is heard by all: it crosses once to each other rank, and all others cross to its rank."""
    (links,) = as_topology(graphs.star(AGENTS)).at(0)
    shards = SHARDS[4]
    every = [find_crossing(links, ranks_of(shards, AGENTS), rank, 4) for rank in range(4)]
    home = next(rank for rank, own in enumerate(shards) if 0 in own)
    assert every[home].sent.tolist() == [0, 0, 0]
    assert every[home].sent_to == [0 if rank == home else 1 for rank in range(4)]
    assert sorted(every[home].received) == [1, 2, 3, 4, 5]  # agent 6 is on the same rank
    for rank in range(4):
        for other in range(4):
            assert every[rank].sent_to[other] == every[other].received_from[rank]


def count_crossed(rank, shards):
    network = ShardedNetwork(as_topology(graphs.complete(AGENTS)), shards, rank)
    network.exchange(0, torch.ones(len(shards[rank]), 5), torch.ones(len(shards[rank]), 2)).mix()
    return network.bytes_crossed, network.bytes_sent.tolist(), dist.get_rank()


def test_what_crosses_is_counted_apart_from_what_agents_send():
    found = on_ranks(2, count_crossed, SHARDS[2])
    assert [crossed for crossed, _, _ in found] == [3 * 28, 4 * 28]
    assert {sent for _, each, _ in found for sent in each} == {6 * 28}


def test_shards_that_do_not_host_every_agent_once_are_refused():
    for shards in (((0, 1), (1, 2)), ((0, 2), ()), ((1, 0), (2,)), ((0, 1), (3,)), ((0,), (1,))):
        with pytest.raises(InvalidInput, match="rank"):
            ShardedNetwork(as_topology(graphs.ring(3)), shards, 0)
    network = ShardedNetwork(as_topology(graphs.ring(3)), ((0, 1, 2),), 0)
    with pytest.raises(InvalidInput, match="2 rows for the 3 agents hosted here"):
        network.exchange(0, torch.zeros(2, 4))
    with pytest.raises(tacit.errors.GraphError, match="drift"):
        ShardedNetwork(TOPOLOGIES["one way"], SHARDS[1], 0).exchange(0, torch.zeros(AGENTS, 2)).sum()
