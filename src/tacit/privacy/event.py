"""What accountants count: an `Event` is a number of queries of one data set, all by one mechanism, or by one of several."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tacit.errors import PrivacyError

_MOST_NOISE, _MOST_QUERIES = 1e9, 10**9
_MOST_CASES = 64

Case = tuple[float, float]
"""A sampling rate q and a noise multiplier σ."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """`count` queries of Poisson lots at `sample_rate` with noise σ = `noise_multiplier`."""

    sample_rate: float
    noise_multiplier: float
    count: int = 1
    otherwise: tuple[Case, ...] = ()
    """Other rates and noises that may have been used instead. Accountants then count the worst case; see `worst_of`."""
    discrete: bool = False
    """Whether noise is discrete Gaussian, of which only Rényi divergences of whole orders are known; see `rounding`."""
    cyclic: bool = False
    """Whether groups of records take turns, so that a record which replaces another may have other turns; see `accounting`."""

    def __post_init__(self) -> None:
        for rate, sigma in self.cases:
            if not 0 < rate <= 1:
                raise PrivacyError(f"sample_rate is {rate}; it must lie in (0, 1]")
            if not 0 < sigma <= _MOST_NOISE:
                raise PrivacyError(f"noise_multiplier is {sigma}; it must lie in (0, {_MOST_NOISE:g}]")
        if not 0 <= self.count <= _MOST_QUERIES:
            raise PrivacyError(f"count is {self.count}; it must lie between 0 and {_MOST_QUERIES}")

    @property
    def cases(self) -> tuple[Case, ...]:
        """All possible pairs of rate and noise."""
        return ((self.sample_rate, self.noise_multiplier), *self.otherwise)

    @staticmethod
    def of(cases: Sequence[Case], count: int, *, discrete: bool = False, cyclic: bool = False) -> "Event":
        """Return `count` queries by one of several mechanisms."""
        (rate, sigma), *otherwise = cases
        return Event(
            sample_rate=rate,
            noise_multiplier=sigma,
            count=count,
            otherwise=tuple(otherwise),
            discrete=discrete,
            cyclic=cyclic,
        )

    def is_near(self, other: "Event", relative: float) -> bool:
        """Return whether it differs from another by no more than this, relatively, in rates and noise, and in nothing else."""
        alike = (self.count, self.discrete, self.cyclic) == (other.count, other.discrete, other.cyclic)
        numbers, others = ([number for case in each.cases for number in case] for each in (self, other))
        return (
            alike
            and len(numbers) == len(others)
            and all(math.isclose(one, another, rel_tol=relative) for one, another in zip(numbers, others, strict=True))
        )

    def dominates(self, other: "Event") -> bool:
        """Return whether it has at least as many queries and, for every case of the other, one with no lower rate and no more noise.

        ε follows from two distributions, with and without the record. A lower rate mixes the first with the second, and more noise
        blurs both: neither makes them easier to distinguish. What is known of discrete noise is also a bound for continuous noise, but not
        the other way round. The same goes for groups that take turns.
        """
        return (
            self.count >= other.count
            and (self.discrete or not other.discrete)
            and (self.cyclic or not other.cyclic)
            and all(any(rate >= of[0] and sigma <= of[1] for rate, sigma in self.cases) for of in other.cases)
        )


def worst_of(events: Iterable[Event]) -> Event:
    """Return one event that counts for at least as much as each of several, any of which may be the true one.

    An accountant gives every query of it the largest δ that any case has, at each ε by itself, and the largest divergence at each
    order. The largest of convex curves is convex, so it is the curve of a mechanism that dominates every case; and composition keeps
    domination (Zhu, Dong & Wang, *Optimal Accounting of Differential Privacy via Characteristic Function*, 2022).
    """
    several = list(events)
    front: list[Case] = []
    for rate, sigma in sorted(
        {case for event in several for case in event.cases}, key=lambda case: (-case[0], case[1])
    ):
        if not front or sigma < front[-1][1]:  # otherwise a higher rate has no more noise
            front.append((rate, sigma))
    step = -(-len(front) // _MOST_CASES)
    groups = [front[start : start + step] for start in range(0, len(front), step)]
    return Event.of(
        [(group[0][0], group[-1][1]) for group in groups],
        max(event.count for event in several),
        discrete=any(event.discrete for event in several),
        cyclic=any(event.cyclic for event in several),
    )
