"""Who talks to whom: topologies, mixing matrices, measures of connectivity, and a search for targets."""

from tacit.graphs.adjacency import as_graph
from tacit.graphs.files import read_graph, write_edge_list
from tacit.graphs.measures import (
    Measures,
    algebraic_connectivity,
    density,
    diameter,
    eigenvector_centrality,
    measure,
    normalized_algebraic_connectivity,
    spectral_gap,
)
from tacit.graphs.mixing import check_mixing_matrix, mixing_matrix
from tacit.graphs.random_graphs import erdos_renyi, random_regular, small_world
from tacit.graphs.search import find_graph
from tacit.graphs.topologies import (
    build,
    complete,
    exponential,
    grid,
    hypercube,
    path,
    ring,
    star,
    torus,
    wheel,
)

__all__ = [
    "Measures",
    "algebraic_connectivity",
    "as_graph",
    "build",
    "check_mixing_matrix",
    "complete",
    "density",
    "diameter",
    "eigenvector_centrality",
    "erdos_renyi",
    "exponential",
    "find_graph",
    "grid",
    "hypercube",
    "measure",
    "mixing_matrix",
    "normalized_algebraic_connectivity",
    "path",
    "random_regular",
    "read_graph",
    "ring",
    "small_world",
    "spectral_gap",
    "star",
    "torus",
    "wheel",
    "write_edge_list",
]
