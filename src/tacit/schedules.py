"""Step sizes over the rounds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.errors import InvalidInput

# The step size at a round, of so many: a number, or one for each agent of the stack.
Schedule = Callable[[int, int], float | Tensor]


@dataclass(frozen=True)
class LogSpaced:
    """From `start` in the first round to `finish` in the last, by equal factors."""

    start: float
    finish: float

    def __post_init__(self) -> None:
        for name in ("start", "finish"):
            if not getattr(self, name) > 0:
                raise InvalidInput(f"{name} is {getattr(self, name)}; a step size must be positive")

    def __call__(self, round: int, rounds: int) -> float:
        """Return the step size at `round` of `rounds`."""
        return self.start * (self.finish / self.start) ** (round / max(1, rounds - 1))


@dataclass(frozen=True)
class Constant:
    """The same in every round, for all agents or with one value for each agent of the stack."""

    value: float | Sequence[float]

    def __post_init__(self) -> None:
        values = [self.value] if isinstance(self.value, int | float) else self.value
        if bad := [value for value in values if not value > 0]:
            raise InvalidInput(f"a step size must be positive, got {bad[0]}")

    def __call__(self, round: int, rounds: int) -> float | Tensor:
        """Return the step size."""
        return float(self.value) if isinstance(self.value, int | float) else torch.tensor(self.value)


def as_schedule(lr: float | Sequence[float] | Schedule) -> Schedule:
    """Turn a number, one number per agent, or a schedule into a schedule."""
    return lr if callable(lr) else Constant(lr)
