"""Communication graphs by name: fixed families here, random ones in `random_graphs`, all through `build`.

Every function returns an undirected, simple, connected `networkx.Graph` whose nodes are exactly 0..N-1. Every
fixed family shrinks sensibly: a ring of two agents is one edge, and a family of one agent is a single node.
"""

import inspect
from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from tacit.errors import GraphError, choose
from tacit.graphs.adjacency import Pairs, from_pairs
from tacit.graphs.arguments import Seed, whole
from tacit.registry import GRAPHS

Numbers = NDArray[np.int64]


def complete(agents: int) -> nx.Graph:
    """Link everyone to everyone."""
    agents = whole("agents", agents, least=1)
    return from_pairs(agents, np.stack(np.triu_indices(agents, 1), axis=1))


def ring(agents: int) -> nx.Graph:
    """Link each agent to the next, and the last to the first."""
    agents = whole("agents", agents, least=1)
    return from_pairs(agents, _cycle(0, agents))


def path(agents: int) -> nx.Graph:
    """Link each agent to the next: a ring cut open, the least connected graph there is."""
    agents = whole("agents", agents, least=1)
    return from_pairs(agents, _cycle(0, agents)[:-1])


def star(agents: int) -> nx.Graph:
    """Link everyone to agent 0 only."""
    agents = whole("agents", agents, least=1)
    return from_pairs(agents, _spokes(agents))


def wheel(agents: int) -> nx.Graph:
    """Link everyone to agent 0, and the others in a ring."""
    agents = whole("agents", agents, least=1)
    return from_pairs(agents, np.concatenate([_spokes(agents), _cycle(1, agents)]))


def grid(agents: int, *, rows: int | None = None) -> nx.Graph:
    """Link agents to their neighbours in a rectangle, numbered row by row.

    Without `rows` the rectangle is the most square one that holds exactly `agents`; a prime number of agents
    is a path.
    """
    table = _rectangle(agents, rows)
    across = np.stack([table[:, :-1].ravel(), table[:, 1:].ravel()], axis=1)
    down = np.stack([table[:-1].ravel(), table[1:].ravel()], axis=1)
    return from_pairs(table.size, np.concatenate([across, down]))


def torus(agents: int, *, rows: int | None = None) -> nx.Graph:
    """Link agents as in `grid`, with opposite sides of the rectangle joined; a prime number is a ring."""
    table = _rectangle(agents, rows)
    across = np.stack([table.ravel(), np.roll(table, -1, axis=1).ravel()], axis=1)
    down = np.stack([table.ravel(), np.roll(table, -1, axis=0).ravel()], axis=1)
    return from_pairs(table.size, np.concatenate([across, down]))


def hypercube(agents: int) -> nx.Graph:
    """Link agents whose numbers differ in one binary digit."""
    agents = whole("agents", agents, least=1)
    above = 1 << (agents - 1).bit_length()
    if agents != above:
        raise GraphError(
            f"a hypercube has a power of two agents, got {agents}; the nearest are {above // 2} and {above}"
        )
    return from_pairs(agents, _hops(agents, lambda numbers, hop: numbers ^ hop))


def exponential(agents: int) -> nx.Graph:
    """Link agent i to i ± 2^k (mod N) for every 2^k < N (Ying et al., 2021, made undirected)."""
    agents = whole("agents", agents, least=1)
    return from_pairs(agents, _hops(agents, lambda numbers, hop: (numbers + hop) % agents))


def build(kind: str, agents: int, seed: Seed = 0, **options: Any) -> nx.Graph:
    """Return the graph of this kind, as its own function would; fixed kinds do not use the seed."""
    builder = GRAPHS[choose("graph kind", kind, GRAPHS)]
    parameters = set(inspect.signature(builder).parameters)
    for name in options:
        if parameters <= {"agents", "seed"}:
            raise GraphError(f"graph kind {kind!r} takes no options, got {name!r}")
        choose(f"option of graph kind {kind!r}", name, parameters - {"agents", "seed"})
    made: nx.Graph = builder(agents, **options, **({"seed": seed} if "seed" in parameters else {}))
    return made


def _cycle(first: int, end: int) -> Pairs:
    numbers = np.arange(first, end)
    return np.stack([numbers, np.roll(numbers, -1)], axis=1)


def _spokes(agents: int) -> Pairs:
    rim = np.arange(1, agents)
    return np.stack([np.zeros_like(rim), rim], axis=1)


def _hops(agents: int, target: Callable[[Numbers, int], Numbers]) -> Pairs:
    numbers = np.arange(agents)
    hops = [1 << k for k in range((agents - 1).bit_length())]
    pairs = [np.stack([numbers, target(numbers, hop)], axis=1) for hop in hops]
    return np.concatenate([np.empty((0, 2), dtype=np.int64), *pairs])


def _rectangle(agents: int, rows: int | None) -> Numbers:
    """Return 0..N-1 laid out in rows."""
    shape = sides(agents, rows)
    return np.arange(agents).reshape(shape)


def sides(agents: int, rows: int | None = None) -> tuple[int, int]:
    """Return the rows and columns of a grid or torus: the most square there are, unless the rows are given."""
    agents = whole("agents", agents, least=1)
    divisors = [number for number in range(1, agents + 1) if agents % number == 0]
    if rows is None:
        rows = max(number for number in divisors if number * number <= agents)
    elif whole("rows", rows, least=1) not in divisors:
        listed = ", ".join(map(str, divisors))
        raise GraphError(f"{agents} agents do not fill {rows} rows; rows can be {listed}")
    return rows, agents // rows
