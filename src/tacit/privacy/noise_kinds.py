"""Kinds of noise as frozen data: Gaussian, discrete, with masks that cancel between agents, votes of teachers, or none.

Each reads itself back from JSON; an unknown kind is refused.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from tacit.errors import PrivacyError
from tacit.privacy.event import Event
from tacit.privacy.keys import Keys
from tacit.privacy.observers import Observer
from tacit.privacy.rounding import Discrete
from tacit.privacy.votes import FIELDS, Votes


@dataclass(frozen=True, kw_only=True)
class Gaussian:
    """Normal noise of `multiplier` times the clipping norm on every coordinate of the sum, fresh for every query."""

    kind: ClassVar[str] = "gaussian"
    multiplier: float

    def __post_init__(self) -> None:
        Event(sample_rate=1.0, noise_multiplier=self.multiplier)  # refuses an invalid multiplier


@dataclass(frozen=True, kw_only=True)
class DiscreteGaussian:
    """Records' vectors rounded to a grid, and discrete Gaussian noise of `multiplier` times the largest length that they then have."""

    kind: ClassVar[str] = "discrete"
    multiplier: float
    bits: int
    room: float

    def __post_init__(self) -> None:
        Event(sample_rate=1.0, noise_multiplier=self.multiplier)
        if self.rounding.room is None:
            raise PrivacyError("discrete noise covers rounding by `room`, which is missing")

    @property
    def rounding(self) -> Discrete:
        """How vectors are rounded."""
        return Discrete(self.bits, self.room)

    def steps(self, clip: float) -> float:
        """Return the standard deviation of noise in steps of the grid, rounded up: it must not be less than what is charged."""
        bound = math.nextafter(self.rounding.bound(clip), math.inf)
        return math.nextafter(self.multiplier * bound, math.inf) / self.rounding.step(clip)


_MOST_RATIO = 1e3
"""The largest ratio of a mask to an agent's own noise: linear algebra loses twice as many digits."""


@dataclass(frozen=True)
class Masks:
    """The noise of all agents where pairs share masks: each agent's own noise, and the masks. Everything but the drawn values is public.

    own: the standard deviation of every agent's own noise, in units of its answer.
    size: the standard deviation of a mask, in the same units, for both of its ends.
    keys: which pairs share masks.
    lost: how many agents may leave for good, after which nobody shares masks with them; they count as curious.
    """

    own: tuple[float, ...]
    size: float
    keys: Keys
    lost: int = 0

    def __post_init__(self) -> None:
        if len(self.own) != self.keys.agents or not all(0 < each < math.inf for each in self.own):
            raise PrivacyError(f"own noise must be a positive number for each of {self.keys.agents} agents")
        if not 0 < self.size < math.inf:
            raise PrivacyError(f"the size of masks is {self.size}; it must be positive and finite")
        if self.size > _MOST_RATIO * min(self.own):
            raise PrivacyError(
                f"masks are up to {self.size / min(self.own):.2g} times as large as an agent's own noise; beyond {_MOST_RATIO:g} times, how "
                "they protect cannot be computed exactly. Use a smaller ratio, or lots and clips that differ less"
            )
        if type(self.lost) is not int or not 0 <= self.lost < self.keys.agents:
            raise PrivacyError(
                f"lost is {self.lost!r}; it must be a whole number below {self.keys.agents}, the number of agents"
            )

    def deviations(self, observer: Observer) -> tuple[float, ...]:
        """Return the standard deviation of the noise that protects each agent from an observer."""
        everybody = self.keys.agents - 1
        curious = everybody if observer.curious is None else min(everybody, observer.curious + self.lost)
        return _deviations(self, curious)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        pairs = None if self.keys.pairs is None else [list(pair) for pair in self.keys.pairs]
        return {"own": list(self.own), "size": self.size, "agents": self.keys.agents, "keys": pairs, "lost": self.lost}

    @staticmethod
    def of_json(document: Any) -> "Masks":
        """Read plain data back; anything else is an error."""
        parts = read_fields("masks", document, ("own", "size", "agents", "keys", "lost"))
        own, pairs = parts["own"], parts["keys"]
        if type(own) is not list or type(parts["agents"]) is not int or not (pairs is None or type(pairs) is list):
            raise PrivacyError(f"masks have every agent's own noise, the number of agents and their keys, not {parts}")
        if any(type(pair) is not list or len(pair) != 2 or {*map(type, pair)} != {int} for pair in pairs or ()):
            raise PrivacyError("a key is shared by a pair of agents, named by their numbers")
        keys = Keys(parts["agents"], None if pairs is None else tuple((low, high) for low, high in pairs))
        deviations = tuple(read_number("own", {"own": each}) for each in own)
        return Masks(deviations, read_number("size", parts), keys, parts["lost"])


@lru_cache(maxsize=1024)
def _deviations(masks: Masks, curious: int) -> tuple[float, ...]:
    # Imported here: listing and reading ledgers needs no linear algebra.
    import numpy as np

    from tacit.privacy.coalitions import protection

    variances = protection(np.square(masks.own), masks.size**2, masks.keys, curious).variances.tolist()
    # Rounded down, by far more than the error of linear algebra and of the two ends' rounding of a mask's size.
    return tuple(round_down(math.sqrt(value)) for value in variances)


def round_down(value: float) -> float:
    """Round a standard deviation down to ten digits: what protects is never stated as more than it is."""
    scale = 10.0 ** (9 - math.floor(math.log10(value)))
    return math.floor(value * scale * (1 - 1e-9)) / scale


@dataclass(frozen=True, kw_only=True)
class Masked:
    """Normal noise as in `Gaussian`, and masks that cancel between agents; `agent` is this agent's number."""

    kind: ClassVar[str] = "cancelling"
    multiplier: float
    agent: int
    masks: Masks

    def __post_init__(self) -> None:
        Event(sample_rate=1.0, noise_multiplier=self.multiplier)
        if type(self.agent) is not int or not 0 <= self.agent < self.masks.keys.agents:
            raise PrivacyError(f"agent {self.agent!r} is not among the {self.masks.keys.agents} that share masks")


@dataclass(frozen=True, kw_only=True)
class NoNoise:
    """No noise, and so no privacy."""

    kind: ClassVar[str] = "none"


NoiseKind = Gaussian | Masked | DiscreteGaussian | Votes | NoNoise


def noise_of_json(document: Any, masks: Masks | None) -> NoiseKind:
    """Read a kind of noise back from plain data; `masks` are those of its account."""
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind == NoNoise.kind:
        read_fields("noise", document, ("kind",))
        return NoNoise()
    if kind == Gaussian.kind:
        return Gaussian(multiplier=read_number("multiplier", read_fields("noise", document, ("kind", "multiplier"))))
    if kind == Masked.kind:
        parts = read_fields("noise", document, ("kind", "multiplier", "agent"))
        if masks is None:
            raise PrivacyError("noise that cancels between agents is given without its masks")
        return Masked(multiplier=read_number("multiplier", parts), agent=parts["agent"], masks=masks)
    if kind == DiscreteGaussian.kind:
        parts = read_fields("noise", document, ("kind", "multiplier", "bits", "room"))
        return DiscreteGaussian(
            multiplier=read_number("multiplier", parts), bits=parts["bits"], room=read_number("room", parts)
        )
    if kind == Votes.kind:
        parts = read_fields("noise", document, ("kind", *FIELDS))
        numbers: dict[str, Any] = {name: parts[name] for name in FIELDS[:3]}  # whole ones, which it checks
        return Votes(**numbers | {name: read_number(name, parts) for name in FIELDS[3:]})
    known = ", ".join(repr(each.kind) for each in (Gaussian, Masked, DiscreteGaussian, Votes, NoNoise))
    raise PrivacyError(f"noise of kind {kind!r} is not known here; {known} are")


def read_fields(what: str, document: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Return a JSON object that has exactly these fields; anything else is an error."""
    if not isinstance(document, dict) or set(document) != set(names):
        raise PrivacyError(f"{what} has the fields {', '.join(names)}, but this is {str(document)[:200]}")
    return document


def read_number(name: str, fields: dict[str, Any]) -> float:
    """Return a field that must be a number, whole or not."""
    if type(fields[name]) not in (int, float):  # other programs write 2.0 as 2
        raise PrivacyError(f"{name} of a mechanism is {fields[name]!r}; it must be a number")
    return float(fields[name])
