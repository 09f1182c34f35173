"""Topologies that change by a rule: random matchings, one peer at a time, exact averages, agents that move."""

import inspect
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial import cKDTree

from tacit.errors import GraphError, choose
from tacit.graphs.arguments import whole
from tacit.networks.topology import Cycle, Links, Several, Topology, links_from_pairs
from tacit.registry import SCHEDULES

_REMEMBERED = 64
_MATCHING_WINDOW = 32  # rounds: the probability that this many matchings leave some agents disconnected is below 3⁻³¹

Edges = dict[tuple[int, int], float]


class RandomMatchings:
    """In every round agents are paired at random and average with their partner; with an odd number, one stays alone.

    The pairs follow from `seed` and the round's number.
    """

    period = None

    def __init__(self, agents: int, *, seed: int = 0) -> None:
        self.agents, self.seed = whole("agents", agents, least=1), whole("seed", seed, least=0)
        self.window = _MATCHING_WINDOW if agents > 2 else 1
        self._at = lru_cache(maxsize=_REMEMBERED)(self._make)

    def at(self, round: int) -> tuple[Links, ...]:
        """Return the pairs of a round."""
        return self._at(round)

    def _make(self, round: int) -> tuple[Links, ...]:
        order = np.random.default_rng([self.seed, round]).permutation(self.agents)
        even = self.agents - self.agents % 2
        return (links_from_pairs(self.agents, order[:even].reshape(-1, 2).astype(np.int64)),)


def one_peer_exponential(agents: int) -> Cycle:
    """In round k every agent hears the one 2^k places before it, cyclically in k, and averages with it.

    The links are directed. If the number of agents is a power of two, one cycle gives every agent the exact average.
    """
    agents = whole("agents", agents, least=1)
    turns = max(1, math.ceil(math.log2(agents)))
    own = np.arange(agents)
    each = []
    for turn in range(turns):
        other = (own - 2**turn) % agents
        weights = sparse.csr_array((np.full(agents, 0.5), (own, other)), shape=(agents, agents))
        each.append(Links.of(sparse.csr_array(weights + 0.5 * sparse.eye_array(agents, format="csr"))))
    return Cycle(tuple(each), kind="one_peer_exponential")


def base_graphs(agents: int, *, peers: int = 1) -> Cycle:
    """Rounds that give every agent the exact average, for any number of agents, with at most `peers` neighbours each.

    These are the Base-(k+1) graphs of Takezawa et al., 2023, for k = `peers`: of their two forms, the shorter one.
    """
    agents, base = whole("agents", agents, least=1), whole("peers", peers, least=1) + 1
    everyone = list(range(agents))
    smooth = math.prod(factor**power for factor, power in _factors(agents) if factor <= base)
    rest = agents // smooth
    simple = _simple_base(everyone, base)
    inside = [_simple_base(everyone[rest * part : rest * (part + 1)], base) for part in range(smooth)]
    across = [_hypercube(everyone[place::rest], base) for place in range(rest)]
    split = [*_side_by_side(inside), *_side_by_side(across)]
    shorter = simple if len(simple) < len(split) else split
    return Cycle(tuple(_from_edges(agents, edges) for edges in shorter or [{}]), kind=f"base:peers={base - 1}")


class Moving:
    """Agents that move in a square of side 1 and hear all agents within `reach`.

    Each moves in a straight line from one random place to the next in `leg` rounds. Over `window` rounds all agents must be
    connected; otherwise a run is refused before it starts.
    """

    period = None

    def __init__(self, agents: int, *, reach: float, leg: int = 20, window: int = 20, seed: int = 0) -> None:
        if not reach > 0:
            raise GraphError(f"reach is {reach}; it must be positive")
        self.agents, self.seed = whole("agents", agents, least=1), whole("seed", seed, least=0)
        self.leg, self.window = whole("leg", leg, least=1), whole("window", window, least=1)
        self.reach = float(reach)
        self._at = lru_cache(maxsize=_REMEMBERED)(self._make)

    def places(self, round: int) -> NDArray[np.float64]:
        """Return the positions of all agents in a round."""
        number, way = divmod(round, self.leg)
        start, end = (
            np.random.default_rng([self.seed, each]).random((self.agents, 2)) for each in (number, number + 1)
        )
        return np.asarray(start + (end - start) * (way / self.leg))

    def at(self, round: int) -> tuple[Links, ...]:
        """Return the links of a round."""
        return self._at(round)

    def _make(self, round: int) -> tuple[Links, ...]:
        pairs = cKDTree(self.places(round)).query_pairs(self.reach, output_type="ndarray")
        return (links_from_pairs(self.agents, pairs.astype(np.int64).reshape(-1, 2)),)


def schedule(kind: str, agents: int, seed: int = 0, *, exchanges: int = 1, **options: Any) -> Topology:
    """Return a schedule by name; those that are not random do not use the seed.

    `exchanges` is the number of exchanges in each round.
    """
    make = SCHEDULES[choose("schedule", kind, SCHEDULES)]
    parameters = inspect.signature(make).parameters
    known = set(parameters) - {"agents"}
    for name in options:
        choose(f"option of {kind!r}", name, (known - {"seed"}) | {"exchanges"})
    needed = [name for name in parameters if name in known and parameters[name].default is inspect.Parameter.empty]
    if missing := [name for name in needed if name not in options]:
        example = SCHEDULES.lines[kind].example
        raise GraphError(f"{kind} needs {' and '.join(missing)}{f'; write it as in {example}' if example else ''}")
    made: Topology = make(agents, **options, **({"seed": seed} if "seed" in known else {}))
    return made if exchanges == 1 else Several(made, exchanges)


def text_of(topology: Topology) -> str | None:
    """Return the text that names a schedule of the library with all its settings, as `--graph` takes it; None for any other.

    A registered class keeps each parameter as an attribute of the same name; a function names what it returns by `Cycle.kind`.
    """
    for kind, line in SCHEDULES.lines.items():
        if line.place == f"{type(topology).__module__}:{type(topology).__qualname__}":
            names = [name for name in inspect.signature(type(topology)).parameters if name != "agents"]
            values = [(name, getattr(topology, name)) for name in names]
            settings = ",".join(f"{name}={value!r}" for name, value in values)
            return f"{kind}:{settings}" if settings else kind
    if type(topology) is Cycle:
        return topology.kind
    if type(topology) is Several and (inner := text_of(topology.inner)) is not None and "exchanges" not in inner:
        return f"{inner}{',' if ':' in inner else ':'}exchanges={topology.exchanges}"
    return None


def _factors(number: int) -> Iterator[tuple[int, int]]:
    """Yield prime factors and how often each divides a number."""
    factor = 2
    while number > 1:
        power = 0
        while number % factor == 0:
            number, power = number // factor, power + 1
        if power:
            yield factor, power
        factor = factor + 1 if factor * factor <= number else max(number, factor + 1)


def _hypercube(agents: Sequence[int], base: int) -> list[Edges]:
    """Return rounds of cliques of at most `base` agents that give all of them the average; no prime factor may be larger.

    An agent's place is written in digits, one per factor; in each round agents meet that differ in one digit.
    """
    rounds, stride, left = [], 1, len(agents)
    for factor in range(base, 1, -1):
        while left % factor == 0:
            edges: Edges = {}
            for place, agent in enumerate(agents):
                for other in range(place + stride, place + stride * (factor - place // stride % factor), stride):
                    edges[agent, agents[other]] = 1 / factor
            rounds.append(edges)
            stride, left = stride * factor, left // factor
    return rounds


def _simple_base(agents: Sequence[int], base: int) -> list[Edges]:
    """Return rounds that give all agents the average, for any number of agents.

    Written in digits of `base`, the number says how to divide them into groups that can average among themselves. Then agents
    of smaller groups meet some of every larger one, in turn, so that each part of the larger group has its share of the
    total, and averages it within the part.
    """
    count = len(agents)
    if all(factor <= base for factor, _ in _factors(count)):
        return _hypercube(agents, base)
    groups: list[list[list[int]]] = []  # of groups of agents
    size, first = base ** int(math.log(count, base) + 1e-9), 0
    while first < count:
        digit = (count - first) // size
        if digit:
            groups.append([list(agents[first + size * part : first + size * (part + 1)]) for part in range(digit)])
            first += digit * size
        size //= base
    whole_groups = [[agent for part in group for agent in part] for group in groups]
    averages = [_hypercube(group, base) for group in whole_groups]
    rounds = [_merged(each[number % len(each)] for each in averages if each) for number in range(len(averages[0]))]
    inner = [[_hypercube(part, base) for part in group] for group in groups]
    for turn in range(1 + len(inner[0][0])):
        edges: Edges = {}
        if turn < len(groups) - 1:
            left = [list(part) for part in groups[turn]]
            share = len(whole_groups[turn]) / sum(map(len, whole_groups[turn:])) / len(left)
            for agent in (agent for group in whole_groups[turn + 1 :] for agent in group):
                for part in left:
                    edges[agent, part.pop()] = share
        done = enumerate(inner[: min(turn, len(groups) - 1)])
        parts = ((turn - number - 1, part) for number, group in done for part in group if part)
        rounds.append(_merged([edges, *(part[since % len(part)] for since, part in parts)]))
    return rounds


def _merged(several: Iterable[Edges]) -> Edges:
    return {pair: weight for edges in several for pair, weight in edges.items()}


def _side_by_side(groups: list[list[Edges]]) -> list[Edges]:
    """Return the rounds of several groups, equally many each, as rounds of all agents."""
    return [_merged(each) for each in zip(*groups, strict=True)]


def _from_edges(agents: int, edges: Edges) -> Links:
    pairs = np.array(list(edges), dtype=np.int64).reshape(-1, 2)
    values = np.array(list(edges.values()), dtype=np.float64)
    rows, columns = np.concatenate([pairs, pairs[:, ::-1]]).T
    weights = sparse.csr_array((np.concatenate([values, values]), (rows, columns)), shape=(agents, agents))
    own = 1.0 - np.asarray(weights.sum(axis=1)).ravel()
    return Links.of(sparse.csr_array(weights + sparse.diags_array(own, format="csr")))
