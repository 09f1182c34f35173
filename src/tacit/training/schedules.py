"""Step sizes over the rounds."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real

import torch
from torch import Tensor

from tacit.errors import InvalidInput

# The step size at a round, given the number of rounds: a number, or one for each agent of the stack.
Schedule = Callable[[int, int], float | Tensor]


@dataclass(frozen=True)
class LogSpaced:
    """From `start` in the first round to `finish` in the last, by equal factors."""

    start: float
    finish: float

    def __post_init__(self) -> None:
        for name in ("start", "finish"):
            value = getattr(self, name)
            if not isinstance(value, Real) or not 0 < float(value) < math.inf:
                raise InvalidInput(f"{name} is {value!r}; a step size must be a positive and finite number")

    def __call__(self, round: int, rounds: int) -> float:
        """Return the step size at `round` of `rounds`."""
        return self.start * (self.finish / self.start) ** (round / max(1, rounds - 1))


@dataclass(frozen=True)
class Constant:
    """The same in every round, for all agents or with one value for each agent of the stack."""

    value: float | Sequence[float]

    def __post_init__(self) -> None:
        values = torch.as_tensor(self.value, dtype=torch.float64).flatten()
        if not len(values) or not ((values > 0) & (values < math.inf)).all():
            raise InvalidInput(f"a step size must be positive and finite, got {self.value}")

    def __call__(self, round: int, rounds: int) -> float | Tensor:
        """Return the step size."""
        values = torch.as_tensor(self.value, dtype=torch.float64)
        return float(values) if values.ndim == 0 else values


def as_schedule(lr: float | Sequence[float] | Schedule) -> Schedule:
    """Turn a number, one number per agent, or a schedule into a schedule."""
    if callable(lr):
        return lr
    try:
        return Constant(lr)
    except (TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(
            f"lr is {lr!r}; give a number, one for each agent, or a schedule that is called as lr(round, rounds)"
        ) from None


def only_rows(schedule: Schedule, rows: Sequence[int], total: int) -> Schedule:
    """Return the schedule of some rows, where it gives one number for each of `total`."""
    if list(rows) == list(range(total)):
        return schedule

    def some(round: int, rounds: int) -> float | Tensor:
        lr = schedule(round, rounds)
        if not isinstance(lr, Tensor) or lr.numel() == 1:
            return lr
        if lr.numel() != total:
            raise InvalidInput(f"the step size has {lr.numel()} values for {total} agents (of all trials together)")
        return lr.flatten()[torch.as_tensor(rows, device=lr.device)]

    return some


def step_size(schedule: Schedule, round: int, rounds: int, theta: Tensor) -> float | Tensor:
    """Return the step size of a round as a number, or as a column with one for each row of θ."""
    try:
        lr = schedule(round, rounds)
        lr = lr if isinstance(lr, Tensor) else float(lr)
    except TypeError as error:
        raise InvalidInput(f"the schedule must give a number when it is called as lr(round, rounds): {error}") from None
    if not isinstance(lr, Tensor) or lr.ndim == 0 or (lr.numel() == 1 != len(theta)):
        return float(lr)
    if lr.numel() != len(theta):
        raise InvalidInput(f"the step size has {lr.numel()} values for {len(theta)} agents (of all trials together)")
    return lr.to(theta).reshape(-1, 1)
