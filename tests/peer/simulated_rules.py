"""What the simulated members compute: the library's rules on a few numbers, and the same run in the stacked simulation."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256

import networkx as nx
import numpy as np
import torch

import tacit
from tacit.algorithms import Plain
from tacit.networks import StackedNetwork
from tacit.networks.skipped import WithSkips
from tacit.networks.topology import as_topology
from tacit.peer.network import PeerNetwork
from tacit.peer.oracle import JournaledOracle
from tacit.peer.protocol.driver import Suspended
from tacit.peer.protocol.interface import RecordKind, Slot
from tacit.peer.protocol.link import Pending
from tacit.training.absences import Absence, Absences
from tacit.training.rounds import Play
from tacit.training.schedules import as_schedule
from tacit.training.states import flatten, restore

WIDTH, LR = 3, 0.1
RULES = {
    "dsgd": tacit.DSGD(),
    "dsgt": tacit.DSGT(),
    "dinno": tacit.DiNNO(rho=0.3, inner_steps=2, step=Plain()),
}


@dataclass(frozen=True)
class Seldom:
    """DSGD that asks in some rounds alone: the first of every so many."""

    every: int

    def init(self, theta):
        return tacit.DSGD().init(theta)

    def round(self, state, at):
        mixed = at.exchange(state.theta).mix()
        return state._replace(theta=mixed - at.lr * at.gradient(state.theta) if self.asks(at.round) else mixed)

    def asks(self, round):
        return round % self.every == 0


SELDOM = {"once": Seldom(1000), "every other round": Seldom(2)}
"""Not among those that a seed draws: older seeds play as they did."""


@lru_cache(maxsize=256)
def make_topology(agents, edges):
    graph = nx.Graph()
    graph.add_nodes_from(range(agents))
    graph.add_edges_from(edges)
    return as_topology(graph)


@dataclass(frozen=True)
class Problem:
    """Agents with a quadratic each, a graph and a rule."""

    rule: str
    agents: int
    edges: tuple
    rounds: int
    fewest: int
    masked: bool
    exchanges: int = 1
    changing: bool = False

    @staticmethod
    def draw(chance, **choices):
        agents = choices.get("agents") or chance.randint(2, 5)
        edges = {(chance.randrange(node), node) for node in range(1, agents)}
        edges |= {(a, b) for a in range(agents) for b in range(a + 1, agents) if chance.random() < 0.3}
        drawn = {
            "rule": chance.choice([*sorted(RULES), *["chain"] * 6]),
            "agents": agents,
            "edges": tuple(sorted(edges)),
            "rounds": chance.randint(2, 6),
            "fewest": chance.choice([0, 1, 1, 2]),
            "masked": chance.random() < 0.5,
        }
        drawn |= choices
        if drawn["rule"] == "chain":
            drawn = {"exchanges": chance.choice([1, 1, 2]), "changing": chance.random() < 0.3} | drawn
        return Problem(**drawn)

    @cached_property
    def neighbors(self):
        return {
            agent: tuple(sorted({other for pair in self.edges if agent in pair for other in pair} - {agent}))
            for agent in range(self.agents)
        }

    def edges_in(self, round):
        """The links of a round: all of them, or every other one, in turn."""
        return [pair for pair in self.edges if not self.changing or (pair[0] + 2 * pair[1] + round) % 2 == 0]

    def neighbors_in(self, agent, round):
        return tuple(sorted({other for pair in self.edges_in(round) if agent in pair for other in pair} - {agent}))

    @property
    def topology(self):
        return make_topology(self.agents, self.edges)

    @property
    def asked(self):
        """How many queries each round makes."""
        if self.rule in SELDOM:
            return [int(SELDOM[self.rule].asks(round)) for round in range(self.rounds)]
        return [getattr(RULES.get(self.rule), "inner_steps", 1)] * self.rounds

    @property
    def rule_played(self):
        return (RULES | SELDOM)[self.rule]

    @property
    def start(self):
        return torch.arange(self.agents * WIDTH, dtype=torch.float64).reshape(self.agents, WIDTH).sin()

    def slope(self, theta, agents):
        """The gradient without noise; every number by itself, so that it is the same for one row and for all."""
        rates = torch.tensor([[0.5 + 0.1 * agent] for agent in agents], dtype=torch.float64)
        return rates * (theta - torch.tensor([[agent] for agent in agents], dtype=torch.float64))

    def answers_in_message(self, agent, round, world):
        """How many answers a message of a round has in it, by the rule's equations."""
        away = rounds_away(world.members[agent])
        before = round + (self.rule in ("dsgt", "chain"))
        return sum(self.asked[each] for each in range(before) if each not in away)


def rounds_away(member):
    return {
        round
        for record in member.journal.durable
        if record.kind == RecordKind.AWAY
        for round in range(record.slot.round, record.number)
    }


class SimulatedOracle:
    """Charges, then answers with noise that nobody could draw again, and masks that both ends of a pair have."""

    def __init__(self, world, member):
        self._world, self._member, self._shared, self._number = world, member, True, 0

    def skip(self, queries):
        self._number, self._shared = queries, True

    def unshare(self, number):
        self._shared = False

    def charge(self):
        self._member.charged += 1

    def gradient(self, theta):
        noise = self.draw()
        return self._world.problem.slope(theta, [self._member.agent]) + torch.from_numpy(noise)[None]

    def draw(self):
        """Charge, and return the noise and masks of a query."""
        world, agent = self._world, self._member.agent
        self._member.risk()
        self.charge()
        self._member.risk()
        noise = np.array([world.chance.random() - 0.5 for _ in range(WIDTH)])
        if world.problem.masked and self._shared:
            world.masks[agent, self._number] += 1
            for other in range(world.problem.agents):
                sign = (other > agent) - (other < agent)
                noise += sign * np.sin(self._number + 7 * min(agent, other) + 11 * max(agent, other) + np.arange(WIDTH))
        world.noise[agent, self._number] = noise
        return noise


class RulePlayer:
    """Plays one agent's rounds on its core."""

    make_oracle = SimulatedOracle

    def __init__(self, world, member):
        problem, agent, core = world.problem, member.agent, member.core
        self._network = PeerNetwork(agent, problem.topology, core)
        raw = self.make_oracle(world, member)
        self._oracle = JournaledOracle(raw, core.notes, asked=problem.asked, unshare=raw.unshare)
        self._play = Play(
            problem.rule_played,
            problem.start[agent : agent + 1],
            rounds=problem.rounds,
            schedule=as_schedule(LR),
            network=self._network,
            oracle=self._oracle,
            seed=0,
        )

    @property
    def round(self):
        return self._play.round

    @property
    def finished(self):
        return self._play.finished

    def attempt(self):
        self._network.rewind()
        self._oracle.begin(self.round)
        self._play.advance()

    def save(self):
        return b"".join(tensor.numpy().tobytes() for tensor in flatten(self._play.state).values())

    def load(self, state, round):
        self._play.round = round
        if state is not None:
            self._play.state = read_state(self._play.state, state)

    def neighbors_of(self, round):
        return self._network.neighbors_of(round)


class ChainPlayer:
    """A rule that costs next to nothing: the state is a hash of all that went into it, and is sent with this round's answer.

    Whatever differs between two members' views of one round differs in all states from then on.
    """

    def __init__(self, world, member):
        self._problem, self._core, self._agent = world.problem, member.core, member.agent
        self._oracle = SimulatedOracle(world, member)
        self.round, self.state = 0, first_link(member.agent)

    @property
    def finished(self):
        return self.round >= self._problem.rounds

    def attempt(self):
        answer = self._core.notes.answer_once(self.round, self.round, self._ask)
        state = self.state + answer
        for exchange in range(self._problem.exchanges):
            pending = Pending(Slot(self.round, exchange), state, self.neighbors_of(self.round), lambda theirs: None)
            heard = self._core.outcome(pending)
            if heard is None:
                raise Suspended(pending)
            state = next_link(state, heard)
        self.state, self.round = state, self.round + 1

    def _ask(self, again):
        self._oracle.skip(self.round)
        if again:
            self._oracle.unshare(self.round)
        return self._oracle.draw().tobytes()

    def save(self):
        return self.state

    def load(self, state, round):
        self.round, self.state = round, state or self.state

    def neighbors_of(self, round):
        return self._problem.neighbors_in(self._agent, round)


def first_link(agent):
    return sha256(b"%d" % agent).digest()


def next_link(message, heard):
    return sha256(b"".join([message, *(b"%d" % other + heard[other] for other in sorted(heard))])).digest()


def play_chain(world, skipped):
    """Return the states of all agents after the same run in one loop."""
    agents, states = range(world.problem.agents), [first_link(agent) for agent in range(world.problem.agents)]
    away = [rounds_away(member) for member in world.members]
    for round in range(world.problem.rounds):
        there = [agent for agent in agents if round not in away[agent] and (agent, round) in world.noise]
        messages = {agent: states[agent] + world.noise[agent, round].tobytes() for agent in there}
        for exchange in range(world.problem.exchanges):
            used = set(world.problem.edges_in(round)) - skipped.get((round, exchange), set())
            others = {agent: {end for pair in used if agent in pair for end in pair} - {agent} for agent in there}
            messages = {
                agent: next_link(messages[agent], {other: messages[other] for other in others[agent]})
                for agent in there
            }
        for agent in there:
            states[agent] = messages[agent]
    return states


def read_state(template, state):
    found, place = {}, 0
    for name, tensor in flatten(template).items():
        size = tensor.numel() * tensor.element_size()
        found[name] = torch.frombuffer(bytearray(state[place : place + size]), dtype=tensor.dtype).reshape(tensor.shape)
        place += size
    return restore(template, found)


class _Recorded:
    """The stacked simulation's oracle: the same quadratics, and the noise that the members drew."""

    def __init__(self, world):
        self._world, self._asked = world, 0

    def gradient(self, theta):
        world, agents = self._world, range(self._world.problem.agents)
        noise = np.array([world.noise.get((agent, self._asked), np.zeros(WIDTH)) for agent in agents])
        self._asked += 1
        return world.problem.slope(theta, agents) + torch.from_numpy(noise)


def play_stacked(world, skipped):
    """Return the state of all agents after the same run in one process: the same noise, the same skipped links, the same absences."""
    problem = world.problem
    absences = [
        Absence(member.agent, round, round + 1) for member in world.members for round in sorted(rounds_away(member))
    ]
    topology = WithSkips(problem.topology, skipped)
    play = Play(
        problem.rule_played,
        problem.start,
        rounds=problem.rounds,
        schedule=as_schedule(LR),
        network=StackedNetwork(topology, dtype=torch.float64),
        oracle=_Recorded(world),
        seed=0,
        absences=Absences(absences, problem.agents),
    )
    while not play.finished:
        play.advance()
    return play.state, topology


def last_state(member):
    """Return what a member's disk holds of its state, if it has completed a round."""
    states = [each.body for each in member.journal.durable + member.journal.pending if each.kind == RecordKind.COMMIT]
    return states[-1] if states else None


def slots(world):
    return [
        Slot(round, exchange) for round in range(world.problem.rounds) for exchange in range(world.problem.exchanges)
    ]
