"""What an update rule Ψ is, and everything it may use.

A rule is a frozen dataclass of hyperparameters with two pure functions on stacked tensors `[agents, params]`:
`init(theta)` makes its state, `round(state, at)` the next one. The state is a NamedTuple of tensors (or of such
tuples) with at least `theta`. A rule says nothing about privacy: the private and the non-private version are the same
file with another oracle behind `at`.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from jaxtyping import Float, Int
from torch import Tensor

from tacit.errors import InvalidInput
from tacit.networks.codecs import DENSE, Codec
from tacit.networks.interface import Inbox as Inbox

Stacked = Float[Tensor, "agents params"]


class At(Protocol):
    """One round, as an algorithm sees it: gradients, exchange, step size, round number, public randomness."""

    @property
    def round(self) -> int:
        """The round's number, from 0."""

    @property
    def lr(self) -> Any:
        """The step size: a number, or a column with one for each agent."""

    @property
    def agents(self) -> Int[Tensor, " agents"]:
        """The number of each row's agent: all agents of a run, or those hosted here."""

    def chance(self, *shape: int) -> Float[Tensor, "agents ..."]:
        """Return random numbers from [0, 1), a row of this shape for each agent. They are public: anyone with the run's seed can compute them.

        They follow from the seed, the round, the agent, and how often `chance` was called in this round.
        """

    def shared_chance(self, *shape: int) -> Float[Tensor, "..."]:
        """Return random numbers from [0, 1) that are the same for all agents, including those of other trials."""

    def public_loss(self, theta: Stacked) -> Float[Tensor, " agents"]:
        """Return the mean loss of every agent's θ on the public validation records. It is not a query and costs no privacy."""

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
        clipped like a gradient. It has `width` numbers; by default as many as the first of `public`.
        """

    def vote(
        self,
        theta: Stacked,
        *,
        teachers: int,
        records: int,
        answers: int,
        threshold: float,
        caution: float,
        steps: int,
        lr: float,
    ) -> Float[Tensor, "agents records"]:
        """Return every agent's labels of so many public records by noisy votes of its teachers, negative where there is none: one query each.

        Each agent trains `teachers` on parts of its records, from its θ, by `steps` steps of size `lr`, and labels at most `answers` of the
        records: those on which a share `threshold` of them agrees, apart from noise. `caution` is the share of the privacy loss that finding out
        costs. A run asks either for votes or for gradients and other means.
        """

    def labelled_gradient(self, theta: Stacked, labels: Float[Tensor, "agents records"]) -> Stacked:
        """Return every agent's gradient of the mean loss on the public records that it has labels of; zero without any. It is not a query."""

    def exchange(self, *tensors: Float[Tensor, "agents ..."], codec: Codec = DENSE) -> Inbox:
        """Send one message with these rows to every neighbour and return what the neighbours sent.

        `codec` is how they are encoded; see `tacit.networks`.
        """


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


class AroundRule:
    """A rule that is made of another one, `rule`, whose name and line in the registry it goes by."""

    rule: Algorithm[Any]


def check_rule(rule: Any) -> None:
    """Raise unless this is an instance of an update rule."""
    if isinstance(rule, type) or not (hasattr(rule, "init") and hasattr(rule, "round")):
        raise InvalidInput(f"algorithm is {rule!r}; give an instance with init and round, such as DSGT()")
