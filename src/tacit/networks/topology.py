"""Who talks to whom in round k, and with which weights: a pure, public function of k that every agent can compute.

A static graph is the constant one. A changing one must keep the agents' average in every round (rows and columns of weights sum
to one) and connect all agents over a stated number of rounds; `check_topology` names a round that does not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Protocol, TypeGuard

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tacit.errors import GraphError
from tacit.graphs.adjacency import Pairs, require_undirected, simple
from tacit.graphs.mixing import TOLERANCE, mixing_matrix, weights_for

Numbers = NDArray[np.int64]
_REMEMBERED = 64  # rounds


@dataclass(frozen=True, eq=False)
class Links:
    """One exchange: row i of `weights` says how much agent i takes of every agent, `heard` whom it hears.

    An agent may be heard with weight zero: `sum` counts all who are heard.
    """

    weights: sparse.csr_array
    heard: sparse.csr_array

    @classmethod
    def of(cls, weights: sparse.csr_array, heard: sparse.csr_array | None = None) -> "Links":
        """Return links with sorted neighbours; by default agents with non-zero weights are heard."""
        weights = weights.astype(np.float64)
        heard = (weights if heard is None else heard.astype(np.float64)).copy()
        heard.setdiag(0)
        heard.eliminate_zeros()
        heard.data[:] = 1
        heard.sort_indices()
        weights.sort_indices()
        return cls(weights, heard)

    @property
    def agents(self) -> int:
        """The number of agents."""
        return int(self.weights.shape[0])

    @cached_property
    def degrees(self) -> Numbers:
        """The number of neighbours that each agent hears."""
        return np.diff(self.heard.indptr).astype(np.int64)

    @cached_property
    def listeners(self) -> Numbers:
        """The number of neighbours that hear each agent."""
        return np.bincount(self.heard.indices, minlength=self.agents).astype(np.int64)

    @cached_property
    def own_weights(self) -> NDArray[np.float64]:
        """Each agent's weight for its own value."""
        return np.asarray(self.weights.diagonal(), dtype=np.float64)

    @cached_property
    def neighbor_weights(self) -> NDArray[np.float64]:
        """Each agent's weights for those it hears, in the order of `heard.indices`."""
        rows = np.repeat(np.arange(self.agents), self.degrees)
        if not len(rows):
            return np.zeros(0)
        return np.asarray(self.weights[rows, self.heard.indices], dtype=np.float64).ravel()

    @cached_property
    def symmetric(self) -> bool:
        """Whether all links are mutual with equal weights: real peers need that."""
        apart = (abs(self.heard - self.heard.T), abs(self.weights - self.weights.T))
        return all(gap.nnz == 0 or gap.max() <= TOLERANCE for gap in apart)

    @cached_property
    def balanced(self) -> bool:
        """Whether every agent is heard by as many as it hears."""
        return bool((self.degrees == self.listeners).all())

    def of_agent(self, agent: int) -> tuple[Numbers, NDArray[np.float64]]:
        """Return whom an agent hears, ascending, and its weight for each."""
        some = slice(self.heard.indptr[agent], self.heard.indptr[agent + 1])
        return self.heard.indices[some].astype(np.int64), self.neighbor_weights[some]

    def hearing(self, agent: int) -> Numbers:
        """Return who hears an agent, ascending."""
        rows = np.repeat(np.arange(self.agents), self.degrees)
        return np.sort(rows[self.heard.indices == agent])


class Topology(Protocol):
    """Links in every round. `window` is a number of rounds within which all agents are connected; `period` after how many it repeats."""

    @property
    def agents(self) -> int:
        """The number of agents."""

    @property
    def window(self) -> int:
        """The number of rounds, from any start, within which all agents are connected."""

    @property
    def period(self) -> int | None:
        """The number of rounds after which the links repeat; None if they never do."""

    def at(self, round: int) -> tuple[Links, ...]:
        """Return the links of a round, counted from 0: one exchange, or several in sequence."""


@dataclass(frozen=True, eq=False)
class Static:
    """The same links in every round."""

    links: Links
    window: int = field(default=1, init=False)
    period: int | None = field(default=1, init=False)

    @property
    def agents(self) -> int:
        """The number of agents."""
        return self.links.agents

    def at(self, round: int) -> tuple[Links, ...]:
        """Return the links."""
        return (self.links,)


@dataclass(frozen=True, eq=False)
class Cycle:
    """Several sets of links in turn, repeated. Their union must connect all agents.

    `kind` is the text that names a schedule of the library, such as `base:peers=2`, if it is one.
    """

    each: tuple[Links, ...]
    kind: str | None = None

    def __post_init__(self) -> None:
        if not self.each:
            raise GraphError("a cycle of links is empty; give at least one set of links")
        if len({links.agents for links in self.each}) > 1:
            raise GraphError(f"the links of a cycle are for {sorted({one.agents for one in self.each})} agents")

    @property
    def agents(self) -> int:
        """The number of agents."""
        return self.each[0].agents

    @property
    def window(self) -> int:
        """One cycle: all of its links together connect all agents."""
        return len(self.each)

    @property
    def period(self) -> int | None:
        """The number of rounds in one cycle."""
        return len(self.each)

    def at(self, round: int) -> tuple[Links, ...]:
        """Return the links of a round."""
        return (self.each[round % len(self.each)],)


class Changing:
    """The links that a pure function of the round's number gives: a graph, a matrix of weights, or `Links`."""

    period = None

    def __init__(
        self, links: Callable[[int], Any], agents: int, *, window: int = 1, mixing: str = "metropolis"
    ) -> None:
        self.agents, self.window, self._mixing = agents, window, mixing
        self._function = links
        self._at = lru_cache(maxsize=_REMEMBERED)(self._make)

    def at(self, round: int) -> tuple[Links, ...]:
        """Return the links of a round."""
        return self._at(round)

    def _make(self, round: int) -> tuple[Links, ...]:
        links = as_links(self._function(round), self._mixing)
        if links.agents != self.agents:
            raise GraphError(f"in round {round} there are {links.agents} agents instead of {self.agents}")
        return (links,)


class Several:
    """Several exchanges in each round: `exchanges` rounds of another topology, one after another."""

    def __init__(self, inner: Topology, exchanges: int) -> None:
        if exchanges < 1:
            raise GraphError(f"{exchanges} exchanges in a round; there must be at least one")
        self.inner, self.exchanges = inner, exchanges

    @property
    def agents(self) -> int:
        """The number of agents."""
        return self.inner.agents

    @property
    def window(self) -> int:
        """The number of rounds within which all agents are connected."""
        return -(-self.inner.window // self.exchanges)

    @property
    def period(self) -> int | None:
        """The number of rounds after which the links repeat."""
        inner = self.inner.period
        return None if inner is None else int(np.lcm(inner, self.exchanges)) // self.exchanges

    def at(self, round: int) -> tuple[Links, ...]:
        """Return the links of all exchanges of a round."""
        first = round * self.exchanges
        return tuple(links for number in range(self.exchanges) for links in self.inner.at(first + number))


def as_links(value: Any, mixing: str = "metropolis") -> Links:
    """Return links from a graph, which need not be connected, or from a matrix of weights."""
    if isinstance(value, Links):
        return value
    if isinstance(value, nx.Graph):
        require_undirected(value)
        if sorted(value) != list(range(len(value))):
            raise GraphError("agents of a graph that changes are numbered from 0, the same in every round")
        pairs = np.array([pair for pair in value.edges() if pair[0] != pair[1]], dtype=np.int64).reshape(-1, 2)
        return links_from_pairs(len(value), pairs, mixing)
    try:
        weights = sparse.csr_array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise GraphError(f"links are a graph or a matrix of weights, not a {type(value).__name__}: {error}") from error
    if weights.ndim != 2 or weights.shape[0] != weights.shape[1] or weights.shape[0] == 0:
        raise GraphError(f"a matrix of weights has a row and a column for each agent, not shape {weights.shape}")
    return Links.of(weights)


def links_from_pairs(agents: int, pairs: Pairs, mixing: str = "metropolis") -> Links:
    """Return links along these edges, weighted by a rule."""
    pairs = simple(agents, pairs)
    rows, columns = np.concatenate([pairs, pairs[:, ::-1]]).T
    heard = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(agents, agents))
    heard.sort_indices()
    return Links.of(weights_for(heard, mixing), heard)


def is_topology(value: Any) -> TypeGuard[Topology]:
    """Return whether an object is a topology."""
    return not isinstance(value, type) and hasattr(value, "at") and hasattr(value, "agents")


def as_topology(value: Any, *, mixing: str = "metropolis") -> Topology:
    """Return the topology of a connected graph, of a matrix of weights, or of a sequence of these in turn; a topology is returned as it is."""
    if is_topology(value):
        return value
    if isinstance(value, nx.Graph):
        return Static(Links.of(mixing_matrix(value, mixing)))
    if isinstance(value, np.ndarray) or sparse.issparse(value):
        return Static(as_links(value))
    if isinstance(value, Sequence):
        return Cycle(tuple(as_links(each, mixing) for each in value))
    raise GraphError(
        f"a topology is a graph, a matrix of weights, a sequence of these, or has `agents` and `at(round)`; got {value!r}"
    )


def rounds_of(topology: Topology, rounds: int) -> range:
    """Return the rounds of a run after which its links repeat, or all of them."""
    return range(rounds if topology.period is None else min(rounds, topology.period))


def edges_over(topology: Topology, rounds: int) -> list[tuple[int, int]]:
    """Return all pairs that exchange messages in some round of a run, smaller number first."""
    pairs: set[tuple[int, int]] = set()
    for number in rounds_of(topology, rounds):
        for links in topology.at(number):
            place = links.heard.tocoo()
            pairs |= {(min(pair), max(pair)) for pair in zip(place.row.tolist(), place.col.tolist(), strict=True)}
    return sorted(pairs)
