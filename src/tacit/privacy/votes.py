"""Confident-GNMax: how teachers' votes on public records are answered, as data (Papernot et al., *Scalable Private Learning with PATE*, 2018).

Each of an agent's records belongs to one of K teachers, by a keyed hash of that record alone, so one record more or less changes one teacher
and no other. A query asks about B public records at once:

1. For each of them, the largest number of votes for a class, plus noise of σ₁, is compared with a threshold. One teacher changes each of
   these B numbers by 1 at most, so together they change by √B.
2. For at most A of those that pass, the votes of every class get noise of σ₂, and the class with the most is the answer. One
   teacher moves one vote from a class to another on each of them: √2 for one record, √(2A) together.

Both steps are Gaussian mechanisms, the second chosen by the outcome of the first. Gaussian mechanisms compose exactly, adaptively too
(Dong, Roth & Su, *Gaussian Differential Privacy*, 2022): a query is one Gaussian mechanism with 1/σ² = B/σ₁² + 2A/σ₂². Every threshold and
every answer that may be given is counted, whether or not it is. So ε follows from public numbers alone. The smaller, data-dependent ε of the
paper is itself a function of private votes, and is not computed.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from tacit.errors import PrivacyError
from tacit.privacy import accounting, calibration
from tacit.privacy.accounting import Accountant, Adjacency
from tacit.privacy.event import Event


@dataclass(frozen=True, kw_only=True)
class Votes:
    """The noise of one query of teachers' votes; see this module for what each number is."""

    kind: ClassVar[str] = "votes"
    teachers: int
    records: int
    answers: int
    threshold: float
    threshold_noise: float
    answer_noise: float

    def __post_init__(self) -> None:
        for name in ("teachers", "records", "answers"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise PrivacyError(f"{name} is {getattr(self, name)!r}; it must be a positive whole number")
        for name in ("threshold_noise", "answer_noise"):
            if not 0 < getattr(self, name) < math.inf:
                raise PrivacyError(f"{name} is {getattr(self, name)!r}; it must be positive and finite")
        if not math.isfinite(self.threshold) or self.answers > self.records:
            raise PrivacyError(
                f"a query of {self.records} records has {self.answers} answers at most and a threshold of {self.threshold}"
            )
        Event(sample_rate=1.0, noise_multiplier=self.multiplier)

    @property
    def multiplier(self) -> float:
        """The σ of the Gaussian mechanism with sensitivity 1 that a query is: thresholds and answers together."""
        return 1 / math.sqrt(self.records / self.threshold_noise**2 + 2 * self.answers / self.answer_noise**2)

    def to_json(self) -> dict[str, Any]:
        """Return its numbers as plain data."""
        return {name: getattr(self, name) for name in FIELDS}


FIELDS = ("teachers", "records", "answers", "threshold", "threshold_noise", "answer_noise")


@dataclass(frozen=True, kw_only=True)
class Ballot:
    """What a query asks teachers, before its noise is settled.

    threshold: the share of teachers that must agree, apart from noise.
    caution: the share of the privacy loss that is spent on thresholds.
    steps, lr: how a teacher is trained: steps of gradient descent, and their size.
    """

    teachers: int
    records: int
    answers: int
    threshold: float
    caution: float
    steps: int
    lr: float

    def votes(self, sigma: float) -> Votes:
        """Return the noise with which a query is a Gaussian mechanism of this σ and sensitivity 1."""
        return Votes(
            teachers=self.teachers,
            records=self.records,
            answers=self.answers,
            threshold=self.threshold * self.teachers,
            threshold_noise=sigma * math.sqrt(self.records / self.caution),
            answer_noise=sigma * math.sqrt(2 * self.answers / (1 - self.caution)),
        )

    def to_json(self) -> dict[str, float]:
        """Return its numbers as plain data."""
        return asdict(self)

    @staticmethod
    def of_json(document: dict[str, float]) -> "Ballot":
        """Read plain data back."""
        names = {field.name: field.type for field in fields(Ballot)}
        if set(document) != set(names):
            raise PrivacyError(f"votes have the fields {', '.join(names)}, but this is {document}")
        numbers: dict[str, Any] = {
            name: int(value) if names[name] is int else value for name, value in document.items()
        }
        return Ballot(**numbers)


@dataclass(frozen=True, kw_only=True)
class Voting:
    """The settings of votes: (ε, δ) for every record of every agent, by noisy votes of teachers that never leave it.

    teachers: how many each agent trains, each on its own part of the records. Noise does not depend on how many there are, so it outvotes a few.
    answers: the most public records of a query that get a label.
    threshold: the share of teachers that must agree, apart from noise.
    caution: the share of the privacy loss that is spent on thresholds.
    """

    epsilon: float
    delta: float
    teachers: int
    answers: int
    threshold: float = 0.6
    caution: float = 0.25
    adjacency: Adjacency = "add_remove"
    accountant: Accountant = "pld"

    def __post_init__(self) -> None:
        for name in ("threshold", "caution"):
            if not 0 < getattr(self, name) < 1:
                raise PrivacyError(f"{name} is {getattr(self, name)!r}; it must lie between 0 and 1")
        accounting.check(self.accountant, self.adjacency, self.delta)

    def votes(self, records: int, queries: int = 1) -> Votes:
        """Return the noise of each of `queries` queries of this many public records."""
        if records < 1:
            raise PrivacyError(f"records is {records}; at least one public record is needed")
        sigma = calibration.noise_multiplier(
            epsilon=self.epsilon,
            delta=self.delta,
            sample_rate=1.0,
            queries=queries,
            accountant=self.accountant,
            adjacency=self.adjacency,
        )
        answers = min(self.answers, records)
        return Votes(
            teachers=self.teachers,
            records=records,
            answers=answers,
            threshold=self.threshold * self.teachers,
            threshold_noise=sigma * math.sqrt(records / self.caution),
            answer_noise=sigma * math.sqrt(2 * answers / (1 - self.caution)),
        )


def first_that_pass(noisy: Sequence[float], threshold: float, most: int) -> list[int]:
    """Return which records are answered: of those that pass the threshold, the first ones."""
    return [place for place, value in enumerate(noisy) if value >= threshold][:most]
