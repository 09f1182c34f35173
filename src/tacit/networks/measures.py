"""How well changing links bring agents to agreement."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tacit.errors import GraphError
from tacit.networks.checks import check_topology
from tacit.networks.topology import Links, Topology, edges_over

_MOST_AGENTS = 2_000  # agents up to which whole matrices are multiplied
_EXACT = 1e-12


@dataclass(frozen=True, kw_only=True)
class ScheduleMeasures:
    """What a schedule does over some rounds."""

    agents: int
    rounds: int
    """The number of rounds measured: one period, or as many as requested."""
    window: int
    """The number of rounds within which all agents are connected."""
    pairs: int
    """The pairs that exchange messages in some round."""
    most_neighbors: int
    """The most neighbours that an agent hears in one exchange."""
    messages: float
    """The messages that an agent sends in a round, on average."""
    symmetric: bool
    """Whether in every round links are mutual with equal weights, as real peers need."""
    contraction: float
    """The share of disagreement left after these rounds, at worst: 0 is an exact average."""

    @property
    def of_a_round(self) -> float:
        """The share of disagreement left after a round, on average."""
        return float(self.contraction ** (1 / self.rounds))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "contraction_of_a_round": self.of_a_round}


def measure_schedule(topology: Topology, rounds: int = 100) -> ScheduleMeasures:
    """Measure one period of a topology, or the given number of rounds if it never repeats; refuse one that does not mix."""
    agents = topology.agents
    if agents > _MOST_AGENTS:
        raise GraphError(f"a schedule of {agents:,} agents is too large to be measured; the limit is {_MOST_AGENTS:,}")
    rounds = rounds if topology.period is None else topology.period
    check_topology(topology, max(rounds, topology.window))
    exchanges = [links for number in range(rounds) for links in topology.at(number)]
    return ScheduleMeasures(
        agents=agents,
        rounds=rounds,
        window=topology.window,
        pairs=len(edges_over(topology, rounds)),
        most_neighbors=max(int(links.degrees.max(initial=0)) for links in exchanges),
        messages=sum(float(links.listeners.mean()) for links in exchanges) / rounds,
        symmetric=all(links.symmetric for links in exchanges),
        contraction=_contraction(agents, exchanges),
    )


def _contraction(agents: int, exchanges: list[Links]) -> float:
    """Return the share left of the worst disagreement; 0 if no more than rounding is left."""
    left, size = np.eye(agents) - 1 / agents, 1.0
    for links in exchanges:
        left = links.weights @ left
        norm = float(np.linalg.norm(left, 2))
        if norm < _EXACT:
            return 0.0
        left, size = left / norm, size * norm
    return size
