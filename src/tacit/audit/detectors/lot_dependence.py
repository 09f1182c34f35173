"""Whether draws are independent: how often two of them coincide, between rounds, records and agents.

Each test counts pairs of draws in which both are in. The pairs of one count share no draw, so they are independent, each with
probability q·q', and the count is at most as spread as a binomial one of the same mean: P(share ≥ x) ≤ exp(-n·KL(x‖q·q')), and the
same below (Chernoff; Hoeffding 1963 for unequal rates). Where pairs form chains, r with r+d with r+2d, every other link is taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import rel_entr

_MOST_IN_PAIRS = 1024  # records of which every pair is looked at
_MOST_PAIRS = 20_000_000  # of drawn records, to be sorted by distance


@dataclass(frozen=True, kw_only=True, eq=False)
class Sampled:
    """Membership as numbers, for every agent, with its rate."""

    members: tuple[Float[np.ndarray, "queries visible"], ...]
    rates: tuple[float, ...]

    @staticmethod
    def of(members: Sequence[Bool[np.ndarray, "queries visible"]], rates: Sequence[float]) -> "Sampled":
        """Take what was read."""
        return Sampled(members=tuple(each.astype(np.float32) for each in members), rates=tuple(rates))


@dataclass(frozen=True, kw_only=True)
class Coincidence:
    """The least probable of several counts. The p-value is multiplied by how many there are.

    never, always: the p-values, so multiplied, if the pairs of one count were never drawn together, or always.
    """

    p_value: float
    never: float
    always: float
    tests: int
    count: int
    expected: float
    where: str


class _Counts:
    """Collects counts with the number of pairs and their mean chance, and finds the least probable."""

    def __init__(self) -> None:
        self._counts: list[np.ndarray] = []
        self._pairs: list[np.ndarray] = []
        self._chances: list[np.ndarray] = []
        self._words: list[str] = []
        self._firsts: list[int] = []

    def add(
        self, words: str, counts: np.ndarray, pairs: np.ndarray, chance: float | np.ndarray, first: int = 1
    ) -> None:
        """Add counts of one kind; `words` has a place for the number of the count, from `first` on."""
        self._counts.append(np.asarray(counts, dtype=float))
        self._pairs.append(np.broadcast_to(np.asarray(pairs, dtype=float), self._counts[-1].shape))
        self._chances.append(np.broadcast_to(np.asarray(chance, dtype=float), self._counts[-1].shape))
        self._words.append(words)
        self._firsts.append(first)

    def least(self) -> Coincidence:
        tests = sum(int((pairs > 0).sum()) for pairs in self._pairs)
        best: tuple[float, int, int] = (-1.0, 0, 0)
        never = always = 0.0
        for kind, (counts, pairs, chance) in enumerate(zip(self._counts, self._pairs, self._chances, strict=True)):
            if not counts.size:
                continue
            total = np.maximum(pairs, 1)
            exponents = np.where(pairs > 0, _exponent(counts / total, chance, pairs), -1.0)
            never = max(never, float(_exponent(np.zeros_like(total), chance, pairs).max()))
            always = max(always, float(_exponent(np.sqrt(chance), chance, pairs).max()))
            place = int(exponents.argmax())
            if exponents.flat[place] > best[0]:
                best = (float(exponents.flat[place]), kind, place)
        if tests == 0:
            return Coincidence(p_value=1.0, never=1.0, always=1.0, tests=0, count=0, expected=0.0, where="none")
        exponent, kind, place = best

        def p_value(exponent: float) -> float:
            return float(min(1.0, 2 * tests * np.exp(-exponent)))

        return Coincidence(
            p_value=p_value(exponent),
            never=p_value(never),
            always=p_value(always),
            tests=tests,
            count=int(self._counts[kind].flat[place]),
            expected=float(self._pairs[kind].flat[place] * self._chances[kind].flat[place]),
            where=self._words[kind].format(place + self._firsts[kind]),
        )


def between_rounds(sampled: Sampled) -> Coincidence:
    """Count records that are drawn in two lots so many rounds apart, in all agents together and in each."""
    found, grams = _Counts(), [each @ each.T for each in sampled.members]
    queries = len(grams[0])
    lags = range(1, queries)
    for first in (0, 1):
        per_agent = np.array([[_links(gram, lag, first) for lag in lags] for gram in grams])
        steps = np.array([_links(np.ones_like(grams[0]), lag, first) for lag in lags])
        pairs = np.array([steps * each.shape[1] for each in sampled.members])
        chances = np.array(sampled.rates)[:, None] ** 2
        total = pairs.sum(axis=0)
        found.add("{} rounds apart", per_agent.sum(axis=0), total, (pairs * chances).sum(axis=0) / np.maximum(total, 1))
        if len(grams) > 1:
            for agent, counts in enumerate(per_agent):
                found.add(f"{{}} rounds apart, agent {agent}", counts, pairs[agent], float(chances[agent, 0]))
    return found.least()


def between_two_lots(sampled: Sampled) -> Coincidence:
    """Count what any two lots of an agent have in common."""
    found = _Counts()
    for agent, (members, rate) in enumerate(zip(sampled.members, sampled.rates, strict=True)):
        gram = members @ members.T
        upper = np.triu_indices(len(gram), 1)
        found.add(f"pair {{}} of lots, agent {agent}", gram[upper], np.array(members.shape[1]), rate**2)
    return found.least()


def between_records(sampled: Sampled) -> Coincidence:
    """Count pairs of records so many places apart that are in one lot, over all lots of all agents."""
    longest = max(each.shape[1] for each in sampled.members)
    counts, pairs, expected = (np.zeros((2, longest)) for _ in range(3))
    distances = np.arange(1, longest)
    for members, rate in zip(sampled.members, sampled.rates, strict=True):
        visible, left = members.shape[1], _MOST_PAIRS // len(sampled.members)
        used = 0
        for lot in members:
            drawn = np.flatnonzero(lot)
            if (left := left - len(drawn) ** 2 // 2) < 0:
                break
            used += 1
            low, high = (drawn[index] for index in np.triu_indices(len(drawn), 1))
            apart = high - low
            chain = low // np.maximum(apart, 1) % 2
            counts += np.bincount(chain * longest + apart, minlength=2 * longest).reshape(2, longest)
        for chain in (0, 1):
            here = np.where(distances < visible, _chained(visible, distances, chain), 0) * used
            pairs[chain, 1:] += here
            expected[chain, 1:] += here * rate**2
    found = _Counts()
    for chain in (0, 1):
        chances = expected[chain, 1:] / np.maximum(pairs[chain, 1:], 1)
        found.add("{} places apart", counts[chain, 1:], pairs[chain, 1:], chances)
    return found.least()


def between_two_records(sampled: Sampled) -> Coincidence:
    """Count the lots that have both of two records, for every pair among the first records of each agent."""
    found = _Counts()
    for agent, (members, rate) in enumerate(zip(sampled.members, sampled.rates, strict=True)):
        few = members[:, :_MOST_IN_PAIRS]
        gram = few.T @ few
        upper = np.triu_indices(len(gram), 1)
        found.add(f"pair {{}} of records, agent {agent}", gram[upper], np.array(len(few)), rate**2)
    return found.least()


def between_agents(sampled: Sampled) -> Coincidence:
    """Count places that two agents both draw, in one round or so many rounds apart."""
    found = _Counts()
    for one, other in combinations(range(len(sampled.members)), 2):
        first, second = sampled.members[one], sampled.members[other]
        places = min(first.shape[1], second.shape[1])
        gram = first[:, :places] @ second[:, :places].T
        lags = range(1 - len(gram), len(gram))
        counts = np.array([np.trace(gram, lag) for lag in lags])
        pairs = np.array([(len(gram) - abs(lag)) * places for lag in lags])
        chance = sampled.rates[one] * sampled.rates[other]
        found.add(f"agents {one} and {other}, {{}} rounds apart", counts, pairs, chance, first=1 - len(gram))
    return found.least()


def _links(gram: np.ndarray, lag: int, first: int) -> float:
    """Add up a diagonal, every other link of each chain r, r + lag, r + 2·lag."""
    diagonal = np.diagonal(gram, lag)
    chosen = np.arange(len(diagonal)) // lag % 2 == first
    return float(diagonal[chosen].sum())


def _chained(visible: int, distances: np.ndarray, chain: int) -> np.ndarray:
    """Count places i < visible - s with ⌊i/s⌋ even, or odd, for every s."""
    places = visible - distances
    whole, rest = places // (2 * distances), places % (2 * distances)
    even = whole * distances + np.minimum(rest, distances)
    return np.asarray(even if chain == 0 else places - even)


def _exponent(share: np.ndarray, chance: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Return n·KL(share‖chance)."""
    return np.asarray(pairs * (rel_entr(share, chance) + rel_entr(1 - share, 1 - chance)))
