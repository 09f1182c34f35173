"""A mechanism is frozen data: how a query draws its lot, bounds a record, adds noise to the sum and divides it.

The ε of an answer follows from it alone, and it makes its own events. The ledger stores it as JSON, so that an auditor reads
what was done rather than what was intended. Each part has a kind: another sampler, or noise that cancels between
neighbours, is another kind, and an unknown kind is refused.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from tacit.errors import PrivacyError
from tacit.privacy.accounting import Event
from tacit.privacy.keys import Keys
from tacit.privacy.rounding import MOST_STEPS, Discrete
from tacit.privacy.turns import check_column, turns_of
from tacit.privacy.votes import FIELDS, Votes

RECORD = "record"
"""The unit that is protected by default."""
MOST_RECORDS = 2**12
"""The most records of a unit that may take part in one query."""


def unit_in(text: str) -> tuple[str, int]:
    """Parse a unit and how many of its records take part in a query, as in patient:8."""
    name, colon, most = text.rpartition(":")
    if not colon or not most.isdecimal() or not name.strip() or name == RECORD or not 1 <= int(most) <= MOST_RECORDS:
        raise PrivacyError(
            f"unit is {text!r}; give a name and how many of its records take part, from 1 to {MOST_RECORDS}, as in patient:8"
        )
    return name, int(most)


@dataclass(frozen=True, kw_only=True)
class Poisson:
    """Every record is in a lot independently with probability `rate`; or every unit is, with at most `most` of its records."""

    kind: ClassVar[str] = "poisson"
    rate: float
    unit: str = RECORD
    """Who is protected."""
    most: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise PrivacyError(f"sample_rate is {self.rate}; it must lie in (0, 1]")
        if not self.unit or self.most < 1 or (self.unit == RECORD and self.most != 1):
            raise PrivacyError(f"a lot cannot have {self.most} records of every {self.unit!r}")


@dataclass(frozen=True, kw_only=True)
class Cyclic(Poisson):
    """Records are divided into `groups`, which take turns: in a query every record of one group is in the lot with probability groups·rate.

    `rate` is the average share of all records in a lot. A record's group is fixed and follows from that record alone.
    """

    kind: ClassVar[str] = "cyclic"
    groups: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.groups) is not int or self.groups < 2:
            raise PrivacyError(f"groups is {self.groups!r}; it must be a whole number, at least 2")
        if self.groups * self.rate > 1:
            raise PrivacyError(
                f"{self.groups} groups cannot each be sampled at {self.groups} times the rate of {self.rate}"
            )


@dataclass(frozen=True, kw_only=True)
class Gaussian:
    """Normal noise of `multiplier` times the clipping norm on every coordinate of the sum, fresh for every query."""

    kind: ClassVar[str] = "gaussian"
    multiplier: float

    def __post_init__(self) -> None:
        Event(sample_rate=1.0, noise_multiplier=self.multiplier)  # refuses an invalid multiplier


@dataclass(frozen=True, kw_only=True)
class DiscreteGaussian:
    """Records' vectors rounded to a grid, and discrete Gaussian noise of `multiplier` times the length that they then have at most."""

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


@dataclass(frozen=True)
class Observer:
    """Against whom an ε holds: any `curious` agents who pool what they know, or everybody else (None)."""

    curious: int | None = None

    def __post_init__(self) -> None:
        if self.curious is not None and (type(self.curious) is not int or self.curious < 0):
            raise PrivacyError(
                f"curious is {self.curious!r}; it must be a whole number of agents, or None for all others"
            )

    @property
    def key(self) -> str:
        """Its form in JSON: the number of curious agents, or "all"."""
        return "all" if self.curious is None else str(self.curious)

    @staticmethod
    def of_key(key: Any) -> "Observer":
        """Read its form in JSON."""
        if type(key) is str and key == "all":
            return EVERYBODY
        if type(key) is str and key.isascii() and key.isdecimal() and len(key) <= 9:
            return Observer(int(key))
        raise PrivacyError(f"an observer is a number of curious agents, or 'all', not {str(key)[:80]!r}")

    def require_among(self, agents: int) -> None:
        """Raise if there are not as many curious agents beside one of so many."""
        if self.curious is not None and self.curious > agents - 1:
            raise PrivacyError(
                f"the observer is any {self.curious} other agents, and of {agents} agents each has {agents - 1} others; give at most "
                f"{agents - 1}, or Observer() for all of them together"
            )

    def sees_no_more_than(self, other: "Observer") -> bool:
        """Return whether an ε against the other also holds against this one."""
        return other.curious is None or (self.curious is not None and self.curious <= other.curious)

    def __str__(self) -> str:
        if self.curious is None:
            return "everybody else together"
        if self.curious == 0:
            return "an observer of all messages without any agent's secrets"
        return "any one other agent" if self.curious == 1 else f"any {self.curious} other agents together"


EVERYBODY = Observer()


_MOST_RATIO = 1e3
"""Times an agent's own noise that masks may be: linear algebra loses twice as many digits."""


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
            raise PrivacyError(f"own noise is a positive number for each of {self.keys.agents} agents")
        if not 0 < self.size < math.inf:
            raise PrivacyError(f"the size of masks is {self.size}; it must be positive and finite")
        if self.size > _MOST_RATIO * min(self.own):
            raise PrivacyError(
                f"masks are up to {self.size / min(self.own):.2g} times as large as an agent's own noise; beyond {_MOST_RATIO:g} times, how "
                "they protect cannot be computed exactly. Take a smaller ratio, or lots and clips that differ less"
            )
        if type(self.lost) is not int or not 0 <= self.lost < self.keys.agents:
            raise PrivacyError(f"lost is {self.lost!r}; it must be a whole number, and fewer than all agents")

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
        parts = _fields("masks", document, ("own", "size", "agents", "keys", "lost"))
        own, pairs = parts["own"], parts["keys"]
        if type(own) is not list or type(parts["agents"]) is not int or not (pairs is None or type(pairs) is list):
            raise PrivacyError(f"masks have every agent's own noise, the number of agents and their keys, not {parts}")
        if any(type(pair) is not list or len(pair) != 2 or {*map(type, pair)} != {int} for pair in pairs or ()):
            raise PrivacyError("a key is shared by a pair of agents, named by their numbers")
        keys = Keys(parts["agents"], None if pairs is None else tuple((low, high) for low, high in pairs))
        deviations = tuple(_number("own", {"own": each}) for each in own)
        return Masks(deviations, _number("size", parts), keys, parts["lost"])


@lru_cache(maxsize=1024)
def _deviations(masks: Masks, curious: int) -> tuple[float, ...]:
    # Imported here: listing and reading ledgers needs no linear algebra.
    import numpy as np

    from tacit.privacy.coalitions import protection

    variances = protection(np.square(masks.own), masks.size**2, masks.keys, curious).variances.tolist()
    # Rounded down, by far more than the error of linear algebra and of the two ends' rounding of a mask's size.
    return tuple(_round_down(math.sqrt(value)) for value in variances)


def _round_down(value: float) -> float:
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


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """What one query does: a lot by `sampler`, each record clipped to `clip`, `noise` on the sum, divided by `lot`."""

    sampler: Poisson
    clip: float
    """The norm C; infinite where nothing is clipped, which is only possible without noise."""
    lot: float
    """The expected number of records in a lot, by which the sum is divided."""
    noise: NoiseKind
    bands: tuple[float, ...] = ()
    """How noise is correlated over queries, see `tacit.privacy.bands`; empty where every answer has noise of its own."""

    def __post_init__(self) -> None:
        if not self.clip > 0 or (self.private and math.isinf(self.clip)):
            raise PrivacyError(f"clip is {self.clip}; it must be positive and, where there is noise, finite")
        if not 0 < self.lot < math.inf:
            raise PrivacyError(f"lot is {self.lot}; it must be positive and finite")
        if isinstance(self.sampler, Cyclic) != bool(self.bands) or (self.bands and not self.private):
            raise PrivacyError("noise with bands and groups of records that take turns belong together")
        if isinstance(self.sampler, Cyclic):
            check_column(self.bands, self.sampler.groups)
        if isinstance(self.noise, Votes) and (self.sampler.rate, self.clip, self.lot, self.bands) != (
            1.0,
            1.0,
            1.0,
            (),
        ):
            raise PrivacyError("votes are counted for all records, each in one teacher: rate, clip and lot are 1")
        if isinstance(self.noise, DiscreteGaussian) and (self.bands or self.noise.steps(self.clip) > MOST_STEPS):
            raise PrivacyError(
                f"discrete noise has no bands, and a deviation of up to {MOST_STEPS:.0f} steps of its grid, not "
                f"{self.noise.steps(self.clip):.3g}; use fewer bits"
            )
        if isinstance(self.noise, Masked):
            own = self.noise.multiplier * self.clip / self.lot
            if not math.isclose(own, self.noise.masks.own[self.noise.agent], rel_tol=1e-12):
                raise PrivacyError(
                    f"agent {self.noise.agent} adds noise of {own} to its answers, but its neighbours count on "
                    f"{self.noise.masks.own[self.noise.agent]}"
                )

    @staticmethod
    def gaussian(
        *,
        sample_rate: float,
        clip: float,
        lot: float,
        noise_multiplier: float,
        unit: str = RECORD,
        most: int = 1,
    ) -> "Mechanism":
        """Return the mechanism of DP-SGD: Poisson lots and Gaussian noise."""
        noise, sampler = (
            Gaussian(multiplier=float(noise_multiplier)),
            Poisson(rate=float(sample_rate), unit=unit, most=most),
        )
        return Mechanism(sampler=sampler, clip=float(clip), lot=float(lot), noise=noise)

    @staticmethod
    def plain(*, sample_rate: float, lot: float) -> "Mechanism":
        """Return the mechanism without clipping and noise."""
        return Mechanism(sampler=Poisson(rate=float(sample_rate)), clip=math.inf, lot=float(lot), noise=NoNoise())

    @property
    def private(self) -> bool:
        """Whether there is noise."""
        return not isinstance(self.noise, NoNoise)

    @property
    def sample_rate(self) -> float:
        """The probability q that a record is in a lot; with groups that take turns, its average over the turns."""
        return self.sampler.rate

    @property
    def noise_multiplier(self) -> float:
        """The standard deviation σ of the agent's own noise in units of C; 0 without noise. Masks come on top.

        With discrete noise, in units of the length that a rounded vector has at most.
        """
        return 0.0 if isinstance(self.noise, NoNoise) else self.noise.multiplier

    def noise_against(self, observer: Observer) -> float:
        """Return the σ of Gaussian noise that protects as well from an observer as own noise and masks do."""
        if not isinstance(self.noise, Masked) or observer == EVERYBODY:
            return self.noise_multiplier
        deviation = self.noise.masks.deviations(observer)[self.noise.agent]
        return max(self.noise_multiplier, _round_down(deviation * self.lot / self.clip))

    def event(self, queries: int, observer: Observer = EVERYBODY) -> Event:
        """Return this many queries as an event for an accountant, from an observer's point of view; an error without noise."""
        sigma = self.noise_against(observer)
        if isinstance(self.sampler, Cyclic):
            groups = self.sampler.groups
            turns = turns_of(queries, groups)
            return Event(sample_rate=groups * self.sample_rate, noise_multiplier=sigma, count=turns, cyclic=True)
        discrete = isinstance(self.noise, DiscreteGaussian)
        return Event(sample_rate=self.sample_rate, noise_multiplier=sigma, count=queries, discrete=discrete)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for JSON; an infinite clip is null. Masks are shared, so an account stores them beside its lines."""
        noise: dict[str, Any] = {"kind": self.noise.kind}
        if isinstance(self.noise, Votes):
            noise |= self.noise.to_json()
        elif not isinstance(self.noise, NoNoise):
            noise |= {"multiplier": self.noise.multiplier}
        if isinstance(self.noise, Masked):
            noise |= {"agent": self.noise.agent}
        if isinstance(self.noise, DiscreteGaussian):
            noise |= {"bits": self.noise.bits, "room": self.noise.room}
        sampler = {
            "kind": self.sampler.kind,
            "rate": self.sampler.rate,
            "unit": self.sampler.unit,
            "most": self.sampler.most,
        }
        if isinstance(self.sampler, Cyclic):
            sampler |= {"groups": self.sampler.groups}
        return {
            "sampler": sampler,
            "clip": None if math.isinf(self.clip) else self.clip,
            "lot": self.lot,
            "noise": noise,
            **({"bands": list(self.bands)} if self.bands else {}),
        }

    @staticmethod
    def of_json(document: Any, masks: Masks | None = None) -> "Mechanism":
        """Read plain data back; an unknown kind or field, or a value of another type, is an error."""
        banded = isinstance(document, dict) and "bands" in document
        parts = _fields("a mechanism", document, ("sampler", "clip", "lot", "noise", *(["bands"] if banded else [])))
        sampler = _fields(
            "a sampler", parts["sampler"], ("kind", "rate", "unit", "most", *(["groups"] if banded else []))
        )
        expected = Cyclic.kind if banded else Poisson.kind
        if sampler["kind"] != expected:
            raise PrivacyError(f"a sampler of kind {sampler['kind']!r} is not known here; {expected!r} is")
        clip = math.inf if parts["clip"] is None else _number("clip", parts)
        if type(sampler["unit"]) is not str or type(sampler["most"]) is not int:
            raise PrivacyError(f"a sampler has a unit and how many of its records take part, but this is {sampler}")
        rate = _number("rate", sampler)
        whose: dict[str, Any] = {"unit": sampler["unit"], "most": sampler["most"]}
        drawn = Cyclic(rate=rate, **whose, groups=sampler["groups"]) if banded else Poisson(rate=rate, **whose)
        noise = _noise_of_json(parts["noise"], masks)
        if banded and (type(parts["bands"]) is not list or not parts["bands"]):
            raise PrivacyError(f"the bands of a mechanism are a list of coefficients, not {str(parts['bands'])[:200]}")
        bands = tuple(_number("bands", {"bands": each}) for each in parts.get("bands", ()))
        return Mechanism(sampler=drawn, clip=clip, lot=_number("lot", parts), noise=noise, bands=bands)


def vote_mechanism(votes: Votes) -> Mechanism:
    """Return what one query of votes does to one agent's records: all of them take part, each in one teacher's votes."""
    return Mechanism(sampler=Poisson(rate=1.0), clip=1.0, lot=1.0, noise=votes)


def _noise_of_json(document: Any, masks: Masks | None) -> NoiseKind:
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind == NoNoise.kind:
        _fields("noise", document, ("kind",))
        return NoNoise()
    if kind == Gaussian.kind:
        return Gaussian(multiplier=_number("multiplier", _fields("noise", document, ("kind", "multiplier"))))
    if kind == Masked.kind:
        parts = _fields("noise", document, ("kind", "multiplier", "agent"))
        if masks is None:
            raise PrivacyError("noise that cancels between agents is given without its masks")
        return Masked(multiplier=_number("multiplier", parts), agent=parts["agent"], masks=masks)
    if kind == DiscreteGaussian.kind:
        parts = _fields("noise", document, ("kind", "multiplier", "bits", "room"))
        return DiscreteGaussian(
            multiplier=_number("multiplier", parts), bits=parts["bits"], room=_number("room", parts)
        )
    if kind == Votes.kind:
        parts = _fields("noise", document, ("kind", *FIELDS))
        numbers: dict[str, Any] = {name: parts[name] for name in FIELDS[:3]}  # whole ones, which it checks
        return Votes(**numbers | {name: _number(name, parts) for name in FIELDS[3:]})
    known = ", ".join(repr(each.kind) for each in (Gaussian, Masked, DiscreteGaussian, Votes, NoNoise))
    raise PrivacyError(f"noise of kind {kind!r} is not known here; {known} are")


def _fields(what: str, document: Any, names: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(document, dict) or set(document) != set(names):
        raise PrivacyError(f"{what} has the fields {', '.join(names)}, but this is {str(document)[:200]}")
    return document


def _number(name: str, fields: dict[str, Any]) -> float:
    if type(fields[name]) not in (int, float):  # other programs write 2.0 as 2
        raise PrivacyError(f"{name} of a mechanism is {fields[name]!r}; it must be a number")
    return float(fields[name])
