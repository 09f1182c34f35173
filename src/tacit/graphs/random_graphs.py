"""Random families of communication graphs, always connected, drawn from the seed or generator passed in.

Where a draw can come out disconnected it is repeated a bounded number of times, which is sampling from the
family given that the graph is connected; settings that hardly ever connect are an error, not a longer wait.
"""

import math

import networkx as nx
import numpy as np

from tacit.errors import GraphError
from tacit.graphs.adjacency import Pairs, connected, from_pairs
from tacit.graphs.arguments import Seed, fraction, generator, whole

REDRAWS = 100


def erdos_renyi(agents: int, probability: float | None = None, seed: Seed = 0) -> nx.Graph:
    """Link each pair of agents independently with this probability, given that the graph is connected.

    The default, 2 ln(N)/N, is twice the threshold above which large graphs are connected.
    """
    agents = whole("agents", agents, least=1)
    threshold = math.log(agents) / agents
    probability = min(1.0, 2 * threshold) if probability is None else fraction("probability", probability)
    rng = generator(seed)
    total = agents * (agents - 1) // 2
    for _ in range(REDRAWS):
        # A binomial number of pairs, all equally likely: like a coin for each pair, but at the cost of the edges only.
        edges = int(rng.binomial(total, probability))
        pairs = _pairs(agents, rng.choice(total, edges, replace=False, shuffle=False))
        if connected(agents, pairs):
            return from_pairs(agents, pairs)
    raise GraphError(
        f"{REDRAWS} random graphs of {agents} agents with probability {probability:g} were all disconnected; "
        f"above ln({agents})/{agents} = {threshold:.2g} one is likely to connect, "
        f"try {min(1.0, 2 * threshold):.2g}"
    )


def random_regular(agents: int, degree: int = 4, seed: Seed = 0) -> nx.Graph:
    """Draw a graph in which every agent has `degree` neighbours."""
    agents = whole("agents", agents, least=1)
    degree = _degree(agents, degree)
    if agents * degree % 2:
        raise GraphError(
            f"no graph of {agents} agents has degree {degree} everywhere: their product must be even; "
            f"use degree {degree - 1}{f' or {degree + 1}' if degree + 1 < agents else ''}"
        )
    if degree < 2 < agents:
        raise GraphError(f"{agents} agents of degree {degree} cannot be connected; use degree 2 or more")
    rng = generator(seed)
    if 2 * degree > agents - 1:  # the complement is sparser, hence faster to draw, and this one surely connected
        drawn = nx.random_regular_graph(agents - 1 - degree, agents, seed=rng)
        return from_pairs(agents, _edges(nx.complement(drawn)))
    if degree == 2:  # connected means one ring through everyone; a free draw rarely is
        order = rng.permutation(agents)
        return from_pairs(agents, np.stack([order, np.roll(order, -1)], axis=1))
    for _ in range(REDRAWS):
        pairs = _edges(nx.random_regular_graph(degree, agents, seed=rng))
        if connected(agents, pairs):
            return from_pairs(agents, pairs)
    raise GraphError(
        f"{REDRAWS} random {degree}-regular graphs of {agents} agents were all disconnected; "
        f"use degree {degree + 2} or more"
    )


def small_world(agents: int, degree: int = 4, rewire: float = 0.1, seed: Seed = 0) -> nx.Graph:
    """Link each agent to its `degree` nearest on a ring, then rewire each edge with this probability.

    Watts and Strogatz, 1998. The degree is even: half of it on each side.
    """
    agents = whole("agents", agents, least=1)
    degree = _degree(agents, degree)
    if degree % 2 or degree == 0:
        raise GraphError(f"degree must be even and at least 2, half of it on each side of the ring, got {degree}")
    rewire = fraction("rewire", rewire)
    rng = generator(seed)
    for _ in range(REDRAWS):
        pairs = _edges(nx.watts_strogatz_graph(agents, degree, rewire, seed=rng))
        if connected(agents, pairs):
            return from_pairs(agents, pairs)
    raise GraphError(
        f"{REDRAWS} small worlds of {agents} agents with degree {degree} and rewire {rewire:g} were all "
        f"disconnected; use degree {degree + 2} or more, or rewire less"
    )


def _degree(agents: int, degree: int) -> int:
    degree = whole("degree", degree, least=0)
    if degree >= agents:
        raise GraphError(f"degree must be below the number of agents: {agents}, got {degree}")
    return degree


def _edges(graph: nx.Graph) -> Pairs:
    return np.array(list(graph.edges()), dtype=np.int64).reshape(-1, 2)


def _pairs(agents: int, index: np.ndarray) -> Pairs:
    """Return the pairs at these places in the list (0,1), (0,2), …, (N-2,N-1)."""
    row = np.arange(agents)
    starts = row * (2 * agents - row - 1) // 2
    low = np.searchsorted(starts, index, side="right") - 1
    return np.stack([low, index - starts[low] + low + 1], axis=1)
