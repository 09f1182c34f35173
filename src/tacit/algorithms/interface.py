"""What an update rule Ψ is, and all that it may touch.

A rule is a frozen dataclass of hyperparameters with two pure functions on stacked tensors `[agents, params]`:
`init(theta)` makes its state, `round(state, at)` the next one. The state is a NamedTuple of tensors (or of such
tuples) with at least `theta`. A rule says nothing about privacy: the private and the non-private version are the same
file with another oracle behind `at`.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from tacit.errors import InvalidInput

Stacked = Float[Tensor, "agents params"]


class Inbox(Protocol):
    """What an agent's neighbours sent in one exchange, added up in a fixed order.

    `mix` and `sum` return a tensor where one was sent, and a tuple of as many as were sent otherwise.
    """

    @property
    def degree(self) -> Float[Tensor, "agents 1"]:
        """How many live neighbours each agent has, itself not counted."""

    def mix(self) -> Any:
        """Return the sum over neighbours and self, weighted by the mixing matrix."""

    def sum(self) -> Any:
        """Return the plain sum over neighbours, without self."""


class At(Protocol):
    """One round, as an algorithm sees it: the oracle, the exchange, the step size, its number, public chance."""

    @property
    def round(self) -> int:
        """The round's number, from 0."""

    @property
    def lr(self) -> Any:
        """The step size: a number, or a column with one for each agent."""

    @property
    def generator(self) -> torch.Generator:
        """Public randomness, the same for whoever knows the run's seed."""

    def gradient(self, theta: Stacked) -> Stacked:
        """Return every agent's gradient at its θ, noisy where the run is private: one query each."""

    def query(
        self,
        per_sample: Callable[..., Float[Tensor, " width"]],
        *public: Float[Tensor, "agents ..."],
        width: int | None = None,
    ) -> Float[Tensor, "agents width"]:
        """Return every agent's (noisy) mean of `per_sample(record, *public)` over a lot: one query each.

        `record.gradient(θ)`, `record.loss(θ)`, `record.input` and `record.target` are one record's; the value is
        clipped like a gradient. It has `width` numbers, unless given as many as the first of `public`.
        """

    def exchange(self, *tensors: Float[Tensor, "agents ..."]) -> Inbox:
        """Send one message with these rows to every neighbour and return what the neighbours sent."""


class HasTheta(Protocol):
    """A state that holds the agents' models."""

    @property
    def theta(self) -> Stacked:
        """The agents' models."""


State = TypeVar("State", bound=HasTheta)


class Algorithm(Protocol[State]):
    """An update rule Ψ."""

    def init(self, theta: Stacked) -> State:
        """Return the state before the first round."""

    def round(self, state: State, at: At) -> State:
        """Return the state after one more round."""


def check_rule(rule: Any) -> None:
    """Raise unless it is an update rule, made with its hyperparameters."""
    if isinstance(rule, type) or not (hasattr(rule, "init") and hasattr(rule, "round")):
        raise InvalidInput(f"algorithm is {rule!r}; give an instance with init and round, such as DSGT()")
