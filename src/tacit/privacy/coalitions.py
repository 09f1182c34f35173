"""How much noise protects an agent from curious agents, where pairs of agents share masks that cancel.

Let a² be the variances of the agents' own noise, b² that of a mask, K the graph of pairs that share masks, and H the agents that are
not curious. The curious ones see every message and know their own masks, so the noise that remains for H has the covariance

    Σ_H = diag(a²) + b²·Lap(K[H])

for each coordinate, and agent i is protected as by Gaussian noise of variance 1/[Σ_H⁻¹]_ii. That number is the effective conductance
between i and the ground of an electrical network in which agent j is connected to the ground by a conductance a_j² and the two ends of a
key by b². This module needs three facts about conductances:

- It is the least of Σ a_j² v_j² + b² Σ (v_j - v_k)² over potentials v with v_i = 1 (Dirichlet). So it is concave in a², its derivative
  by a_j² is v_j², and removing agents can only lower it (Rayleigh).
- Branches that meet in i alone are in parallel: their conductances add up.
- With all neighbours of i curious it is a_i², and never less.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import sparse
from scipy.sparse import linalg

from tacit.errors import PrivacyError
from tacit.privacy.keys import Keys
from tacit.ties import RELATIVE, in_order

_MOST_WORK = 3e9  # multiplications, a few seconds: if all coalitions take more, a bound is used instead

_MOST_DENSE = 200  # agents whose branches are kept as dense matrices
_MOST_AT_ONCE = 2**20  # numbers of coalitions whose keys are taken out together


@lru_cache(maxsize=64)
def _matrix(keys: Keys) -> sparse.csr_array:
    """Return the adjacency matrix of a key graph."""
    rows, columns = np.array(keys.all_pairs, dtype=np.int64).reshape(-1, 2).T
    half = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(keys.agents, keys.agents))
    return sparse.csr_array(half + half.T)


class Protection(NamedTuple):
    """The variance that protects every agent from its worst coalition, and its derivative by a²; of coalitions that are equally bad, by the first.

    In symmetric graphs many are equal but for rounding, and what is searched for by derivatives must not depend on the processor.
    """

    variances: Float[np.ndarray, " agents"]
    slopes: Float[np.ndarray, "agents agents"]


def protection(
    own: Float[np.ndarray, " agents"], mask: float, keys: Keys, curious: int, *, quick: bool = False
) -> Protection:
    """Return how agents with these variances of own noise and of masks are protected from any `curious` others.

    `quick` is for searching: where all coalitions are tried, it removes each from one inverse instead of inverting again, which is a hundred
    times as fast for many agents and may lose some digits. What was found that way is to be checked without it.

    Exact if all coalitions can be tried or the worst is known: for complete keys, for agents all of whose keys the curious may know,
    and for not too many agents. Otherwise a lower bound.
    """
    agents = keys.agents
    if len(own) != agents or not (own > 0).all() or mask < 0 or curious < 0:
        raise PrivacyError("own noise needs a positive variance for each agent, and masks one that is not negative")
    alone = Protection(own.astype(float), np.eye(agents))
    if mask == 0 or curious >= agents - 1:
        return alone
    if keys.pairs is None:
        return _complete(own, mask, curious)
    covered = np.flatnonzero(np.diff(_matrix(keys).indptr) > curious)  # agents with more keys than that
    if not len(covered):
        return alone
    if tries_all(keys, curious):
        found = (_without_each if quick else _all_coalitions)(own, mask, keys, curious)
    else:
        found = _branches(own, mask, keys, curious, covered)
    variances, slopes = alone.variances.copy(), alone.slopes.copy()
    variances[covered], slopes[covered] = found.variances[covered], found.slopes[covered]
    return Protection(variances, slopes)


def tries_all(keys: Keys, curious: int) -> bool:
    """Return whether `protection` goes through all coalitions of this many agents: for keys that are not complete, and not too many agents."""
    return keys.pairs is not None and comb(keys.agents, curious) * keys.agents**3 <= _MOST_WORK


def _complete(own: Float[np.ndarray, " agents"], mask: float, curious: int) -> Protection:
    """Complete keys: Σ_H is diagonal plus a matrix of rank one.

    With d_j = a_j² + b²|H|, [Σ_H⁻¹]_ii = 1/d_i + b²/(d_i²(1 - b² Σ_H 1/d_j)). It grows with Σ_H 1/d_j, so of all coalitions of one size
    the worst for i is the one with the noisiest others.
    """
    agents = len(own)
    honest = agents - curious
    loudest = np.asarray(in_order(own, descending=True))
    variances, slopes = np.empty(agents), np.zeros((agents, agents))
    for agent in range(agents):
        left = np.setdiff1d(np.arange(agents), loudest[loudest != agent][:curious])
        inverse = 1 / (own[left] + mask * honest)
        # 1 - b² Σ 1/d, without subtracting nearly equal numbers
        rest = float((own[left] * inverse).sum()) / honest
        place = int(np.searchsorted(left, agent))
        column = mask * inverse * inverse[place] / rest
        column[place] += inverse[place]
        variances[agent] = 1 / column[place]
        slopes[agent, left] = (column / column[place]) ** 2
    return Protection(variances, slopes)


def _all_coalitions(own: Float[np.ndarray, " agents"], mask: float, keys: Keys, curious: int) -> Protection:
    agents, adjacency = keys.agents, _matrix(keys).toarray()
    variances, slopes = np.full(agents, np.inf), np.zeros((agents, agents))
    for coalition in combinations(range(agents), curious):
        honest = np.setdiff1d(np.arange(agents), coalition)
        inverse = np.linalg.inv(_covariance(own[honest], mask, adjacency[np.ix_(honest, honest)]))
        found = 1 / inverse.diagonal()
        for place in np.flatnonzero(found < variances[honest]):
            agent = honest[place]
            if found[place] < variances[agent] * (1 - RELATIVE):
                slopes[agent] = 0
                slopes[agent, honest] = (inverse[place] * found[place]) ** 2
            variances[agent] = found[place]
    return Protection(variances, slopes)


def _without_each(own: Float[np.ndarray, " agents"], mask: float, keys: Keys, curious: int) -> Protection:
    """All coalitions, by taking their keys out of the inverse for all agents: Σ' = Σ - b²·UUᵀ, a column of U for each key (Woodbury).

    Agents without keys stay in Σ' and no longer matter to the others.
    """
    agents = keys.agents
    inverse = np.linalg.inv(_covariance(own, mask, _matrix(keys).toarray()))
    variances, slopes = np.full(agents, np.inf), np.zeros((agents, agents))
    worst: list[_Removed | None] = [None] * agents
    for some in _alike(keys, curious):
        # PU for every coalition, and b²(I - b²UᵀPU)⁻¹UᵀP: their product is what the removal adds to the inverse P.
        ends = np.moveaxis(inverse[:, some.low] - inverse[:, some.high], 1, 0)
        rows = np.arange(len(ends))[:, None]
        inner = np.eye(some.low.shape[1]) - mask * (ends[rows, some.low] - ends[rows, some.high])
        weights = mask * np.linalg.solve(inner, np.swapaxes(ends, 1, 2))
        added = np.einsum("cnk,ckn->cn", ends, weights)
        found = 1 / np.maximum(inverse.diagonal() + added, 1e-300)
        found[rows, some.members] = np.inf
        least = found.min(axis=0)
        best = (found <= least * (1 + RELATIVE)).argmax(axis=0)
        for agent in np.flatnonzero(least < variances * (1 - RELATIVE)).tolist():
            place = int(best[agent])
            worst[agent] = _Removed(some.members[place], ends[place, agent].copy(), weights[place].copy())
        variances = np.minimum(variances, least)
    for agent, removed in enumerate(worst):
        if removed is not None:
            column = inverse[agent] + removed.ends @ removed.weights
            slopes[agent] = (column / column[agent]) ** 2
            slopes[agent, removed.members] = 0
    return Protection(variances, slopes)


class _Removed(NamedTuple):
    """A coalition, and what its removal adds to one row of the inverse: the product of the two."""

    members: np.ndarray
    ends: np.ndarray
    weights: np.ndarray


class _Alike(NamedTuple):
    """Coalitions with equally many keys, and the two ends of each key."""

    members: np.ndarray
    low: np.ndarray
    high: np.ndarray


@lru_cache(maxsize=2)
def _alike(keys: Keys, curious: int) -> list[_Alike]:
    """Return all coalitions of this many agents, those with the same number of keys together, a few at a time."""
    by_number: dict[int, list[tuple[tuple[int, ...], list[tuple[int, int]]]]] = {}
    for coalition in combinations(range(keys.agents), curious):
        pairs = sorted({pair for agent in coalition for pair in keys.by_agent[agent]})
        by_number.setdefault(len(pairs), []).append((coalition, pairs))
    found = []
    for number, those in by_number.items():
        at_once = max(1, _MOST_AT_ONCE // (keys.agents * max(1, number)))
        for first in range(0, len(those), at_once):
            part = those[first : first + at_once]
            ends = np.array([pairs for _, pairs in part], dtype=np.int64).reshape(len(part), number, 2)
            members = np.array([members for members, _ in part], dtype=np.int64).reshape(len(part), curious)
            found.append(_Alike(members, ends[:, :, 0], ends[:, :, 1]))
    return found


class _Branch(NamedTuple):
    """A branch that meets the others in one agent: its members, their Laplacian, and who has a key to that agent."""

    members: np.ndarray
    laplacian: np.ndarray
    joined: np.ndarray


@lru_cache(maxsize=2)
def _dense_branches(keys: Keys) -> dict[int, list[_Branch]]:
    """Return the branches of every agent; only for a moderate number of agents, as all of them are kept."""
    adjacency = _matrix(keys)
    dense = adjacency.toarray()
    return {
        agent: [
            _Branch(
                members,
                _covariance(np.zeros(len(members)), 1.0, dense[np.ix_(members, members)]),
                dense[agent, members],
            )
            for members in _branches_of(adjacency, agent)
        ]
        for agent in range(keys.agents)
    }


_Part = tuple[float, np.ndarray, np.ndarray]
"""A branch: its conductance, its members, and their potentials."""


def _branches(own: Float[np.ndarray, " agents"], mask: float, keys: Keys, curious: int, some: np.ndarray) -> Protection:
    """A bound for many agents: a curious agent can spoil one of the branches that meet in i, at worst the best one."""
    variances, slopes = own.astype(float), np.eye(keys.agents)
    parts_of = _dense_parts if keys.agents <= _MOST_DENSE else _sparse_parts
    for agent in some:
        parts = list(parts_of(own, mask, keys, int(agent)))
        for place in in_order(part[0] for part in parts)[: len(parts) - curious]:
            conductance, members, potentials = parts[place]
            variances[agent] += conductance
            slopes[agent, members] = potentials**2
    return Protection(variances, slopes)


# One end of the key to the agent is in the branch: seen from there, it is one more way to the ground.


def _dense_parts(own: Float[np.ndarray, " agents"], mask: float, keys: Keys, agent: int) -> Iterator[_Part]:
    for members, laplacian, joined in _dense_branches(keys)[agent]:
        potentials = np.linalg.solve(np.diag(own[members] + mask * joined) + mask * laplacian, mask * joined)
        yield float((mask * joined * (1 - potentials)).sum()), members, potentials


def _sparse_parts(own: Float[np.ndarray, " agents"], mask: float, keys: Keys, agent: int) -> Iterator[_Part]:
    adjacency = _matrix(keys)
    for members in _branches_of(adjacency, agent):
        within = adjacency[members][:, members]
        joined = mask * (adjacency[[agent]][:, members].toarray().ravel() > 0)
        matrix = sparse.csc_array(sparse.diags_array(own[members] + joined + mask * within.sum(axis=1)) - mask * within)
        potentials = linalg.spsolve(matrix, joined)
        yield float((joined * (1 - potentials)).sum()), members, potentials


def _branches_of(adjacency: sparse.csr_array, agent: int) -> list[np.ndarray]:
    """Divide all agents that can be reached from one among its neighbours, each to a nearest neighbour."""
    branch = np.full(adjacency.shape[0], -1)
    branch[agent] = agent
    border = adjacency.indices[adjacency.indptr[agent] : adjacency.indptr[agent + 1]].tolist()
    branch[border] = border
    while border:
        after = []
        for node in border:
            for near in adjacency.indices[adjacency.indptr[node] : adjacency.indptr[node + 1]]:
                if branch[near] < 0:
                    branch[near] = branch[node]
                    after.append(int(near))
        border = after
    branch[agent] = -1
    return [np.flatnonzero(branch == number) for number in np.unique(branch[branch >= 0])]


def _covariance(own: Float[np.ndarray, " some"], mask: float, adjacency: Float[np.ndarray, "some some"]) -> np.ndarray:
    return np.diag(own + mask * adjacency.sum(axis=1)) - mask * adjacency
