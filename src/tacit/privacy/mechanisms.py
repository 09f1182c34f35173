"""A mechanism is frozen data: how a query draws its lot, bounds a record, adds noise to the sum and divides it.

The ε of an answer follows from it alone, and it makes its own events. The ledger stores it as JSON, so that an auditor reads
what was done rather than what was intended. Each part has a kind: another sampler, or noise that cancels between
neighbours, is another kind, and an unknown kind is refused.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from tacit.errors import PrivacyError
from tacit.privacy.event import Event
from tacit.privacy.noise_kinds import (
    DiscreteGaussian,
    Gaussian,
    Masked,
    Masks,
    NoiseKind,
    NoNoise,
    noise_of_json,
    read_fields,
    read_number,
    round_down,
)
from tacit.privacy.observers import EVERYBODY, Observer
from tacit.privacy.rounding import MOST_STEPS
from tacit.privacy.turns import check_column, turns_of
from tacit.privacy.votes import Votes

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
                f"discrete noise has no bands, and its deviation is at most {MOST_STEPS:.0f} steps of its grid, not "
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
        """The standard deviation σ of the agent's own noise in units of C; 0 without noise. Masks are added to it.

        With discrete noise, in units of the largest length of a rounded vector.
        """
        return 0.0 if isinstance(self.noise, NoNoise) else self.noise.multiplier

    def noise_against(self, observer: Observer) -> float:
        """Return the σ of Gaussian noise that protects as well from an observer as own noise and masks do."""
        if not isinstance(self.noise, Masked) or observer == EVERYBODY:
            return self.noise_multiplier
        deviation = self.noise.masks.deviations(observer)[self.noise.agent]
        return max(self.noise_multiplier, round_down(deviation * self.lot / self.clip))

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
        parts = read_fields(
            "a mechanism", document, ("sampler", "clip", "lot", "noise", *(["bands"] if banded else []))
        )
        sampler = read_fields(
            "a sampler", parts["sampler"], ("kind", "rate", "unit", "most", *(["groups"] if banded else []))
        )
        expected = Cyclic.kind if banded else Poisson.kind
        if sampler["kind"] != expected:
            raise PrivacyError(f"a sampler of kind {sampler['kind']!r} is not known here; {expected!r} is")
        clip = math.inf if parts["clip"] is None else read_number("clip", parts)
        if type(sampler["unit"]) is not str or type(sampler["most"]) is not int:
            raise PrivacyError(f"a sampler has a unit and how many of its records take part, but this is {sampler}")
        rate = read_number("rate", sampler)
        whose: dict[str, Any] = {"unit": sampler["unit"], "most": sampler["most"]}
        drawn = Cyclic(rate=rate, **whose, groups=sampler["groups"]) if banded else Poisson(rate=rate, **whose)
        noise = noise_of_json(parts["noise"], masks)
        if banded and (type(parts["bands"]) is not list or not parts["bands"]):
            raise PrivacyError(f"the bands of a mechanism are a list of coefficients, not {str(parts['bands'])[:200]}")
        bands = tuple(read_number("bands", {"bands": each}) for each in parts.get("bands", ()))
        return Mechanism(sampler=drawn, clip=clip, lot=read_number("lot", parts), noise=noise, bands=bands)


def vote_mechanism(votes: Votes) -> Mechanism:
    """Return what one query of votes does to one agent's records: all of them take part, each in one teacher's votes."""
    return Mechanism(sampler=Poisson(rate=1.0), clip=1.0, lot=1.0, noise=votes)
