"""The one form that every communication graph takes: undirected, simple, connected, agents numbered 0..N-1.

`as_graph` brings any networkx graph into that form or says why it cannot be; `adjacency` gives the same as a
sparse matrix, which is what mixing matrices and measures are computed from.
"""

from contextlib import suppress
from itertools import chain
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from tacit.errors import GraphError

Pairs = NDArray[np.int64]  # [edges, 2]


def as_graph(graph: nx.Graph) -> nx.Graph:
    """Return a copy with nodes 0..N-1, without self-loops, parallel edges and attributes.

    Labels become numbers in their sorted order, or in the order in which they were added where they do not
    sort. Text sorts as text: "10" comes before "2". Directed, empty and disconnected graphs are errors.
    """
    labels, pairs = _numbered(graph)
    return from_pairs(len(labels), pairs)


def adjacency(graph: nx.Graph) -> sparse.csr_array:
    """Return the symmetric 0/1 adjacency matrix of `as_graph(graph)`, with sorted indices."""
    labels, pairs = _numbered(graph)
    return _matrix(len(labels), simple(len(labels), pairs))


def require_undirected(graph: nx.Graph) -> None:
    """Raise for a directed graph, which does not say how the average is kept."""
    if graph.is_directed():
        raise GraphError(
            "a directed graph cannot be mixed over: with one-way links the agents' average drifts towards agents that many others hear. "
            "Use graph.to_undirected(), or give weights whose rows and columns all sum to one: "
            "graph=tacit.networks.as_topology(W)"
        )


def from_pairs(agents: int, pairs: Pairs) -> nx.Graph:
    """Return the simple graph with these edges, its nodes and edges in ascending order."""
    graph: nx.Graph = nx.Graph()
    graph.add_nodes_from(range(agents))
    graph.add_edges_from(simple(agents, pairs).tolist())
    return graph


def simple(agents: int, pairs: Pairs) -> Pairs:
    """Return each edge once as (smaller, larger), in ascending order, without self-loops."""
    low, high = pairs.min(axis=1), pairs.max(axis=1)
    code = np.unique((low * agents + high)[low != high])
    return np.stack(np.divmod(code, agents), axis=1)


def connected(agents: int, pairs: Pairs) -> bool:
    """Return whether these edges connect all agents."""
    if len(pairs) < agents - 1:
        return False
    return int(csgraph.connected_components(_matrix(agents, pairs), directed=False)[0]) == 1


def _matrix(agents: int, pairs: Pairs) -> sparse.csr_array:
    rows, columns = np.concatenate([pairs, pairs[:, ::-1]]).T
    matrix = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(agents, agents))
    matrix.sort_indices()
    return matrix


def _numbered(graph: nx.Graph) -> tuple[list[Any], Pairs]:
    """Return the labels in the order of their numbers, and the edges as numbers."""
    if not isinstance(graph, nx.Graph):
        raise GraphError(f"a communication graph is a networkx.Graph, got {type(graph).__name__}")
    require_undirected(graph)
    if not graph:
        raise GraphError("the graph has no nodes; a communication graph has at least one agent")
    labels = list(graph)
    with suppress(TypeError):  # labels that do not compare keep the order in which they were added
        labels = sorted(labels)
    number = {label: index for index, label in enumerate(labels)}
    ends = chain.from_iterable(graph.edges())
    pairs = np.fromiter((number[end] for end in ends), dtype=np.int64).reshape(-1, 2)
    _require_connected(labels, pairs)
    return labels, pairs


def _require_connected(labels: list[Any], pairs: Pairs) -> None:
    parts, membership = csgraph.connected_components(_matrix(len(labels), pairs), directed=False)
    if parts == 1:
        return
    sizes = np.bincount(membership)
    listed = ", ".join(str(size) for size in sorted(sizes.tolist(), reverse=True)[:5])
    listed += ", …" if parts > 5 else ""
    main = membership == sizes.argmax()
    inside, outside = labels[int(main.argmax())], labels[int(main.argmin())]
    raise GraphError(
        f"the graph is not connected: it has {parts} components of sizes {listed}, and "
        f"no path joins node {inside!r} to node {outside!r}; add edges between the components"
    )
