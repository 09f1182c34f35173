"""Noise that cancels: how much of their own noise agents need where pairs of them share masks, and how large masks should be.

Masks vanish from the agents' average, so less own noise makes the average better; but they stay in the differences between agents
until mixing removes them, so smaller masks make each agent's own model better. For masks of a given size, own noise is the least
that protects every agent as its privacy settings require. The size is chosen by how the rule responds to both on the run's own
graph. See `coalitions` for what protects whom.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import networkx as nx
import numpy as np
from jaxtyping import Float
from scipy.optimize import linprog

from tacit.errors import PrivacyError, refuse_misspelt
from tacit.privacy.accounting import ceil_digits
from tacit.privacy.coalitions import protection
from tacit.privacy.keys import Keys
from tacit.privacy.noise_kinds import Masks
from tacit.privacy.observers import Observer
from tacit.ties import RELATIVE

MOST_COMPLETE = 64
"""The most agents of which, by default, all pairs share keys."""
_RATIOS = tuple(2.0 ** (step / 4) for step in range(-12, 25))  # from an eighth to 64
_LARGE = _RATIOS.index(
    16.0
)  # hardly any key graph needs larger masks, and linear algebra loses twice as many digits as masks have
_NEAR = 1.02  # of two ratios that are nearly as good, the smaller is taken
_ENOUGH = 1.06  # times the own noise that remains with large masks: where the rule's response is not known
_STEPS, _CLOSE = 30, 1e-7  # of Newton's method, and how far from what is wanted it may end
_FINE = 1e-9  # steps of the share by which variances are moved until everybody is protected
_CUTS, _NEARLY = 60, 1e-5
_MOST_CUT = 64  # agents for whom the least noise, or one shared out evenly, is worth searching for
_EVENLY = (
    1.02  # times the average's variance: what may be paid for all to have the same share of the noise that they need
)
_ROUNDING = 1e-12  # of linear algebra; own noise is rounded up by far more
_DIGITS, _ROOM = 5, 1e-8
"""Own noise and masks are rounded up to this many digits, with room for what `Masks.deviations` rounds down. The digits are as few as those of σ: two
processors agree on linear algebra to about nine, and all who share masks need the same plan."""


@refuse_misspelt
@dataclass(frozen=True, kw_only=True)
class Cancelling:
    """Noise of which a part is shared by pairs of agents and cancels when agents are averaged.

    curious: ε holds against any group of this many other agents who pool what they know. Against everybody else together, only an agent's
        own noise counts; that ε is larger, and is always shown too.
    keys: which pairs share a secret: `"complete"` for all, `"graph"` for neighbours, or your own graph.
    ratio: the size of a mask relative to the noise that an agent without masks would need; `"auto"` chooses it for the rule and graph.
    lost: how many agents may leave for good without weakening the ε of the others.
    """

    curious: int = 1
    keys: Literal["complete", "graph"] | nx.Graph = "complete"
    ratio: float | Literal["auto"] = "auto"
    lost: int = 0

    def __post_init__(self) -> None:
        for name, least in (("curious", 0), ("lost", 0)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise PrivacyError(f"{name} is {value!r}; it must be a whole number, at least {least}")
        if isinstance(self.keys, str) and self.keys not in ("complete", "graph"):
            raise PrivacyError(f"keys is {self.keys!r}; give 'complete', 'graph' or a graph of those who share a key")
        if not isinstance(self.keys, str | nx.Graph):
            raise PrivacyError(f"keys is a {type(self.keys).__name__}; give 'complete', 'graph' or a networkx graph")
        if self.ratio != "auto" and not (
            isinstance(self.ratio, int | float) and not isinstance(self.ratio, bool) and 0 < self.ratio <= 1000
        ):
            raise PrivacyError(f"ratio is {self.ratio!r}; it must be a number between 0 and 1000, or 'auto'")

    @property
    def observer(self) -> Observer:
        """Against whom ε holds."""
        return Observer(self.curious)

    def keys_of(self, agents: int, graph: Sequence[tuple[int, int]]) -> Keys:
        """Return the keys of this many agents; `graph` lists the pairs that are neighbours."""
        if isinstance(self.keys, nx.Graph):
            keys = Keys.of(self.keys)
            if keys.agents != agents:
                raise PrivacyError(
                    f"the key graph has {keys.agents} agents and the run {agents}; the numbers must be equal"
                )
        elif self.keys == "complete":
            if agents > MOST_COMPLETE:
                raise PrivacyError(
                    f"among {agents} agents there are {agents * (agents - 1) // 2:,} pairs, each with masks of its own; give keys, such as "
                    "keys='graph' or a graph in which every agent has a few, tacit.graphs.random_regular(agents, 8)"
                )
            keys = Keys(agents)
        else:
            keys = Keys(agents, tuple(sorted({(min(pair), max(pair)) for pair in graph})))
        if self.curious + self.lost >= agents - 1:
            raise PrivacyError(
                f"with {self.curious} curious and {self.lost} lost of {agents} agents, fewer than two honest agents are left to share masks"
            )
        return keys


@dataclass(frozen=True)
class Response:
    """How a rule responds to noise: the mean square deviation of an agent's last model, for unit own noise and for unit masks."""

    own: float
    masks: float


def masks_for(needed: Sequence[float], keys: Keys, removed: int, *, ratio: float, lost: int = 0) -> Masks:
    """Return own noise and masks that protect every agent as well as noise of the `needed` standard deviation would.

    That holds against any `removed` others. Masks are `ratio` times the root mean square of the needed noise.
    """
    wanted = np.square(np.asarray(needed, dtype=np.float64))
    size = ratio * math.sqrt(float(wanted.mean()))
    own = np.sqrt(_own_variances(wanted, size**2, keys, removed, exact=True))
    return Masks(tuple(_round_up(value) for value in own.tolist()), _round_up(size), keys, lost)


def _round_up(value: float) -> float:
    return ceil_digits(value * (1 + _ROOM), _DIGITS)


def best_ratio(needed: Sequence[float], keys: Keys, removed: int, response: Response) -> float:
    """Return the ratio at which noise moves an agent's model least, or a smaller one that is nearly as good; 0 if any masks would move it more.

    Protection is jointly concave in own noise and masks, so the least own noise is convex in b², and so is the mean square by which noise
    moves a model. It is therefore enough to look where it falls and where it rises.
    """
    deviation, lowest = _deviations(needed, keys, removed, response)
    least = deviation(lowest)
    if least >= 1 - RELATIVE:
        return 0.0
    enough = min(1.0, least * _NEAR) * (1 + RELATIVE)
    return _RATIOS[bisect_left(range(lowest), True, key=lambda place: deviation(place) <= enough)]


def least_deviation(needed: Sequence[float], keys: Keys, removed: int, response: Response) -> float:
    """Return the least mean square by which noise moves an agent's model with masks of any size, relative to noise without masks; at most 1."""
    deviation, lowest = _deviations(needed, keys, removed, response)
    return min(1.0, deviation(lowest))


def _deviations(
    needed: Sequence[float], keys: Keys, removed: int, response: Response
) -> tuple[Callable[[int], float], int]:
    """Return the mean square deviation of a model by the place in `_RATIOS`, relative to noise without masks, and where it is least."""
    wanted = np.square(np.asarray(needed, dtype=np.float64))
    own = _own_by_ratio(wanted, keys, removed)

    def deviation(place: int) -> float:
        return own(place) / float(wanted.mean()) + _RATIOS[place] ** 2 * response.masks / response.own

    last = len(_RATIOS) - 1
    return deviation, bisect_left(
        range(last), True, key=lambda place: deviation(place) <= deviation(place + 1) * (1 + RELATIVE)
    )


def usual_ratio(needed: Sequence[float], keys: Keys, removed: int) -> float:
    """Return the smallest ratio with hardly more own noise than large masks leave, for an unknown rule; 0 if none helps."""
    wanted = np.square(np.asarray(needed, dtype=np.float64))
    own, last = _own_by_ratio(wanted, keys, removed), _LARGE
    if own(last) > wanted.mean() * (1 - _NEARLY):
        return 0.0
    return _RATIOS[bisect_left(range(last), True, key=lambda place: own(place) <= own(last) * _ENOUGH**2)]


def _own_by_ratio(wanted: Float[np.ndarray, " agents"], keys: Keys, removed: int) -> Callable[[int], float]:
    """Return a function of the place in `_RATIOS`: the mean variance of own noise that agents then need. It remembers what it found."""

    @cache
    def own(place: int) -> float:
        return float(_own_variances(wanted, _RATIOS[place] ** 2 * float(wanted.mean()), keys, removed).mean())

    return own


def _own_variances(
    wanted: Float[np.ndarray, " agents"], mask: float, keys: Keys, removed: int, *, exact: bool = False
) -> np.ndarray:
    """Return small variances of own noise that protect every agent as wanted; unless `exact`, up to what quick linear algebra loses.

    No agent has less than its share of central noise: with less, others would gain nothing, and it would lose all protection against
    everybody else together. For the same reason, if `exact`, all have the same share of the noise that they need, or shares as close to that
    as costs the average next to nothing.
    """
    own, settled = _by_newton(wanted, mask, keys, removed)
    if not settled and keys.agents <= _MOST_CUT:
        own = _by_cuts(wanted, mask, keys, removed)
    quickly = _protect_all(own, wanted, mask, keys, removed, quick=True)
    if not exact:
        return quickly
    if keys.agents <= _MOST_CUT:
        quickly = _even_out(quickly, wanted, mask, keys, removed)
    return _protect_all(quickly, wanted, mask, keys, removed, quick=False)


def _even_out(
    own: Float[np.ndarray, " agents"], wanted: Float[np.ndarray, " agents"], mask: float, keys: Keys, removed: int
) -> np.ndarray:
    """Return variances of which all agents have the same share of what is wanted, or as nearly the same as costs the average next to nothing.

    Protection is concave in own variances, so whatever is between two that protect everybody does so, too.
    """
    if np.ptp(own / wanted) <= _NEARLY:
        return own
    even = _protect_all(wanted / keys.agents, wanted, mask, keys, removed, quick=True)
    more, most = float(even.sum() - own.sum()), (_EVENLY - 1) * float(own.sum())
    return even if more <= most else own + most / more * (even - own)


def _by_newton(wanted: Float[np.ndarray, " agents"], mask: float, keys: Keys, removed: int) -> tuple[np.ndarray, bool]:
    """Return the variances with which nobody is protected more than wanted, and whether the steps settled there.

    They do not where another coalition becomes the worst at every step, as for agents that differ a little on a ring of keys.
    """
    least = wanted / keys.agents
    own = wanted.copy()
    for _ in range(_STEPS if keys.agents <= _MOST_CUT else _STEPS // 3):
        found = protection(own, mask, keys, removed, quick=True)
        missing = wanted - found.variances
        free = (own > least) | (missing > 0)
        if (np.abs(missing[free]) <= _CLOSE * wanted[free]).all():
            return own, True
        moved = own.copy()
        moved[free] += np.linalg.lstsq(found.slopes[np.ix_(free, free)], missing[free], rcond=None)[0]
        moved[free] = _agreed(moved[free], 34)
        own = np.clip(moved, np.maximum(least, own / 4), wanted)
        own = np.where(own > wanted * (1 - _FINE), wanted, own)  # whom no masks protect needs all of it
    return own, False


def _by_cuts(wanted: Float[np.ndarray, " agents"], mask: float, keys: Keys, removed: int) -> np.ndarray:
    """Return nearly the variances of the least sum that protect everybody as wanted, by Kelley's cutting planes.

    Protection is concave in own noise, so its tangents bound it from above. The least sum under the tangents so far is a linear
    program, and each of its solutions adds the tangents there.
    """
    bounds = list(zip((wanted / keys.agents).tolist(), wanted.tolist(), strict=True))
    own = wanted.copy()
    slopes: list[np.ndarray] = []
    needs: list[np.ndarray] = []
    for _ in range(_CUTS):
        found = protection(own, mask, keys, removed, quick=True)
        if (found.variances >= wanted * (1 - _NEARLY)).all() and slopes:
            break
        slopes.append(_agreed(found.slopes))
        needs.append(_agreed(wanted - found.variances + found.slopes @ own))
        solved = linprog(np.ones(len(own)), A_ub=-np.concatenate(slopes), b_ub=-np.concatenate(needs), bounds=bounds)
        if solved.x is None:
            return wanted.copy()
        own = solved.x
    return own


def _agreed(numbers: np.ndarray, bits: int = 26) -> np.ndarray:
    """Return numbers rounded to this many bits, which processors agree on that differ in the last bits of linear algebra.

    Each step of a search starts from these, as otherwise such bits grow: where several shares of noise cost the average the same, a linear program
    returns one of them by chance.
    """
    mantissas, exponents = np.frexp(numbers)
    return np.ldexp(np.round(mantissas * 2.0**bits) / 2.0**bits, exponents)


def _protect_all(
    own: Float[np.ndarray, " agents"],
    wanted: Float[np.ndarray, " agents"],
    mask: float,
    keys: Keys,
    removed: int,
    *,
    quick: bool,
) -> np.ndarray:
    """Return the variances moved towards the wanted ones, with which masks are not needed, until everybody is protected."""

    def moved(share: float) -> np.ndarray:
        return np.minimum(wanted, own + share * (wanted - own))

    def protects(share: float) -> bool:
        found = protection(moved(share), mask, keys, removed, quick=quick)
        return bool((found.variances >= wanted * (1 - _ROUNDING)).all())

    if protects(0.0):
        return own
    low, high = 0.0, 1.0
    while high - low > max(_FINE, 0.0 if keys.agents <= _MOST_CUT else 0.01 * high):
        middle = math.sqrt(max(low, _FINE / 4) * high)
        low, high = (low, middle) if protects(middle) else (middle, high)
    return moved(high)
