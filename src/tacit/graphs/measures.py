"""How well a graph connects its agents: algebraic connectivity, density, spectral gap, centrality, diameter.

Two numbers are called the Fiedler value. Here `fiedler` and `algebraic_connectivity` are the second
smallest eigenvalue of the Laplacian, and the normalised ones divide it by N, so that a complete graph is 1 (a
ring of ten: 0.382 and 0.0382). A single agent counts as a complete graph.
"""

from dataclasses import asdict, dataclass
from typing import Any

import networkx as nx
import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from tacit.errors import GraphError
from tacit.graphs.adjacency import adjacency
from tacit.graphs.eigen import DENSE_LIMIT, Vector, perron, positive_unit, smallest
from tacit.graphs.mixing import TOLERANCE, check_mixing_matrix, mixing_matrix


@dataclass(frozen=True, kw_only=True)
class Measures:
    """All measures of one graph; the spectral gap is that of the chosen mixing rule."""

    agents: int
    edges: int
    fiedler: float
    normalized_fiedler: float
    density: float
    spectral_gap: float
    centrality: tuple[float, ...]
    diameter: int

    def to_dict(self) -> dict[str, Any]:
        """Return the measures as plain numbers and a list, ready for JSON."""
        return {**asdict(self), "centrality": list(self.centrality)}


def measure(graph: nx.Graph, rule: str = "metropolis") -> Measures:
    """Return all measures of a graph, with the spectral gap of the weights in its file or of its mixing matrix under `rule`."""
    if (weights := graph.graph.get("weights")) is None:
        weights = mixing_matrix(graph, rule)
    elif rule != "metropolis":
        raise GraphError(f"the graph's file has its own weights, so {rule} has no effect; leave one of them out")
    links, fiedler = adjacency(graph), algebraic_connectivity(graph)
    return Measures(
        agents=links.shape[0],
        edges=links.nnz // 2,
        fiedler=fiedler,
        normalized_fiedler=fiedler / links.shape[0],
        density=density(graph),
        spectral_gap=spectral_gap(weights),
        centrality=tuple(eigenvector_centrality(graph).tolist()),
        diameter=diameter(graph),
    )


def algebraic_connectivity(graph: nx.Graph) -> float:
    """Return the second smallest eigenvalue of the graph's Laplacian."""
    links = adjacency(graph)
    if links.shape[0] == 1:
        return 1.0
    laplacian = sparse.diags_array(np.diff(links.indptr).astype(np.float64)) - links
    value, _ = smallest(sparse.csr_array(laplacian), beside_ones=True)
    return min(value, float(links.shape[0]))  # the complete graph's, which rounding may exceed


def normalized_algebraic_connectivity(graph: nx.Graph) -> float:
    """Return the algebraic connectivity divided by the number of agents: 1 for a complete graph."""
    return algebraic_connectivity(graph) / len(graph)


def density(graph: nx.Graph) -> float:
    """Return the share of all pairs of agents that are linked."""
    links = adjacency(graph)
    agents = links.shape[0]
    return 1.0 if agents == 1 else links.nnz / (agents * (agents - 1))


def spectral_gap(matrix: Any) -> float:
    """Return one minus the second largest singular value of a mixing matrix: the share of disagreement that a round removes.

    For symmetric W that is the second largest absolute eigenvalue.
    """
    weights = check_mixing_matrix(matrix)
    if weights.shape[0] == 1:
        return 1.0
    one = sparse.eye_array(weights.shape[0])
    gap = abs(weights - weights.T)
    if gap.nnz and gap.max() > TOLERANCE:
        left = 1 - smallest(sparse.csr_array(one - weights.T @ weights), beside_ones=True)[0]
        return 1 - min(max(left, 0.0), 1.0) ** 0.5
    gap = smallest(sparse.csr_array(one - weights), beside_ones=True)[0]
    # By Gershgorin no eigenvalue is below -1 + 2 min w_ii, so a negative one matters only if this can be.
    if 2 * weights.diagonal().min() < gap:
        gap = min(gap, smallest(sparse.csr_array(one + weights), beside_ones=True)[0])
    return min(max(gap, 0.0), 1.0)  # which rounding may exceed


def eigenvector_centrality(graph: nx.Graph) -> Vector:
    """Return the dominant eigenvector of the adjacency matrix: positive, with Euclidean norm one."""
    links = adjacency(graph)
    degree = np.diff(links.indptr)
    if degree.min() == degree.max():
        return np.full(len(degree), len(degree) ** -0.5)
    if len(degree) <= DENSE_LIMIT:
        return perron(links.toarray())
    turned = sparse.csr_array(degree.max() * sparse.eye_array(len(degree)) - links)
    return positive_unit(smallest(turned, beside_ones=False)[1])


def diameter(graph: nx.Graph) -> int:
    """Return the largest number of links between two agents.

    Distances are taken from the agents farthest from a busy one inwards, until what is left, all within r of
    it and so within 2r of each other, cannot hold a longer one (the iFUB method of Crescenzi et al., 2013).
    """
    links = adjacency(graph)
    centre = int(np.diff(links.indptr).argmax())
    level = csgraph.dijkstra(links, indices=[centre], unweighted=True)[0]
    longest = int(level.max())
    for agent in np.argsort(-level, kind="stable"):
        if longest >= 2 * level[agent]:
            break
        longest = max(longest, _farthest(links, int(agent)))
    return longest


def _farthest(links: sparse.csr_array, agent: int) -> int:
    """Return the number of links to the agent farthest from this one."""
    order, before = csgraph.breadth_first_order(links, agent)
    steps, at = 0, order[-1]
    while at != agent:
        at = before[at]
        steps += 1
    return steps
