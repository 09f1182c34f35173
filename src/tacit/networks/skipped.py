"""Links that some rounds do not use: both ends take the weight of a skipped link themselves, so that weights stay symmetric and doubly
stochastic. A peer does this for its own links; a simulation that repeats a peers' run does it for all of them."""

from collections.abc import Collection, Mapping

import numpy as np
from scipy import sparse

from tacit.errors import GraphError
from tacit.networks.topology import Links, Topology

Pair = tuple[int, int]


def skip_links(links: Links, pairs: Collection[Pair]) -> Links:
    """Return links without these pairs, smaller number first. An agent adds the weights that return to it by ascending number."""
    if not pairs:
        return links
    if not links.symmetric:
        raise GraphError(
            "a link can be skipped by both ends only where they weigh each other equally; give symmetric weights"
        )
    weights, heard = _with_own_weights(links.weights), links.heard.copy()
    for low, high in sorted(pairs):
        for own, other in ((low, high), (high, low)):
            if (place := _place(weights, own, other)) is not None:
                weights.data[_place(weights, own, own)] += weights.data[place]
                weights.data[place] = 0
            if (place := _place(heard, own, other)) is not None:
                heard.data[place] = 0
    weights.eliminate_zeros()
    heard.eliminate_zeros()
    return Links.of(weights, heard)


def _with_own_weights(weights: sparse.csr_array) -> sparse.csr_array:
    """Return the same weights with a place for every agent's own one, even where it is zero."""
    stored, own = weights.tocoo(), np.arange(weights.shape[0])
    rows, columns = np.concatenate([stored.row, own]), np.concatenate([stored.col, own])
    made = sparse.csr_array((np.concatenate([stored.data, np.zeros(len(own))]), (rows, columns)), shape=weights.shape)
    made.sort_indices()
    return made


def _place(matrix: sparse.csr_array, row: int, column: int) -> int | None:
    """Return where an entry of a matrix with sorted columns is stored, if it is."""
    first, last = matrix.indptr[row], matrix.indptr[row + 1]
    place = first + int(matrix.indices[first:last].searchsorted(column))
    return int(place) if place < last and matrix.indices[place] == column else None


class WithSkips:
    """A topology whose rounds skip some links: `skipped` has the pairs of each exchange of each round, for those that skip any."""

    period = None

    def __init__(self, inner: Topology, skipped: Mapping[tuple[int, int], Collection[Pair]]) -> None:
        self._inner, self._skipped = inner, {key: frozenset(pairs) for key, pairs in skipped.items()}
        # Among this many disjoint windows there is one without a round that skips a link.
        self.agents, self.window = inner.agents, inner.window * (1 + len({round for round, _ in self._skipped}))
        self._made: dict[tuple[int, frozenset[Pair]], tuple[Links, Links]] = {}

    def at(self, round: int) -> tuple[Links, ...]:
        """Return the links that a round uses."""
        return tuple(
            self._without(links, self._skipped.get((round, exchange), frozenset()))
            for exchange, links in enumerate(self._inner.at(round))
        )

    def _without(self, links: Links, pairs: frozenset[Pair]) -> Links:
        key = id(links), pairs
        if key not in self._made:
            self._made[key] = links, skip_links(links, pairs)  # the first is kept, so that no other can have its number
        return self._made[key][1]
