"""Noise that cancels: how much of their own noise agents need where pairs of them share masks, and how large masks should be.

Masks vanish from the agents' average, so less own noise makes the average better; but they stay in the differences between agents
until mixing removes them, so smaller masks make each agent's own model better. For masks of a given size, own noise is the least
that protects every agent as its privacy settings require. The size is chosen by how the rule responds to both on the run's own
graph. See `coalitions` for what protects whom.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import networkx as nx
import numpy as np
from jaxtyping import Float

from tacit.errors import PrivacyError
from tacit.privacy.coalitions import protection
from tacit.privacy.keys import Keys
from tacit.privacy.mechanisms import Masks, Observer

MOST_COMPLETE = 64
"""The most agents of which, by default, all pairs share keys."""
_RATIOS = tuple(2.0 ** (step / 4) for step in range(-12, 25))  # from an eighth to 64
_NEAR = 1.02  # of two ratios that are nearly as good, the smaller is taken
_ENOUGH = 1.06  # times the own noise that would remain with masks of any size: where the rule's response is not known
_STEPS, _CLOSE = 100, 1e-9


@dataclass(frozen=True, kw_only=True)
class Cancelling:
    """Noise of which a part is shared by pairs of agents and cancels when agents are averaged.

    curious: ε holds against any this many other agents who pool what they know. Against everybody else together, only an agent's
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
                f"with {self.curious} curious and {self.lost} lost of {agents} agents nobody honest is left to share masks with; "
                "masks need at least two"
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
    own = np.sqrt(_own_variances(wanted, size**2, keys, removed))
    return Masks(tuple(_round_up(value) for value in own.tolist()), _round_up(size), keys, lost)


def deviations(needed: Sequence[float], keys: Keys, removed: int, response: Response) -> Float[np.ndarray, "ratios 2"]:
    """Return ratios, each with the mean square by which noise moves an agent's model, relative to noise without masks."""
    wanted = np.square(np.asarray(needed, dtype=np.float64))
    mean = float(wanted.mean())
    found = []
    for ratio in _RATIOS:
        own = _own_variances(wanted, ratio**2 * mean, keys, removed)
        deviation = float(own.mean()) * response.own + ratio**2 * mean * response.masks
        found.append((ratio, deviation / (mean * response.own)))
    return np.array(found)


def best_ratio(needed: Sequence[float], keys: Keys, removed: int, response: Response) -> float:
    """Return the ratio at which noise moves an agent's model least; 0 if any masks would move it more."""
    found = deviations(needed, keys, removed, response)
    least = found[:, 1].min()
    if least >= 1:
        return 0.0
    return float(found[np.argmax(found[:, 1] <= min(1.0, least * _NEAR)), 0])


def usual_ratio(needed: Sequence[float], keys: Keys, removed: int) -> float:
    """Return the smallest ratio with hardly more own noise than masks of any size would need, for an unknown rule."""
    wanted = np.square(np.asarray(needed, dtype=np.float64))
    own = [_own_variances(wanted, ratio**2 * float(wanted.mean()), keys, removed).mean() for ratio in _RATIOS]
    return next(ratio for ratio, value in zip(_RATIOS, own, strict=True) if value <= own[-1] * _ENOUGH**2)


def _own_variances(wanted: Float[np.ndarray, " agents"], mask: float, keys: Keys, removed: int) -> np.ndarray:
    """Return the smallest variances of own noise that protect every agent as wanted.

    Newton steps on the agents' protections, which are concave. No agent has less than its share of central noise: with less, others
    would gain nothing, and it would lose all protection against everybody else together.
    """
    least = wanted / keys.agents
    own = wanted.copy()
    for _ in range(_STEPS):
        found = protection(own, mask, keys, removed)
        missing = wanted - found.variances
        free = (own > least) | (missing > 0)
        if (np.abs(missing[free]) <= _CLOSE * wanted[free]).all():
            break
        step = np.zeros_like(own)
        step[free] = np.linalg.lstsq(found.slopes[np.ix_(free, free)], missing[free], rcond=None)[0]
        own = np.clip(own + step, np.maximum(least, own / 4), wanted)
    while ((protection(own, mask, keys, removed).variances < wanted) & (own < wanted)).any():
        own = np.minimum(wanted, own * (1 + 10 * _CLOSE))
    return own


def _round_up(value: float) -> float:
    """Round up to eight digits: readable, and the same on every machine."""
    scale = 10.0 ** (7 - math.floor(math.log10(value)))
    return math.ceil(value * scale * (1 - 1e-15)) / scale
