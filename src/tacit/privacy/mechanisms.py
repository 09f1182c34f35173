"""A mechanism is frozen data: how a query draws its lot, bounds a record, counts on a lot size and covers the sum by noise.

It is all that an answer's ε follows from, and it knows its own events. The ledger keeps it as JSON, so that an auditor reads
what was done rather than what was meant. Each part has a kind: another sampler, or noise that cancels between
neighbours, is another kind, and whoever does not know a kind refuses it.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from tacit.errors import PrivacyError
from tacit.privacy.accounting import Event

Observer = Literal["everybody else together"]
"""Against whom an ε holds."""
EVERYBODY: Observer = "everybody else together"
RECORD = "record"
"""Who is protected where nobody else is named."""
MOST_RECORDS = 2**12
"""Of a unit, in one query."""


def unit_in(text: str) -> tuple[str, int]:
    """Read who is protected and how many of its records take part in a query, as in patient:8."""
    name, colon, most = text.rpartition(":")
    if not colon or not most.isdecimal() or not name.strip() or name == RECORD or not 1 <= int(most) <= MOST_RECORDS:
        raise PrivacyError(
            f"unit is {text!r}; give a name and how many of its records take part, from 1 to {MOST_RECORDS}, as in patient:8"
        )
    return name, int(most)


@dataclass(frozen=True, kw_only=True)
class Poisson:
    """Every record is in a lot by itself, with probability `rate`; or every unit is, with at most `most` of its records."""

    kind: ClassVar[str] = "poisson"
    rate: float
    unit: str = RECORD
    """Who is protected."""
    most: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise PrivacyError(f"sample_rate is {self.rate}; it must lie in (0, 1]")
        if not self.unit or self.most < 1 or (self.unit == RECORD and self.most != 1):
            raise PrivacyError(f"a lot of {self.most} records of every {self.unit!r} makes no sense")


@dataclass(frozen=True, kw_only=True)
class Gaussian:
    """Normal noise of `multiplier` times the clipping norm on every coordinate of the sum, fresh for every query."""

    kind: ClassVar[str] = "gaussian"
    multiplier: float

    def __post_init__(self) -> None:
        Event(sample_rate=1.0, noise_multiplier=self.multiplier)  # refuses what is no noise


@dataclass(frozen=True, kw_only=True)
class NoNoise:
    """No noise, and so no privacy."""

    kind: ClassVar[str] = "none"


Noise = Gaussian | NoNoise
_NOISE: dict[str, type[Noise]] = {kind.kind: kind for kind in (Gaussian, NoNoise)}


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """What one query does: a lot by `sampler`, each record clipped to `clip`, `noise` on the sum, divided by `lot`."""

    sampler: Poisson
    clip: float
    """The norm C; infinite where nothing is clipped, which noise does not go with."""
    lot: float
    """The expected number of records in a lot, by which the sum is divided."""
    noise: Noise

    def __post_init__(self) -> None:
        if not self.clip > 0 or (self.private and math.isinf(self.clip)):
            raise PrivacyError(f"clip is {self.clip}; it must be positive and, where there is noise, finite")
        if not 0 < self.lot < math.inf:
            raise PrivacyError(f"lot is {self.lot}; it must be positive and finite")

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
        return isinstance(self.noise, Gaussian)

    @property
    def sample_rate(self) -> float:
        """The probability q of a record to be in a lot."""
        return self.sampler.rate

    @property
    def noise_multiplier(self) -> float:
        """The standard deviation σ of the noise in units of C; 0 without noise."""
        return self.noise.multiplier if isinstance(self.noise, Gaussian) else 0.0

    def event(self, queries: int, observer: Observer = EVERYBODY) -> Event:
        """Return what so many queries are to an observer, as accountants take it; without noise there is no such thing."""
        if observer not in get_args(Observer):
            raise PrivacyError(f"observer is {observer!r}; the one that is known is {EVERYBODY!r}")
        return Event(sample_rate=self.sample_rate, noise_multiplier=self.noise_multiplier, count=queries)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data, for JSON; an infinite clip is null."""
        noise = {"kind": self.noise.kind}
        if isinstance(self.noise, Gaussian):
            noise |= {"multiplier": self.noise.multiplier}  # type: ignore[dict-item]
        return {
            "sampler": {
                "kind": self.sampler.kind,
                "rate": self.sampler.rate,
                "unit": self.sampler.unit,
                "most": self.sampler.most,
            },
            "clip": None if math.isinf(self.clip) else self.clip,
            "lot": self.lot,
            "noise": noise,
        }

    @staticmethod
    def of_json(document: Any) -> "Mechanism":
        """Read plain data back; an unknown kind or field, or a value of another type, is an error."""
        parts = _fields("a mechanism", document, ("sampler", "clip", "lot", "noise"))
        sampler = _fields("a sampler", parts["sampler"], ("kind", "rate", "unit", "most"))
        if sampler["kind"] != Poisson.kind:
            raise PrivacyError(f"a sampler of kind {sampler['kind']!r} is not known here; {Poisson.kind!r} is")
        noise = parts["noise"]
        kind = noise.get("kind") if isinstance(noise, dict) else None
        if not isinstance(kind, str) or kind not in _NOISE:
            raise PrivacyError(f"noise of kind {kind!r} is not known here; {', '.join(map(repr, _NOISE))} are")
        made: Noise = NoNoise()
        if kind == Gaussian.kind:
            made = Gaussian(multiplier=_number("multiplier", _fields("noise", noise, ("kind", "multiplier"))))
        else:
            _fields("noise", noise, ("kind",))
        clip = math.inf if parts["clip"] is None else _number("clip", parts)
        if type(sampler["unit"]) is not str or type(sampler["most"]) is not int:
            raise PrivacyError(f"a sampler names a unit and how many of its records take part, and this is {sampler}")
        drawn = Poisson(rate=_number("rate", sampler), unit=sampler["unit"], most=sampler["most"])
        return Mechanism(sampler=drawn, clip=clip, lot=_number("lot", parts), noise=made)


def _fields(what: str, document: Any, names: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(document, dict) or set(document) != set(names):
        raise PrivacyError(f"{what} has the fields {', '.join(names)}, and this is {str(document)[:200]}")
    return document


def _number(name: str, fields: dict[str, Any]) -> float:
    if type(fields[name]) not in (int, float):  # other programs write 2.0 as 2
        raise PrivacyError(f"{name} of a mechanism is {fields[name]!r}; it must be a number")
    return float(fields[name])
