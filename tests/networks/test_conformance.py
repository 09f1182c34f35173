"""Every rule on every network gives the same models, to the bit, and those of a slow loop written from the equations."""

import threading
from dataclasses import dataclass
from typing import NamedTuple

import networkx as nx
import numpy as np
import pytest
import torch

import tacit
from tacit import graphs
from tacit.algorithms import Momentum
from tacit.networks import (
    BFloat16,
    Changing,
    Cycle,
    Loopback,
    Moving,
    RandomMatchings,
    Several,
    StackedNetwork,
    TopK,
    WiredNetwork,
    as_links,
    as_topology,
    base_graphs,
    check_topology,
    one_peer_exponential,
)
from tacit.playing import Play
from tacit.schedules import LogSpaced

AGENTS, WIDTH, ROUNDS = 7, 13, 9
IRREGULAR = nx.Graph([(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 5), (4, 6), (5, 6), (1, 6)])

TOPOLOGIES = {
    "ring": as_topology(graphs.ring(AGENTS)),
    "star": as_topology(graphs.star(AGENTS)),
    "irregular": as_topology(IRREGULAR),
    "complete": as_topology(graphs.complete(AGENTS)),
    "cycle": Cycle((as_links(graphs.ring(AGENTS)), as_links(nx.empty_graph(AGENTS)), as_links(graphs.star(AGENTS)))),
    "function": Changing(lambda k: nx.circulant_graph(AGENTS, [1 + k % 3]), AGENTS),
    "matchings": RandomMatchings(AGENTS, seed=3),
    "one peer": one_peer_exponential(AGENTS),
    "base": base_graphs(AGENTS, peers=2),
    "moving": Moving(AGENTS, reach=0.5, seed=1, window=40),
}
DIRECTED = {"one peer"}


class ThetaState(NamedTuple):
    theta: torch.Tensor
    memory: torch.Tensor


@dataclass(frozen=True)
class MedianOfNeighbors:
    """Uses every message by itself."""

    def init(self, theta):
        return ThetaState(theta, theta.new_zeros(()))

    def round(self, state, at):
        inbox = at.exchange(state.theta)
        values, present = inbox.messages()
        values = torch.cat([inbox.own[:, None], values.masked_fill(~present[..., None], torch.nan)], dim=1)
        return state._replace(theta=values.nanmedian(dim=1).values - at.lr * at.gradient(state.theta))


@dataclass(frozen=True)
class WithFeedback:
    """Sends the largest part, keeps what was not sent for the next time, and adds public chance."""

    def init(self, theta):
        return ThetaState(theta, torch.zeros_like(theta))

    def round(self, state, at):
        wanted = state.theta + state.memory
        inbox = at.exchange(wanted, codec=TopK(0.3))
        theta = state.theta + 0.5 * (inbox.mix() - inbox.own) - at.lr * at.gradient(state.theta)
        return ThetaState(theta + 0.01 * at.chance(theta.shape[1]) + 0.01 * at.shared_chance(1), wanted - inbox.own)


@dataclass(frozen=True)
class Rounded:
    def init(self, theta):
        return ThetaState(theta, theta.new_zeros(()))

    def round(self, state, at):
        return state._replace(theta=at.exchange(state.theta, codec=BFloat16()).mix() - at.lr * at.gradient(state.theta))


RULES = {
    "dsgd": tacit.DSGD(),
    "dsgd with momentum": tacit.DSGD(step=Momentum(0.5)),
    "dsgt": tacit.DSGT(),
    "dinno": tacit.DiNNO(inner_steps=2),
    "local": tacit.Local(),
    "median": MedianOfNeighbors(),
    "feedback": WithFeedback(),
    "rounded": Rounded(),
}


class Bowls:
    """Every agent has a bowl of its own: the gradient is a(θ − c), number by number, so a row does not know of others."""

    def __init__(self, agents, dtype):
        chance = torch.Generator().manual_seed(5)
        self.steep = (0.5 + torch.rand(AGENTS, WIDTH, generator=chance, dtype=torch.float64)).to(dtype)[agents]
        self.lowest = torch.randn(AGENTS, WIDTH, generator=chance, dtype=torch.float64).to(dtype)[agents]

    def gradient(self, theta):
        return self.steep * (theta - self.lowest)


def starts(dtype):
    return torch.randn(AGENTS, WIDTH, generator=torch.Generator().manual_seed(8), dtype=torch.float64).to(dtype)


def played(rule, network, agents, dtype, rounds=ROUNDS):
    play = Play(
        rule,
        starts(dtype)[agents],
        rounds=rounds,
        schedule=LogSpaced(0.2, 0.05),
        network=network,
        oracle=Bowls(agents, dtype),
        seed=11,
    )
    while play.round < rounds:
        play.advance()
    return play


def stacked(rule, topology, dtype, **settings):
    network = StackedNetwork(topology, dtype=dtype, **settings)
    return played(rule, network, list(range(AGENTS)), dtype)


def wired(rule, topology, dtype):
    """Play every agent in a thread of its own, with messages as bytes."""
    wires, plays, failed = Loopback(AGENTS, timeout=20), {}, []

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


@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.slow)], ids=["float32", "float64"]
)
@pytest.mark.parametrize("where", TOPOLOGIES)
@pytest.mark.parametrize("rule", RULES)
def test_networks_agree_to_the_bit(rule, where, dtype):
    together, apart = (play(RULES[rule], TOPOLOGIES[where], dtype) for play in (stacked, wired))
    assert torch.equal(together.state.theta, torch.cat([each.state.theta for each in apart]))
    sent = [int(each.network.bytes_sent[0]) for each in apart]
    assert together.network.bytes_sent.tolist() == sent
    if rule != "local":
        assert max(sent) > 0


@pytest.mark.parametrize("where", TOPOLOGIES)
@pytest.mark.parametrize("rule", ["dsgd", "dsgt", "dinno"])
def test_a_product_of_any_order_agrees_to_rounding(rule, where):
    ours, theirs = (
        stacked(RULES[rule], TOPOLOGIES[where], torch.float64, any_order=any_order) for any_order in (False, True)
    )
    torch.testing.assert_close(ours.state.theta, theirs.state.theta, rtol=0, atol=1e-12)


def weights_of(where, number):
    (links,) = TOPOLOGIES[where].at(number)
    return links.weights.toarray().tolist(), [links.of_agent(agent)[0].tolist() for agent in range(AGENTS)]


def loop(rule, where):
    """The equations, agent by agent, with weights from the topology."""
    bowls, thetas = Bowls(list(range(AGENTS)), torch.float64), list(starts(torch.float64))
    schedule, everyone = LogSpaced(0.2, 0.05), range(AGENTS)

    def gradient(agent, theta):
        return bowls.steep[agent] * (theta - bowls.lowest[agent])

    tracker = [torch.zeros(WIDTH, dtype=torch.float64) for _ in everyone]
    before = [torch.zeros(WIDTH, dtype=torch.float64) for _ in everyone]
    dual = [torch.zeros(WIDTH, dtype=torch.float64) for _ in everyone]
    penalty, adam = RULES["dinno"].rho, None
    for number in range(ROUNDS):
        w, near = weights_of(where, number)
        lr = schedule(number, ROUNDS)
        if rule == "dsgd":
            g = [gradient(i, thetas[i]) for i in everyone]
            thetas = [sum(w[i][j] * thetas[j] for j in everyone) - lr * g[i] for i in everyone]
        elif rule == "dsgt":
            g = [gradient(i, thetas[i]) for i in everyone]
            w_before = weights_of(where, number - 1)[0] if number else w
            tracker = [g[i] + sum(w_before[i][j] * tracker[j] for j in everyone) - before[i] for i in everyone]
            thetas = [sum(w[i][j] * (thetas[j] - lr * tracker[j]) for j in everyone) for i in everyone]
            before = g
        else:
            dual = [dual[i] + penalty * sum(thetas[i] - thetas[j] for j in near[i]) for i in everyone]
            middle = [
                sum(((thetas[i] + thetas[j]) / 2 for j in near[i]), torch.zeros(WIDTH, dtype=torch.float64))
                for i in everyone
            ]
            psi = torch.stack(thetas)
            optimiser = RULES["dinno"].step
            adam = optimiser.init(psi) if adam is None or not RULES["dinno"].carry else adam
            for _ in range(RULES["dinno"].inner_steps):
                force = [
                    gradient(i, psi[i]) + dual[i] + 2 * penalty * (len(near[i]) * psi[i] - middle[i]) for i in everyone
                ]
                direction, adam = optimiser.step(adam, torch.stack(force))
                psi = psi - lr * direction
            thetas, penalty = list(psi), penalty * RULES["dinno"].rho_growth
    return torch.stack(thetas), tracker, before, dual


@pytest.mark.parametrize("where", TOPOLOGIES)
@pytest.mark.parametrize("rule", ["dsgd", "dsgt", "dinno"])
def test_networks_give_what_the_equations_say(rule, where):
    expected = loop(rule, where)[0]
    torch.testing.assert_close(
        stacked(RULES[rule], TOPOLOGIES[where], torch.float64).state.theta, expected, rtol=0, atol=1e-10
    )


@pytest.mark.parametrize("where", TOPOLOGIES)
def test_tracking_stays_exact_and_duals_sum_to_zero_while_links_change(where):
    play = stacked(tacit.DSGT(), TOPOLOGIES[where], torch.float64)
    torch.testing.assert_close(play.state.tracker.mean(0), play.state.gradient.mean(0), rtol=0, atol=1e-12)
    if where not in DIRECTED:
        dual = stacked(tacit.DiNNO(inner_steps=2), TOPOLOGIES[where], torch.float64).state.dual
        torch.testing.assert_close(dual.sum(0), torch.zeros(WIDTH, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("network", [stacked, wired])
def test_several_exchanges_in_a_round_average_exactly(network):
    base = base_graphs(AGENTS)
    several = Several(base, len(base.each))
    check_topology(several, 20)
    found = network(tacit.DSGD(), several, torch.float64)
    found = torch.cat([each.state.theta for each in found]) if isinstance(found, list) else found.state.theta
    mean, oracle = starts(torch.float64), Bowls(list(range(AGENTS)), torch.float64)
    for number in range(ROUNDS):
        mean = mean.mean(0) - LogSpaced(0.2, 0.05)(number, ROUNDS) * oracle.gradient(mean)
    torch.testing.assert_close(found, mean, rtol=0, atol=1e-12)


@pytest.mark.parametrize("network", [stacked, wired])
@pytest.mark.parametrize("rule", [tacit.DiNNO(), MedianOfNeighbors()], ids=["sum", "messages"])
def test_sums_and_messages_are_refused_where_a_round_has_several_exchanges(network, rule):
    with pytest.raises(tacit.errors.InvalidInput, match="2 exchanges in a round, of which only mix"):
        network(rule, Several(as_topology(graphs.ring(AGENTS)), 2), torch.float64)


@pytest.mark.parametrize("network", [stacked, wired])
def test_sums_are_refused_where_someone_hears_more_than_hear_it(network):
    """The matrix is doubly stochastic, so mixing keeps the average; sums over neighbours keep nothing."""
    lopsided = np.eye(AGENTS)
    lopsided[:3, :3] = [[0.5, 0.5, 0], [0.25, 0.5, 0.25], [0.25, 0, 0.75]]
    links = as_links(lopsided @ TOPOLOGIES["one peer"].at(0)[0].weights.toarray())
    check_topology(Cycle((links,)), 1)
    with pytest.raises(tacit.errors.GraphError, match=r"agent \d hears \d and is heard by \d: .* such as DiNNO drift"):
        network(tacit.DiNNO(), Cycle((links,)), torch.float64)


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
    with pytest.raises(tacit.errors.InvalidInput, match="15 bytes in the place of 16"):
        WiredNetwork(0, as_topology(graphs.ring(2)), wires.end(0)).exchange(0, torch.zeros(1, 4))
