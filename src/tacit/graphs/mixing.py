"""Mixing matrices W: how much of each neighbour's value an agent takes in a round.

W must be doubly stochastic: rows that sum to one keep agreement, columns that sum to one keep the agents'
average. `metropolis` and `max_degree` are doubly stochastic on every graph, and symmetric too. The paper's
`uniform` is only on regular graphs and needs an explicit flag elsewhere, which exists only to reproduce the
published code. Your own W need not be symmetric in simulation; between real peers it must be, since both ends of
a link have to agree on whether it was used in a round.
"""

from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from tacit.errors import GraphError, choose
from tacit.graphs.adjacency import adjacency
from tacit.ties import first_largest

RULES = ("metropolis", "max_degree", "uniform")
TOLERANCE = 1e-9


def mixing_matrix(graph: nx.Graph, rule: str = "metropolis", *, allow_drift: bool = False) -> sparse.csr_array:
    """Return W with sorted indices and a stored diagonal; row i belongs to agent i of `as_graph(graph)`.

    For neighbours i and j of degrees d_i and d_j, with the diagonal at one minus the rest of the row:

    - `metropolis`: w_ij = 1/(1 + max(d_i, d_j))
    - `max_degree`: w_ij = 1/(1 + the largest degree)
    - `uniform`: w_ij = 1/(1 + d_i); an error on irregular graphs unless `allow_drift`
    """
    return weights_for(adjacency(graph), rule, allow_drift=allow_drift)


def weights_for(adjacent: sparse.csr_array, rule: str = "metropolis", *, allow_drift: bool = False) -> sparse.csr_array:
    """Return the same for a symmetric 0/1 adjacency matrix, connected or not."""
    choose("mixing rule", rule, RULES)
    links = adjacent.copy()
    degree = np.diff(links.indptr)
    own, other = np.repeat(degree, degree), degree[links.indices]
    if rule == "metropolis":
        links.data = 1 / (1 + np.maximum(own, other))
    elif rule == "max_degree":
        links.data = np.full(len(own), 1 / (1 + degree.max()))
    else:
        links.data = 1 / (1 + own)
    weights = _with_diagonal(links, 1.0 - np.asarray(links.sum(axis=1), dtype=np.float64))
    if rule == "uniform" and not allow_drift and degree.min() != degree.max():
        columns = np.asarray(weights.sum(axis=0))
        raise GraphError(
            f"uniform weights on an irregular graph (degrees {degree.min()} to {degree.max()}) have columns "
            f"that sum to between {columns.min():.4g} and {columns.max():.4g} instead of one, so the agents' "
            "average drifts; use 'metropolis' or 'max_degree' (allow_drift=True is only for reproducing the "
            "published code)"
        )
    return weights


def check_mixing_matrix(matrix: Any, graph: nx.Graph | None = None) -> sparse.csr_array:
    """Return your own W, dense or sparse, in the form of `mixing_matrix`, or raise if it cannot mix.

    W must be square and non-negative, with rows and columns that sum to one, all within 1e-9. Given a graph,
    it must also be exactly zero wherever two agents are not neighbours, and connect all agents. A weight that
    rounding made negative becomes zero.
    """
    weights = _plain(matrix)
    if not np.isfinite(weights.data).all():
        raise GraphError(f"W{_entry(weights, ~np.isfinite(weights.data))}; every weight must be finite")
    if (weights.data < -TOLERANCE).any():
        raise GraphError(f"W{_entry(weights, weights.data < -TOLERANCE)}; no weight may be negative")
    for line, axis in (("row", 1), ("column", 0)):
        sums = np.asarray(weights.sum(axis=axis))
        drift = abs(sums - 1)
        if drift.max() > TOLERANCE:
            worst = first_largest(drift, scale=1.0)
            raise GraphError(
                f"{line} {worst} of W sums to {sums[worst]:.12g}; every row and column must sum to one, or the agents' average "
                "drifts"
            )
    weights.data = np.maximum(weights.data, 0)
    if graph is not None:
        _check_support(weights, adjacency(graph))
    diagonal = weights.diagonal()
    return _with_diagonal(sparse.csr_array(weights - sparse.diags_array(diagonal)), diagonal)


def _plain(matrix: Any) -> sparse.csr_array:
    """Return a float64 copy without stored zeros."""
    try:
        weights = sparse.csr_array(matrix, dtype=np.float64, copy=True)
    except (TypeError, ValueError) as error:
        raise GraphError(f"W must be a square matrix of numbers, got {type(matrix).__name__}: {error}") from error
    if weights.ndim != 2 or weights.shape[0] != weights.shape[1] or weights.shape[0] == 0:
        raise GraphError(f"W must be square with one row for each agent, got shape {weights.shape}")
    weights.sum_duplicates()
    weights.eliminate_zeros()
    return weights


def _entry(weights: sparse.csr_array, bad: NDArray[np.bool_]) -> str:
    place, first = weights.tocoo(), int(bad.argmax())
    return f"[{place.row[first]}, {place.col[first]}] = {weights.data[first]:g}"


def _check_support(weights: sparse.csr_array, links: sparse.csr_array) -> None:
    agents = weights.shape[0]
    if links.shape[0] != agents:
        raise GraphError(f"W is for {agents} agents, but the graph has {links.shape[0]}")
    own = sparse.csr_array(sparse.eye_array(agents))
    beyond = sparse.csr_array(weights - weights.multiply(links + own))
    beyond.eliminate_zeros()
    if beyond.nnz:
        place = beyond.tocoo()
        i, j = place.row[0], place.col[0]
        raise GraphError(
            f"W[{i}, {j}] = {place.data[0]:g}, but agents {i} and {j} are not neighbours on the graph; "
            "W must be zero off its edges and diagonal"
        )
    weights.eliminate_zeros()
    parts = csgraph.connected_components(weights, directed=True, connection="strong")[0]
    if parts > 1:
        raise GraphError(
            f"W divides the agents into {parts} groups that take nothing from each other, so they never agree; its weights "
            "above zero must connect all agents"
        )


def _with_diagonal(links: sparse.csr_array, diagonal: NDArray[np.float64]) -> sparse.csr_array:
    """Return the off-diagonal weights with the diagonal stored, zero or not, and sorted indices."""
    place, numbers = links.tocoo(), np.arange(len(diagonal))
    rows, columns = np.concatenate([place.row, numbers]), np.concatenate([place.col, numbers])
    weights = sparse.csr_array((np.concatenate([place.data, diagonal]), (rows, columns)), shape=links.shape)
    weights.sort_indices()
    return weights
