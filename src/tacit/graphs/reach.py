"""Targets that provably no graph can have, refused before any search.

For N agents, with the Fiedler value normalised by N: a connected graph has at least N-1 edges; the path has
the smallest Fiedler value; only the complete graph is above (N-2)/N; no Fiedler value exceeds the density,
nor does leaving out m edges lower it below (N-1-m)/N; no eigenvector centrality exceeds the 1/√2 of a star's
hub.
"""

import math
from dataclasses import dataclass

from tacit.errors import GraphError
from tacit.graphs.arguments import fraction, whole

SLACK = 1e-9  # tolerance for rounding


@dataclass(frozen=True, kw_only=True)
class Target:
    """The target values of a graph, each to within the tolerance; None for any value."""

    agents: int
    fiedler: float | None
    density: float | None
    centrality: float | None
    tolerance: float

    def __post_init__(self) -> None:
        whole("agents", self.agents, least=2)
        fraction("tolerance", self.tolerance)
        wanted = {"fiedler": self.fiedler, "density": self.density, "centrality": self.centrality}
        for name, value in wanted.items():
            if value is not None:
                fraction(name, value)
        if all(value is None for value in wanted.values()):
            raise GraphError("nothing to search for: give fiedler, density or centrality")

    @property
    def pairs(self) -> int:
        """The number of pairs of agents, which is the most edges there can be."""
        return self.agents * (self.agents - 1) // 2


def edge_counts(target: Target) -> range:
    """Return the numbers of edges with which a graph may meet the target, or raise if there is none."""
    low, high = _from_density(target)
    if target.fiedler is not None:
        least, most = _from_fiedler(target, target.fiedler)
        if least > high or most < low:
            raise GraphError(
                f"fiedler {target.fiedler:g} is not possible with density {target.density:g}: for "
                f"{target.agents} agents it takes a density from {least / target.pairs:.4g} to "
                f"{most / target.pairs:.4g}"
            )
        low, high = max(low, least), min(high, most)
    if target.centrality is not None and target.centrality - target.tolerance > 0.5**0.5 + SLACK:
        raise GraphError(
            f"centrality {target.centrality:g} is out of reach: the hub of a star has the largest, 1/√2 = 0.7071"
        )
    return range(low, high + 1)


def _from_density(target: Target) -> tuple[int, int]:
    tree, pairs = target.agents - 1, target.pairs
    if target.density is None:
        return tree, pairs
    reach = target.tolerance + SLACK
    low = max(tree, math.ceil((target.density - reach) * pairs))
    high = min(pairs, math.floor((target.density + reach) * pairs))
    if high < tree:
        raise GraphError(
            f"density {target.density:g} is out of reach: a connected graph of {target.agents} agents has at "
            f"least {tree} edges, density {tree / pairs:.4g}"
        )
    if low > high:
        raise GraphError(
            f"no graph of {target.agents} agents has a density within {target.tolerance:g} of "
            f"{target.density:g}; the nearest are {high / pairs:.6g} and {low / pairs:.6g}"
        )
    return low, high


def _from_fiedler(target: Target, fiedler: float) -> tuple[int, int]:
    agents, pairs, reach = target.agents, target.pairs, target.tolerance + SLACK
    path = (2 - 2 * math.cos(math.pi / agents)) / agents
    if fiedler + reach < path:
        raise GraphError(
            f"fiedler {fiedler:g} is out of reach: the path, the least connected graph of {agents} agents, "
            f"has {path:.4g}"
        )
    gap = (agents - 2) / agents
    if fiedler - reach > gap:
        if fiedler + reach < 1:
            raise GraphError(
                f"fiedler {fiedler:g} is out of reach: no graph of {agents} agents lies between {gap:.4g} "
                "and the complete graph's 1"
            )
        return pairs, pairs
    least = max(agents - 1, math.ceil((fiedler - reach) * pairs))
    missing = math.ceil(agents - 1 - agents * (fiedler + reach))
    return least, pairs - max(0, missing)
