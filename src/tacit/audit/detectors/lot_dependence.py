"""Whether draws are independent: how often two of them coincide, between rounds, records and agents.

Each test counts pairs of draws in which both are in. The pairs of one count share no draw, so they are independent, each with
probability q·q', and the count varies at most as much as a binomial one of the same mean: P(share ≥ x) ≤ exp(-n·KL(x‖q·q')), and the
same below (Chernoff; Hoeffding 1963 for unequal rates). Where pairs form chains, r with r+d with r+2d, only every other link counts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import rel_entr

from tacit.ties import first_largest

_MOST_IN_PAIRS = 1024  # records of which every pair is counted
_MOST_PAIRS = 20_000_000  # pairs of drawn records that are sorted by distance


@dataclass(frozen=True, kw_only=True, eq=False)
class Sampled:
    """Membership as numbers, for every agent, with its rate."""

    members: tuple[Float[np.ndarray, "queries visible"], ...]
    rates: tuple[float, ...]

    @staticmethod
    def of(members: Sequence[Bool[np.ndarray, "queries visible"]], rates: Sequence[float]) -> "Sampled":
        """Convert lots that were read."""
        return Sampled(members=tuple(each.astype(np.float32) for each in members), rates=tuple(rates))


@dataclass(frozen=True, kw_only=True)
class Coincidence:
    """The least probable of several counts. The p-value is multiplied by their number.

    never, always: the p-values, multiplied likewise, if the pairs of one count were never drawn together, or always.
    """

    p_value: float
    never: float
    always: float
    tests: int
    count: int
    expected: float
    where: str


class _Counts:
    """Counts of coincidences, each with its number of pairs and their mean probability."""

    def __init__(self) -> None:
        self._kinds: list[list[np.ndarray]] = [[np.zeros(0)] * 3]
        self._labels: list[tuple[str, Sequence[int] | np.ndarray]] = [("none", ())]

    def add(
        self,
        label: str,
        places: Sequence[int] | np.ndarray,
        counts: np.ndarray,
        pairs: int | np.ndarray,
        chance: float | np.ndarray,
    ) -> None:
        """Add counts of one kind; `label` has placeholders for what each count is about: a lag, or two lots or records."""
        self._labels.append((label, places))
        self._kinds.append([np.asarray(each, dtype=float) for each in np.broadcast_arrays(counts, pairs, chance)])

    def least(self) -> Coincidence:
        """Return the least probable count."""
        counts, pairs, chances = map(np.concatenate, zip(*self._kinds, strict=True))
        tests = int((pairs > 0).sum())
        if tests == 0:
            return Coincidence(p_value=1.0, never=1.0, always=1.0, tests=0, count=0, expected=0.0, where="none")
        exponents = np.where(pairs > 0, _exponent(counts / np.maximum(pairs, 1), chances, pairs), -1.0)
        best = first_largest(exponents, scale=1.0)
        ends = np.cumsum([len(kind[0]) for kind in self._kinds])
        kind = int(np.searchsorted(ends, best, side="right"))
        label, places = self._labels[kind]

        def p_value(exponents: np.ndarray) -> float:
            return float(min(1.0, 2 * tests * np.exp(-exponents.max())))

        return Coincidence(
            p_value=p_value(exponents),
            never=p_value(_exponent(np.zeros_like(chances), chances, pairs)),
            always=p_value(_exponent(np.sqrt(chances), chances, pairs)),
            tests=tests,
            count=int(counts[best]),
            expected=float(pairs[best] * chances[best]),
            where=label.format(*np.atleast_1d(places[best - int(ends[kind]) + len(self._kinds[kind][0])])),
        )


def between_rounds(sampled: Sampled) -> Coincidence:
    """Count records drawn in two lots a number of rounds apart, in all agents together and in each."""
    found, grams = _Counts(), [each @ each.T for each in sampled.members]
    lags = range(1, len(grams[0]))
    chances = np.array(sampled.rates)[:, None] ** 2
    for first in (0, 1):
        per_agent = np.array([[_links(gram, lag, first) for lag in lags] for gram in grams])
        steps = np.array([_links(np.ones_like(grams[0]), lag, first) for lag in lags])
        pairs = np.array([steps * each.shape[1] for each in sampled.members])
        total = pairs.sum(axis=0)
        mean = (pairs * chances).sum(axis=0) / np.maximum(total, 1)
        found.add("{} rounds apart", lags, per_agent.sum(axis=0), total, mean)
        for agent, counts in enumerate(per_agent if len(grams) > 1 else ()):
            found.add(f"{{}} rounds apart, agent {agent}", lags, counts, pairs[agent], float(chances[agent, 0]))
    return found.least()


def between_two_lots(sampled: Sampled) -> Coincidence:
    """Count the records that two lots of an agent share, for every two."""
    return _between_any_two(sampled, "lots", lambda members: members)


def between_two_records(sampled: Sampled) -> Coincidence:
    """Count the lots that contain both of two records, for every two among the first records of each agent."""
    return _between_any_two(sampled, "records", lambda members: members[:, :_MOST_IN_PAIRS].T)


def _between_any_two(sampled: Sampled, name: str, rows: Callable[[np.ndarray], np.ndarray]) -> Coincidence:
    found = _Counts()
    for agent, (members, rate) in enumerate(zip(sampled.members, sampled.rates, strict=True)):
        each = rows(members)
        two = np.triu_indices(len(each), 1)
        label = f"{name} {{}} and {{}} of agent {agent}"
        found.add(label, np.transpose(two), (each @ each.T)[two], each.shape[1], rate**2)
    return found.least()


def between_records(sampled: Sampled) -> Coincidence:
    """Count pairs of records a number of positions apart that are in one lot, over all lots of all agents."""
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
            distance = high - low
            chain = low // np.maximum(distance, 1) % 2
            counts += np.bincount(chain * longest + distance, minlength=2 * longest).reshape(2, longest)
        for chain in (0, 1):
            here = np.where(distances < visible, _chained(visible, distances, chain), 0) * used
            pairs[chain, 1:] += here
            expected[chain, 1:] += here * rate**2
    found = _Counts()
    for chain in (0, 1):
        chances = expected[chain, 1:] / np.maximum(pairs[chain, 1:], 1)
        found.add("{} positions apart", distances, counts[chain, 1:], pairs[chain, 1:], chances)
    return found.least()


def between_agents(sampled: Sampled) -> Coincidence:
    """Count positions that two agents both draw, in one round or a number of rounds apart."""
    found = _Counts()
    for one, other in combinations(range(len(sampled.members)), 2):
        first, second = sampled.members[one], sampled.members[other]
        positions = min(first.shape[1], second.shape[1])
        gram = first[:, :positions] @ second[:, :positions].T
        lags = range(1 - len(gram), len(gram))
        counts = np.array([np.trace(gram, lag) for lag in lags])
        pairs = np.array([(len(gram) - abs(lag)) * positions for lag in lags])
        chance = sampled.rates[one] * sampled.rates[other]
        found.add(f"agents {one} and {other}, {{}} rounds apart", np.abs(lags), counts, pairs, chance)
    return found.least()


def _links(gram: np.ndarray, lag: int, first: int) -> float:
    """Sum a diagonal over every other link of each chain r, r + lag, r + 2·lag."""
    diagonal = np.diagonal(gram, lag)
    chosen = np.arange(len(diagonal)) // lag % 2 == first
    return float(diagonal[chosen].sum())


def _chained(visible: int, distances: np.ndarray, chain: int) -> np.ndarray:
    """Count indices i < visible - s with ⌊i/s⌋ even, or odd, for every s."""
    count = visible - distances
    whole, rest = count // (2 * distances), count % (2 * distances)
    even = whole * distances + np.minimum(rest, distances)
    return np.asarray(even if chain == 0 else count - even)


def _exponent(share: np.ndarray, chance: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Return n·KL(share‖chance)."""
    return np.asarray(pairs * (rel_entr(share, chance) + rel_entr(1 - share, 1 - chance)))
