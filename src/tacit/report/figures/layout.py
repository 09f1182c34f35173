"""Where to draw the agents of a graph, the same in pages and figures."""

import networkx as nx
import numpy as np
import numpy.typing as npt

from tacit.graphs import algebraic_connectivity, density, torus

# Minimising the energy of all pairs looks best, and its cost grows with the cube of the number of agents.
_ENERGY_LIMIT = 120
_TORUS_LIMIT = 2_000
_BEND = 0.12  # of a side


def lay_out(graph: nx.Graph) -> npt.NDArray[np.float64]:
    """Return a point for each agent, with coordinates from -1 to 1."""
    agents = len(graph)
    degrees = {degree for _, degree in graph.degree}
    if agents < 4 or degrees in ({2}, {agents - 1}) or not graph.number_of_edges():
        places = _circle(agents)
    elif rows := _torus_rows(graph):
        places = _bent_rows(rows, agents // rows)
    elif agents <= _ENERGY_LIMIT and nx.is_connected(graph):
        places = _array(nx.kamada_kawai_layout(graph))
    else:
        places = _array(nx.spring_layout(graph, seed=0, iterations=60))
    places = places - (places.max(axis=0) + places.min(axis=0)) / 2
    return places / max(float(np.abs(places).max()), 1e-9)


def describe_connectivity(graph: nx.Graph) -> str:
    """Describe how well a graph connects its agents, in numbers; empty for one agent or a graph that is not connected."""
    if len(graph) < 2 or not nx.is_connected(graph):
        return ""
    fiedler = algebraic_connectivity(graph)
    return (
        f"density {density(graph):.3g}, algebraic connectivity {fiedler:.3g} "
        f"({fiedler / len(graph):.3g} when normalised by the number of agents)"
    )


def _circle(agents: int) -> npt.NDArray[np.float64]:
    """Put the first agent at the top and the others clockwise."""
    angles = np.pi / 2 - 2 * np.pi * np.arange(agents) / agents
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def _torus_rows(graph: nx.Graph) -> int | None:
    """Return the rows of a torus whose agents are numbered row by row; None for any other graph."""
    agents, edges = len(graph), {frozenset(edge) for edge in graph.edges}
    if agents > _TORUS_LIMIT or len(edges) > 2 * agents:
        return None
    for rows in range(2, agents // 2 + 1):
        if agents % rows == 0 and {frozenset(edge) for edge in torus(agents, rows=rows).edges} == edges:
            return rows
    return None


def _bent_rows(rows: int, columns: int) -> npt.NDArray[np.float64]:
    """Return rows and columns, bent a little so that links from one end to the other are not hidden behind the rest."""
    down, across = (np.arange(count) - (count - 1) / 2 for count in (rows, columns))
    x = across[None, :] + _BEND * columns * (2 * down[:, None] / rows) ** 2
    y = -down[:, None] + _BEND * rows * (2 * across[None, :] / columns) ** 2
    return np.stack([x.ravel(), y.ravel()], axis=1)


def _array(places: dict[int, npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    return np.array([places[agent] for agent in range(len(places))])
