"""Every rule on every network gives the same models, to the bit, and those of a slow loop written from the equations."""

import threading
from typing import NamedTuple

import networkx as nx
import numpy as np
import pytest
import reference
import torch
from rules import PAIRS, RULES, SEED, MedianOfNeighbors, WithoutMemory, public_loss

import tacit
from tacit import graphs
from tacit.networks import (
    Changing,
    Cycle,
    Loopback,
    Moving,
    RandomMatchings,
    Several,
    StackedNetwork,
    WiredNetwork,
    as_links,
    as_topology,
    base_graphs,
    check_topology,
    one_peer_exponential,
)
from tacit.training.rounds import Play
from tacit.training.schedules import LogSpaced

AGENTS, WIDTH, ROUNDS = 7, 13, 7
IRREGULAR = nx.Graph([(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 5), (4, 6), (5, 6), (1, 6)])
GRAPHS = {
    "ring": graphs.ring(AGENTS),
    "star": graphs.star(AGENTS),
    "irregular": IRREGULAR,
    "complete": graphs.complete(AGENTS),
}
# Rows and columns sum to one; agents 0 and 1 hear another number than hear them.
LOPSIDED = np.eye(AGENTS)
LOPSIDED[:3, :3] = [[0.5, 0.5, 0], [0.25, 0.5, 0.25], [0.25, 0, 0.75]]
LOPSIDED = LOPSIDED @ (0.5 * np.eye(AGENTS) + 0.5 * np.roll(np.eye(AGENTS), 1, axis=1))

TOPOLOGIES = {
    **{name: as_topology(graph) for name, graph in GRAPHS.items()},
    "one way": as_topology(LOPSIDED),
    "cycle": Cycle((as_links(graphs.ring(AGENTS)), as_links(nx.empty_graph(AGENTS)), as_links(graphs.star(AGENTS)))),
    "function": Changing(lambda k: nx.circulant_graph(AGENTS, [1 + k % 3]), AGENTS),
    "matchings": RandomMatchings(AGENTS, seed=3),
    "one peer": one_peer_exponential(AGENTS),
    "base": base_graphs(AGENTS, peers=2),
    "moving": Moving(AGENTS, reach=0.5, seed=1, window=40),
}
CASES = [(rule, where) for rule in RULES for where in TOPOLOGIES if not ("dinno" in rule and where == "one way")]
APART = (
    4  # which share of the cases a quick run plays: every rule on some kinds of links, and every kind with some rules
)


def spread_out(first):
    """Return all cases, of which every fourth from this one on is played in a quick run, and the others in a slow one."""
    return [
        pytest.param(*case, marks=() if number % APART == first else pytest.mark.slow)
        for number, case in enumerate(CASES)
    ]


@pytest.mark.parametrize("first", [0, 1, 2])
def test_a_quick_run_has_every_rule_and_every_kind_of_links(first):
    rules, links = zip(*(case.values for case in spread_out(first) if not case.marks), strict=True)
    assert set(rules) == set(RULES)
    assert set(links) == set(TOPOLOGIES)


def test_every_shipped_rule_is_in_the_table():
    """Except PATE, whose teachers need records: `tests/training/test_runtimes.py` has it."""
    assert set(tacit.algorithms.RULES) - set(PAIRS) == {"pate"}


class Bowl(NamedTuple):
    steep: torch.Tensor
    lowest: torch.Tensor

    def gradient(self, theta):
        return self.steep * (theta - self.lowest)


class Bowls:
    """Every agent has a bowl of its own: the gradient is a(θ − c), number by number, so a row does not know of others."""

    def __init__(self, agents, dtype):
        chance = torch.Generator().manual_seed(5)
        self.steep = (0.5 + torch.rand(AGENTS, WIDTH, generator=chance, dtype=torch.float64)).to(dtype)[agents]
        self.lowest = torch.randn(AGENTS, WIDTH, generator=chance, dtype=torch.float64).to(dtype)[agents]

    def gradient(self, theta):
        return self.steep * (theta - self.lowest)

    def query(self, per_sample, *public, width=None):
        """The only record of an agent is its bowl."""
        records = [Bowl(*row) for row in zip(self.steep, self.lowest, strict=True)]
        return torch.stack([per_sample(each, *rows) for each, *rows in zip(records, *public, strict=True)])

    def all(self, thetas):
        return [self.steep[i] * (theta - self.lowest[i]) for i, theta in enumerate(thetas)]

    def differences(self, thetas, before, keep, scale):
        here, there = self.all(thetas), self.all(before)
        return [(here[i] - keep * there[i]) / scale for i in range(len(thetas))]


def starts(dtype):
    return torch.randn(AGENTS, WIDTH, generator=torch.Generator().manual_seed(8), dtype=torch.float64).to(dtype)


def played(rule, network, agents, dtype):
    """Return the play at its end, with the states after every round."""
    play = Play(
        rule,
        starts(dtype)[agents],
        rounds=ROUNDS,
        schedule=LogSpaced(0.2, 0.05),
        network=network,
        oracle=Bowls(agents, dtype),
        seed=SEED,
        public_loss=public_loss,
    )
    play.states = [play.state]
    while play.round < ROUNDS:
        play.advance()
        play.states.append(play.state)
    return play


def stacked(rule, topology, dtype, **settings):
    network = StackedNetwork(topology, dtype=dtype, **settings)
    return [played(rule, network, list(range(AGENTS)), dtype)]


class Labelled(Loopback):
    """No message ever has the label of another: it could be taken for that one where a neighbour is slow."""

    def __init__(self, agents):
        super().__init__(agents, timeout=20)
        self.labels = set()

    def put(self, sender, to, label, data):
        assert (sender, to, label) not in self.labels
        self.labels.add((sender, to, label))
        super().put(sender, to, label, data)


def wired(rule, topology, dtype):
    """Play every agent in a thread of its own, with messages as bytes."""
    wires, plays, failed = Labelled(AGENTS), {}, []

    def run(agent):
        network = WiredNetwork(agent, topology, wires.end(agent))
        try:
            plays[agent] = played(rule, network, [agent], dtype)
        except BaseException as error:
            failed.append(error)
        finally:
            network.close()

    threads = [threading.Thread(target=run, args=(agent,)) for agent in range(AGENTS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if failed:
        raise failed[0]
    return [plays[agent] for agent in range(AGENTS)]


def over_rounds(plays, part="theta"):
    """Return all agents' rows of a part of the state after every round: [rounds, agents, width]."""
    rounds = range(len(plays[0].states))
    return torch.stack([torch.cat([getattr(play.states[number], part) for play in plays]) for number in rounds])


def bytes_sent(plays):
    return [int(sent) for play in plays for sent in play.network.bytes_sent]


def links_of(where):
    """Weights and neighbours of a round: from the equation for a graph, which the schedule says for links that change."""
    if where in GRAPHS:
        return reference.fixed(GRAPHS[where])

    def links(number):
        (each,) = TOPOLOGIES[where].at(number)
        return each.weights.toarray().tolist(), [each.of_agent(agent)[0].tolist() for agent in range(AGENTS)]

    return links


@pytest.mark.parametrize(("rule", "where"), spread_out(0))
def test_networks_give_what_the_equations_say_and_agree_to_the_bit(rule, where):
    together, apart = (play(RULES[rule], TOPOLOGIES[where], torch.float64) for play in (stacked, wired))
    assert torch.equal(over_rounds(together), over_rounds(apart))
    assert bytes_sent(together) == bytes_sent(apart)
    assert (max(bytes_sent(apart)) > 0) == (rule not in ("sgd", "local", "local averaged"))
    lrs = [LogSpaced(0.2, 0.05)(number, ROUNDS) for number in range(ROUNDS)]
    first = starts(torch.float64)
    oracle = Bowls(list(range(AGENTS)), torch.float64)
    expected = [torch.stack(thetas) for thetas in PAIRS[rule][1](oracle, links_of(where), list(first), lrs)]
    torch.testing.assert_close(over_rounds(together), torch.stack([first, *expected]), rtol=0, atol=1e-10)


@pytest.mark.parametrize(("rule", "where"), spread_out(2))
def test_networks_agree_to_the_bit_in_float32_as_well(rule, where):
    together, apart = (play(RULES[rule], TOPOLOGIES[where], torch.float32) for play in (stacked, wired))
    assert torch.equal(over_rounds(together), over_rounds(apart))
    assert bytes_sent(together) == bytes_sent(apart)


@pytest.mark.parametrize("where", TOPOLOGIES)
@pytest.mark.parametrize("rule", ["dsgd", "dsgt"])
def test_a_product_of_any_order_agrees_to_rounding(rule, where):
    ours, theirs = (
        over_rounds(stacked(RULES[rule], TOPOLOGIES[where], torch.float64, any_order=any_order))
        for any_order in (False, True)
    )
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("network", [stacked, wired])
@pytest.mark.parametrize("where", TOPOLOGIES)
def test_tracking_is_exact_in_every_round(where, network):
    """The mean of y is that of g̃, and g̃ is the gradient at the models before the round."""
    plays = network(tacit.DSGT(), TOPOLOGIES[where], torch.float64)
    theta, tracker, gradient = (over_rounds(plays, part) for part in ("theta", "tracker", "gradient"))
    torch.testing.assert_close(tracker.mean(1), gradient.mean(1), rtol=0, atol=1e-13)
    asked = Bowls(list(range(AGENTS)), torch.float64).gradient(theta[:-1])
    assert torch.equal(gradient[1:], asked)
    assert float(tracker[-1].sub(gradient[-1]).abs().max()) > 0.1  # of one agent they differ


@pytest.mark.parametrize("network", [stacked, wired])
@pytest.mark.parametrize(
    ("rule", "where"), [case for case in CASES if case[0] in ("dinno", "dinno with plain steps", "dinno with random-k")]
)
def test_duals_sum_to_zero_in_every_round(rule, where, network):
    dual = over_rounds(network(RULES[rule], TOPOLOGIES[where], torch.float64), "dual")
    torch.testing.assert_close(dual.sum(1), torch.zeros_like(dual[:, 0]), rtol=0, atol=1e-12)
    assert float(dual[-1].abs().max()) > 0.1


@pytest.mark.parametrize("network", [stacked, wired])
def test_several_exchanges_in_a_round_average_exactly(network):
    base = base_graphs(AGENTS)
    several = Several(base, len(base.each))
    check_topology(several, 20)
    found = over_rounds(network(tacit.DSGD(), several, torch.float64))[-1]
    mean, oracle = starts(torch.float64), Bowls(list(range(AGENTS)), torch.float64)
    for number in range(ROUNDS):
        mean = mean.mean(0) - LogSpaced(0.2, 0.05)(number, ROUNDS) * oracle.gradient(mean)
    torch.testing.assert_close(found, mean, rtol=0, atol=1e-12)


class MixedTwice(WithoutMemory):
    """Takes the same mix twice of one inbox, and sends several messages in a round."""

    def round(self, state, at):
        inbox = at.exchange(state.theta)
        again = at.exchange(inbox.mix()).mix()
        return state._replace(theta=0.5 * (inbox.mix() + again) - at.lr * at.gradient(state.theta))


@pytest.mark.parametrize("exchanges", [1, 3])
def test_an_inbox_may_be_mixed_again_on_every_network(exchanges):
    topology = Several(TOPOLOGIES["matchings"], exchanges)
    together, apart = (play(MixedTwice(), topology, torch.float64) for play in (stacked, wired))
    assert torch.equal(over_rounds(together), over_rounds(apart))
    assert bytes_sent(together) == bytes_sent(apart)


@pytest.mark.parametrize("network", [stacked, wired])
@pytest.mark.parametrize("rule", [tacit.DiNNO(), MedianOfNeighbors()], ids=["sum", "messages"])
def test_sums_and_messages_are_refused_where_a_round_has_several_exchanges(network, rule):
    with pytest.raises(
        tacit.errors.InvalidInput, match=r"needs one exchange in a round; this topology has 2, where only mix\(\) works"
    ):
        network(rule, Several(as_topology(graphs.ring(AGENTS)), 2), torch.float64)


@pytest.mark.parametrize("network", [stacked, wired])
def test_sums_are_refused_where_someone_hears_more_than_hear_it(network):
    """The weights are doubly stochastic, so mixing keeps the average; sums over neighbours keep nothing."""
    check_topology(TOPOLOGIES["one way"], 1)
    with pytest.raises(
        tacit.errors.GraphError, match=r"agent \d hears \d and is heard by \d: .* such as DiNNO would drift"
    ):
        network(tacit.DiNNO(), TOPOLOGIES["one way"], torch.float64)


def test_everyone_sends_before_anyone_waits_for_an_answer():
    """A message that is never sent is named after the time is up, and one who leaves is not waited for."""
    wires = Loopback(3, timeout=0.2)
    network = WiredNetwork(0, as_topology(graphs.ring(3)), wires.end(0))
    with pytest.raises(tacit.errors.NetworkError, match=r"agent 0 waited 0.2 s for message \(0, 0, 0\) of agent 1"):
        network.exchange(0, torch.zeros(1, 4))
    wires.end(2).close()
    wires.end(1).send(0, (1, 0, 0), b"\0" * 16)
    with pytest.raises(tacit.errors.NetworkError, match="agent 2 has left"):
        network.exchange(1, torch.zeros(1, 4))


def test_a_message_of_another_length_is_refused():
    wires = Loopback(2, timeout=1)
    wires.end(1).send(0, (0, 0, 0), b"\0" * 15)
    with pytest.raises(tacit.errors.InvalidInput, match="15 bytes instead of 16"):
        WiredNetwork(0, as_topology(graphs.ring(2)), wires.end(0)).exchange(0, torch.zeros(1, 4))
