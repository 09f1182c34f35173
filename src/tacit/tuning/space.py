"""What is searched: settings with a range or a list of values, and the values that the trials of a search get."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args, get_type_hints

import numpy as np

from tacit.errors import InvalidInput, choose
from tacit.runs.config import RunConfig

_RANGE = re.compile(r"(log:)?([^.,]+(?:\.[^.,]+)?)\.\.(.+)")
_FACTORS = (0.8, 1.25)
# Numbers that say what is protected, computed on or kept, and not how well it is learned.
_FIXED = (
    "agents",
    "seed",
    "workers",
    "checkpoint_every",
    "evaluate_every",
    "step_agents",
    "spare_queries",
    "curious",
    "lost",
)


@dataclass(frozen=True)
class Parameter:
    """One setting of a run: all values between `low` and `high`, evenly or evenly in their logarithm, or one of `choices`."""

    name: str
    low: float = math.nan
    high: float = math.nan
    log: bool = False
    whole: bool = False
    choices: tuple[float, ...] = ()

    def at(self, place: float) -> float:
        """Return the value at a place in [0, 1) of the range or list."""
        if self.choices:
            return self.choices[int(place * len(self.choices))]
        span = self.high / self.low if self.log else self.high - self.low
        return self._valid(self.low * span**place if self.log else self.low + span * place)

    def near(self, value: float, up: bool) -> float:
        """Return a value a step above or below this one: a factor, or the next in the list."""
        if self.choices:
            place = self.choices.index(value) + (1 if up else -1)
            return self.choices[min(max(place, 0), len(self.choices) - 1)]
        return self._valid(value * _FACTORS[up])

    def _valid(self, value: float) -> float:
        value = min(max(value, self.low), self.high)
        return round(value) if self.whole else float(f"{value:.4g}")

    def __str__(self) -> str:
        if self.choices:
            return f"{self.name}={','.join(f'{value:g}' for value in self.choices)}"
        return f"{self.name}={'log:' if self.log else ''}{self.low:g}..{self.high:g}"


def parse_parameter(text: str) -> Parameter:
    """Read a parameter: `lr=log:0.1..10`, `momentum=0..0.9`, or `clip=0.5,1,2`."""
    name, _, values = text.partition("=")
    name = choose("parameter", name.strip().replace("-", "_"), _searchable())
    whole = _kinds(name) <= {int}
    try:
        if found := _RANGE.fullmatch(values.strip()):
            log, low, high = bool(found[1]), float(found[2]), float(found[3])
            if high < low:
                raise InvalidInput(
                    f"parameter {text!r} begins at its high end; the low end comes first: {name}={found[1] or ''}{found[3]}..{found[2]}"
                )
            if not (math.isfinite(low) and math.isfinite(high) and low < high and (low > 0 or not log)):
                raise ValueError
            return Parameter(name, low, high, log, whole)
        choices = tuple(int(value) if whole else float(value) for value in values.split(","))
        if not all(map(math.isfinite, choices)):
            raise ValueError
    except ValueError as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(
            f"parameter {text!r} is not understood; write a range as in lr=log:0.1..10 or momentum=0..0.9, or values as in clip=0.5,1,2"
        ) from None
    return Parameter(name, whole=whole, choices=choices)


def draw_values(parameters: Sequence[Parameter], population: int, seed: int) -> list[dict[str, float]]:
    """Return the values of `population` trials: each parameter's range is cut into as many parts as there are trials, and each part is used once."""
    chance = np.random.default_rng(seed)
    places = [(chance.permutation(population) + chance.random(population)) / population for _ in parameters]
    return [
        {parameter.name: parameter.at(float(place[trial])) for parameter, place in zip(parameters, places, strict=True)}
        for trial in range(population)
    ]


def _kinds(name: str) -> set[type]:
    kind = get_type_hints(RunConfig)[name]
    return {each for each in (kind, *get_args(kind)) if each in (int, float)}


def _searchable() -> list[str]:
    per_agent = ["epsilon", "noise_multiplier", "clip", "lot_size"]
    numbers = [name for name in RunConfig.model_fields if _kinds(name) and name not in _FIXED]
    return sorted({*numbers, *per_agent})
