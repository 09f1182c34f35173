"""Which rank hosts which agents, so that few rows cross between ranks and all ranks have about as much to compute.

Agents in the order of their numbers suit graphs that are made that way, such as rings and small worlds; METIS finds better cuts of
graphs in which numbers say nothing about who is near. Both are computed, and the better is kept.
"""

from importlib.util import find_spec
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InvalidInput
from tacit.networks import Links, Topology
from tacit.networks.sharded import ranks_of
from tacit.networks.topology import rounds_of
from tacit.ties import RELATIVE

PlacementKind = Literal["auto", "contiguous", "metis"]
_ROUNDS = 16  # of links that change, by which a placement is judged
_WEIGHTS = 2**30  # all of them together
_SLACK = 1.05  # how much more than a contiguous placement's busiest rank METIS's may have to do


class Placement(NamedTuple):
    """Who is hosted where. `halo` is how many rows arrive at all ranks together in an exchange, on average over rounds."""

    kind: str
    shards: tuple[tuple[int, ...], ...]
    halo: float

    @property
    def halo_per_agent(self) -> float:
        """Rows that cross for each agent, in one exchange."""
        return self.halo / sum(map(len, self.shards))


def place(
    topology: Topology | None,
    ranks: int,
    lots: NDArray[np.float64],
    kind: PlacementKind = "auto",
    rounds: int = _ROUNDS,
) -> list[Placement]:
    """Return placements of the agents, the best first. The `lots` are shared out as evenly as possible; without a topology nothing crosses."""
    agents = len(lots)
    if kind not in get_args(PlacementKind):
        raise InvalidInput(f"placement is {kind!r}; give {', '.join(get_args(PlacementKind))}")
    if not 1 <= ranks <= agents:
        raise InvalidInput(
            f"{ranks} workers for {agents} agents: each worker hosts at least one, so use at most {agents}"
        )
    exchanges = [] if topology is None else _links(topology, rounds)
    found = []
    if kind != "metis":
        found.append(_judged("contiguous", _cut(lots, ranks), exchanges))
    if kind == "metis" or (kind == "auto" and ranks > 1 and exchanges and _has_metis()):
        shards = _partition(exchanges, lots, ranks)
        if shards is not None:
            found.append(_judged("METIS", shards, exchanges))
        elif kind == "metis":
            raise InvalidInput(f"METIS leaves one of {ranks} ranks without an agent; use placement contiguous")
    if (
        len(found) == 2
        and found[1].halo < found[0].halo
        and _busiest(found[1], lots) <= _SLACK * _busiest(found[0], lots)
    ):
        found.reverse()
    return found


def count_halo(links: Links, rank_of: NDArray[np.int64]) -> int:
    """Return how many rows arrive at all ranks together: each agent's once at every other rank where somebody hears it."""
    listener, speaker = np.repeat(np.arange(links.agents), links.degrees), links.heard.indices.astype(np.int64)
    crosses = rank_of[listener] != rank_of[speaker]
    return len(np.unique(rank_of[listener][crosses] * links.agents + speaker[crosses]))


def _links(topology: Topology, rounds: int) -> list[Links]:
    return [links for number in list(rounds_of(topology, rounds))[:_ROUNDS] for links in topology.at(number)]


def _judged(kind: str, shards: tuple[tuple[int, ...], ...], exchanges: list[Links]) -> Placement:
    if not exchanges:
        return Placement(kind, shards, 0.0)
    rank_of = ranks_of(shards, exchanges[0].agents)
    return Placement(kind, shards, float(np.mean([count_halo(links, rank_of) for links in exchanges])))


def _busiest(placement: Placement, lots: NDArray[np.float64]) -> float:
    return max(float(lots[list(own)].sum()) for own in placement.shards)


def _cut(lots: NDArray[np.float64], ranks: int) -> tuple[tuple[int, ...], ...]:
    """Cut the agents' numbers where the lots before are the ranks' share; everyone gets at least one agent."""
    middle = lots.cumsum() - lots / 2
    shares = lots.sum() * np.arange(1, ranks) / ranks
    wanted = np.searchsorted(
        middle, shares - RELATIVE * lots.sum()
    )  # an agent whose middle is at the cut comes after it
    bounds = [0]
    for number, bound in enumerate(wanted.tolist(), 1):
        bounds.append(min(max(bound, bounds[-1] + 1), len(lots) - (ranks - number)))
    bounds.append(len(lots))
    return tuple(tuple(range(first, last)) for first, last in pairwise(bounds))


def _has_metis() -> bool:
    return find_spec("pymetis") is not None


def whole_weights(lots: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the lots as whole numbers, the largest at most 1000, whose sum METIS can hold in 32 bits however many agents there are."""
    largest = min(1000.0, _WEIGHTS / len(lots))
    return np.maximum(1, np.round(largest * lots / lots.max())).astype(np.int64)


def _partition(exchanges: list[Links], lots: NDArray[np.float64], ranks: int) -> tuple[tuple[int, ...], ...] | None:
    """Return METIS's parts of all links together; None if one of them is empty."""
    try:
        import pymetis
    except ImportError:
        raise InvalidInput(
            "placement metis needs pymetis: install tacit with the extra 'metis' (pip install 'tacit[metis]')"
        ) from None
    union = sum(
        (links.heard + links.heard.T for links in exchanges[1:]), exchanges[0].heard + exchanges[0].heard.T
    ).tocsr()
    union.sort_indices()
    adjacency = pymetis.CSRAdjacency(adj_starts=union.indptr.tolist(), adjacent=union.indices.tolist())
    _, parts = pymetis.part_graph(ranks, adjacency=adjacency, vweights=whole_weights(lots).tolist())
    rank_of = np.asarray(parts)
    shards = tuple(tuple(np.flatnonzero(rank_of == rank).tolist()) for rank in range(ranks))
    return shards if all(shards) else None
