"""Which pairs of agents share a secret: the key graph, as plain public data."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

from tacit.errors import PrivacyError

if TYPE_CHECKING:
    import networkx as nx

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Keys:
    """Which pairs of agents share a secret: the key graph. Public; `pairs` is None where all of them do."""

    agents: int
    pairs: Pairs | None = None

    def __post_init__(self) -> None:
        if self.agents < 2:
            raise PrivacyError(f"keys are shared between agents, but there are only {self.agents}")
        for pair in self.pairs or ():
            if len(pair) != 2 or not 0 <= pair[0] < pair[1] < self.agents:
                raise PrivacyError(
                    f"a key is shared by two of {self.agents} agents, the smaller number first, not {pair}"
                )
        if self.pairs is not None and list(self.pairs) != sorted(set(self.pairs)):
            raise PrivacyError("the pairs that share a key are listed once each, in ascending order")

    @staticmethod
    def of(graph: "nx.Graph") -> "Keys":
        """Return the keys along the edges of a graph of agents 0..N-1."""
        if sorted(graph) != list(range(len(graph))) or graph.is_directed():
            raise PrivacyError("a key graph is undirected, and its agents are numbered from 0")
        pairs = sorted({(min(pair), max(pair)) for pair in graph.edges() if pair[0] != pair[1]})
        whole = len(pairs) == len(graph) * (len(graph) - 1) // 2
        return Keys(len(graph), None if whole else tuple(pairs))

    def without(self, lost: Sequence[int]) -> "Keys":
        """Return the keys without those of lost agents; agents keep their numbers."""
        gone = set(lost)
        return Keys(self.agents, tuple(pair for pair in self.all_pairs if not gone & set(pair)))

    @property
    def all_pairs(self) -> Pairs:
        """All pairs that share a key."""
        return tuple(combinations(range(self.agents), 2)) if self.pairs is None else self.pairs

    @cached_property
    def by_agent(self) -> dict[int, list[tuple[int, int]]]:
        """The pairs of each agent, in ascending order."""
        found: dict[int, list[tuple[int, int]]] = {agent: [] for agent in range(self.agents)}
        for pair in self.all_pairs:
            found[pair[0]].append(pair)
            found[pair[1]].append(pair)
        return found
