"""Places agents on 64 ranks by their numbers and by METIS, and prints how many rows cross between ranks for each agent.

    python -m benchmarks.placement 100000

Three graphs: points of a square that are near each other, numbered at random; a small world; a random graph. Only placements are made, no run.
"""

import argparse
import time
from collections.abc import Callable

import networkx as nx
import numpy as np
from scipy.spatial import cKDTree

from tacit.cluster import Placement, place
from tacit.graphs.adjacency import Pairs
from tacit.networks.topology import Static, links_from_pairs

RANKS, DEGREE, REWIRED, SEED = 64, 6, 0.01, 0


def geometric(agents: int, chance: np.random.Generator, degree: float) -> Pairs:
    """Return all pairs of random points in the unit square that are so near that `degree` others are, on average."""
    points = cKDTree(chance.random((agents, 2)))
    return np.asarray(points.query_pairs((degree / (np.pi * agents)) ** 0.5, output_type="ndarray"), dtype=np.int64)


def small_world(agents: int, chance: np.random.Generator) -> Pairs:
    """Return a ring in which each agent has six neighbours, and one link in a hundred leads anywhere instead."""
    first = np.repeat(np.arange(agents), DEGREE // 2)
    second = (first + np.tile(np.arange(1, DEGREE // 2 + 1), agents)) % agents
    elsewhere = chance.random(len(first)) < REWIRED
    second[elsewhere] = chance.integers(agents, size=int(elsewhere.sum()))
    return np.stack([first, second], axis=1)[first != second]


def random_graph(agents: int) -> Pairs:
    """Return a random graph in which each agent has six neighbours."""
    return np.asarray(nx.random_regular_graph(DEGREE, agents, seed=SEED).edges, dtype=np.int64)


def place_both(agents: int, pairs: Pairs) -> tuple[dict[str, Placement], float]:
    """Return both placements by their kind, and the seconds that it took to make them."""
    topology, started = Static(links_from_pairs(agents, pairs)), time.perf_counter()
    found = place(topology, RANKS, np.ones(agents))
    return {each.kind: each for each in found}, time.perf_counter() - started


def main() -> None:
    """Place agents on the graphs that are asked for, and print a table as Markdown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.placement", description=__doc__)
    parser.add_argument("agents", type=int, help="how many agents")
    parser.add_argument(
        "--degree", type=float, default=8.0, help="neighbours of an agent on the geometric graph, on average"
    )
    parser.add_argument("--graph", choices=("geometric", "small world", "random"), help="this graph alone")
    given = parser.parse_args()
    chance, agents = np.random.default_rng(SEED), given.agents
    makers: dict[str, Callable[[], Pairs]] = {
        "geometric": lambda: geometric(agents, chance, given.degree),
        "small world": lambda: small_world(agents, chance),
        "random": lambda: random_graph(agents),
    }
    print("| graph | neighbours | contiguous | METIS | seconds |\n|---|---|---|---|---|")
    for name, make in makers.items():
        if given.graph in (None, name):
            pairs = make()
            found, seconds = place_both(agents, pairs)
            crossing = " | ".join(f"{found[kind].halo_per_agent:.3g}" for kind in ("contiguous", "METIS"))
            print(f"| {name} | {2 * len(pairs) / agents:.2f} | {crossing} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
