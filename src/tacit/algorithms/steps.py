"""Directions of descent: plain, with momentum, Adam. Small pure transformations of stacked gradients.

`init(theta)` makes the state, `step(state, gradient)` returns the direction of descent, before the step size is
applied, and the next state.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from tacit.algorithms.interface import Stacked
from tacit.errors import InvalidInput


class Step(Protocol):
    """Turns a gradient into a direction."""

    def init(self, theta: Stacked) -> Any:
        """Return the state before the first step."""

    def step(self, state: Any, gradient: Stacked) -> tuple[Stacked, Any]:
        """Return the direction and the next state."""


@dataclass(frozen=True)
class Plain:
    """The gradient itself."""

    def init(self, theta: Stacked) -> tuple[()]:
        """Return an empty state."""
        return ()

    def step(self, state: tuple[()], gradient: Stacked) -> tuple[Stacked, tuple[()]]:
        """Return the gradient."""
        return gradient, state


@dataclass(frozen=True)
class Momentum:
    """m⁺ = βm + g; the direction is m⁺ (Polyak's heavy ball, as in torch's SGD)."""

    beta: float = 0.9

    def __post_init__(self) -> None:
        check_decay("beta", self.beta)

    def init(self, theta: Stacked) -> Tensor:
        """Return zero velocity."""
        return torch.zeros_like(theta)

    def step(self, state: Tensor, gradient: Stacked) -> tuple[Stacked, Tensor]:
        """Return the velocity."""
        velocity = self.beta * state + gradient
        return velocity, velocity


class AdamState(NamedTuple):
    """The running moments and the number of steps so far."""

    mean: Tensor
    square: Tensor
    steps: Tensor


@dataclass(frozen=True)
class Adam:
    """m⁺ = β₁m + (1-β₁)g, v⁺ = β₂v + (1-β₂)g²; the direction is m̂/(√v̂ + eps), bias-corrected (Kingma & Ba 2015)."""

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        check_decay("beta1", self.beta1)
        check_decay("beta2", self.beta2)
        if not self.eps > 0:
            raise InvalidInput(f"eps is {self.eps}; it must be positive")

    def init(self, theta: Stacked) -> AdamState:
        """Return zero moments."""
        zero = torch.zeros_like(theta)
        return AdamState(zero, zero, theta.new_zeros(()))

    def step(self, state: AdamState, gradient: Stacked) -> tuple[Stacked, AdamState]:
        """Return the normalised mean gradient."""
        steps = state.steps + 1
        mean = self.beta1 * state.mean + (1 - self.beta1) * gradient
        square = self.beta2 * state.square + (1 - self.beta2) * gradient.square()
        scale = (square / (1 - self.beta2**steps)).sqrt() + self.eps
        return mean / (1 - self.beta1**steps) / scale, AdamState(mean, square, steps)


def check_decay(name: str, value: float) -> None:
    """Raise unless a decay factor lies in [0, 1)."""
    if not 0 <= value < 1:
        raise InvalidInput(f"{name} is {value}; it must lie in [0, 1)")


def descend(theta: Stacked, lr: float | Tensor, direction: Stacked) -> Stacked:
    """Return θ − η·d, in one pass where the step size is one number for all agents."""
    return theta - lr * direction if isinstance(lr, Tensor) else torch.sub(theta, direction, alpha=lr)


STEPS: dict[str, type[Step]] = {"plain": Plain, "momentum": Momentum, "adam": Adam}
"""The steps by name."""
