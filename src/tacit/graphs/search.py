"""A random connected graph with a given Fiedler value, density or centrality, to study the effect of topology.

The search starts from a random tree with additional random links and anneals it by adding, removing and moving
links. Graphs that qualify are not all equally likely, but everything not specified is random.
"""

from bisect import bisect_left
from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from tacit.errors import GraphError
from tacit.graphs.adjacency import from_pairs
from tacit.graphs.arguments import Seed, generator, whole
from tacit.graphs.eigen import perron
from tacit.graphs.reach import SLACK, Target, edge_counts
from tacit.ties import first_smallest

STARTS = 10  # graphs drawn for one restart, which anneals the closest
HOT, COLD = 0.3, 0.01  # first and last temperature, in units of 1/N: about the effect of one link

LinkFlags = NDArray[np.bool_]  # one for each pair of agents: (0,1), (0,2), …, (N-2,N-1)


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    links: LinkFlags
    fiedler: float
    centrality: float | None  # of agent 0, if it is a target
    miss: float  # by how much the values miss the tolerance, in sum; infinite if disconnected


def find_graph(
    agents: int,
    *,
    fiedler: float | None = None,
    density: float | None = None,
    centrality: float | None = None,
    tolerance: float = 0.01,
    seed: Seed = 0,
    restarts: int = 8,
    steps: int = 5000,
) -> nx.Graph:
    """Return a random connected graph with these values, each within `tolerance`; one or several together.

    `fiedler` is the algebraic connectivity divided by N, `density` the share of pairs that are linked, and
    `centrality` the eigenvector centrality of agent 0. Values that no graph has are an error at once; a
    search that fails after `restarts` walks of `steps` steps is an error that says how close it came.
    """
    target = Target(agents=agents, fiedler=fiedler, density=density, centrality=centrality, tolerance=tolerance)
    counts = edge_counts(target)
    restarts, steps = whole("restarts", restarts, least=1), whole("steps", steps, least=0)
    rng = generator(seed)
    found = []
    for _ in range(restarts):
        start = _closest([_start(target, counts, rng) for _ in range(STARTS)])
        found.append(_anneal(start, target, counts, steps, rng))
        if found[-1].miss == 0:
            return from_pairs(agents, np.argwhere(_matrix(agents, found[-1].links)))
    best = _closest(found)
    wanted = _listed(fiedler=fiedler, density=density, centrality=centrality)
    closest = _listed(fiedler=best.fiedler, density=float(best.links.mean()), centrality=best.centrality)
    raise GraphError(
        f"no graph of {agents} agents found within {tolerance:g} of {wanted}; the closest in {restarts} "
        f"restarts of {steps} steps has {closest}; widen the tolerance, or search longer"
    )


def _closest(found: list[_Candidate]) -> _Candidate:
    return found[first_smallest((candidate.miss for candidate in found), scale=1.0)]


def _anneal(current: _Candidate, target: Target, counts: range, steps: int, rng: np.random.Generator) -> _Candidate:
    """Return the best graph of an annealing walk, stopping at the first that qualifies."""
    best = current
    for temperature in np.geomspace(HOT, COLD, steps) / target.agents:
        if best.miss == 0:
            break
        step = _weigh(target, _neighbour(current.links, target, counts, rng))
        if rng.random() < np.exp(min(0.0, current.miss - step.miss) / temperature):
            current = step
        if current.miss == 0 or current.miss < best.miss - SLACK:
            best = current
    return best


def _neighbour(links: LinkFlags, target: Target, counts: range, rng: np.random.Generator) -> LinkFlags:
    """Return the links with one added, removed or moved; their number stays in `counts`."""
    links = links.copy()
    # Agent 0's pairs come first. They matter most to its centrality, and they are few.
    hub = target.centrality is not None and rng.random() < 0.5
    pair = rng.integers(target.agents - 1 if hub else target.pairs)
    links[pair] ^= True
    if rng.random() < 0.5 or int(links.sum()) not in counts:
        links[rng.choice(np.flatnonzero(links == links[pair]))] ^= True
    return links


def _start(target: Target, counts: range, rng: np.random.Generator) -> _Candidate:
    """Return a uniformly random tree with additional random links, as many as the target suggests."""
    agents = target.agents
    tree = nx.from_prufer_sequence(rng.integers(agents, size=agents - 2).tolist())
    order = np.flatnonzero(nx.to_numpy_array(tree, nodelist=range(agents))[np.triu_indices(agents, 1)])
    if target.centrality is not None:  # some links of agent 0, from none to all
        order = np.append(order, rng.permutation(agents - 1)[: rng.integers(agents)])
    order = np.append(order, rng.permutation(target.pairs))
    order = order[np.sort(np.unique(order, return_index=True)[1])]

    def grown(count: int) -> _Candidate:
        links = np.zeros(target.pairs, dtype=np.bool_)
        links[order[:count]] = True
        return _weigh(target, links)

    if target.density is not None:
        return grown(min(max(round(target.density * target.pairs), counts[0]), counts[-1]))
    if target.fiedler is not None:  # which never falls as links are added
        place = bisect_left(counts, target.fiedler - SLACK, key=lambda count: grown(count).fiedler)
        return grown(counts[min(place, len(counts) - 1)])
    return grown(int(rng.choice(counts)))


def _weigh(target: Target, links: LinkFlags) -> _Candidate:
    matrix = _matrix(target.agents, links)
    laplacian = np.diag(matrix.sum(axis=1)) - matrix
    fiedler = float(np.linalg.eigvalsh(laplacian)[1]) / target.agents
    centrality = None if target.centrality is None else float(perron(matrix)[0])
    miss = 0.0 if fiedler > SLACK else np.inf
    for value, wanted in ((fiedler, target.fiedler), (centrality, target.centrality)):
        if value is not None and wanted is not None:
            miss += max(0.0, abs(value - wanted) - target.tolerance - SLACK)
    return _Candidate(links=links, fiedler=fiedler, centrality=centrality, miss=miss)


def _matrix(agents: int, links: LinkFlags) -> NDArray[np.float64]:
    matrix = np.zeros((agents, agents))
    matrix[np.triu_indices(agents, 1)] = links
    return matrix + matrix.T


def _listed(**values: float | None) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items() if value is not None)
