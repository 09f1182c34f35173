"""What a network is: how neighbours' values arrive at the agents that are hosted here.

A process hosts all agents of a run, some, or one. Rows of tensors are the hosted agents, and nothing above a network knows
where the others are.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from tacit.errors import GraphError, InvalidInput
from tacit.networks.codecs import DENSE, Codec
from tacit.networks.topology import Links


class Messages(NamedTuple):
    """Every neighbour's value by itself, neighbours ascending; where an agent has fewer, `present` is False and the value zero."""

    values: Float[Tensor, "rows neighbors ..."]
    present: Bool[Tensor, "rows neighbors"]


class Inbox(Protocol):
    """What the hosted agents' neighbours sent in one exchange.

    Where one tensor was sent, one is returned, otherwise a tuple of as many as were sent. Values are added in one order on every
    network: an agent's own first, then its neighbours' by ascending number.
    """

    @property
    def degree(self) -> Float[Tensor, "rows 1"]:
        """How many neighbours each agent hears, itself not counted."""

    @property
    def own(self) -> Any:
        """What neighbours read of one's own message."""

    def mix(self) -> Any:
        """Return the sum over self and neighbours, weighted by the mixing matrix, of what was read."""

    def sum(self) -> Any:
        """Return the plain sum over neighbours, without self. Everyone must be heard by as many as it hears."""

    def messages(self) -> Any:
        """Return every neighbour's value by itself, as `Messages`."""


class Network(Protocol):
    """How hosted agents exchange rows with their neighbours."""

    @property
    def trials(self) -> int:
        """How many independent systems lie side by side on the rows."""

    @property
    def hosted(self) -> Int[Tensor, " rows"]:
        """The number of the agent to whom each row belongs."""

    @property
    def bytes_sent(self) -> NDArray[np.int64]:
        """How many bytes each row's agent has sent."""

    def exchange(self, round: int, *tensors: Float[Tensor, "rows ..."], codec: Codec = DENSE) -> Inbox:
        """Send one message with these rows to every neighbour in this round, and return what neighbours sent."""

    def close(self) -> None:
        """Let go of whatever holds it to others."""


class Transport(Protocol):
    """Carries bytes between two agents; below a wired network."""

    def send(self, to: int, label: tuple[int, ...], data: bytes) -> None:
        """Send a message under a label that both ends know: the round and the number of the exchange in it."""

    def receive(self, sender: int, label: tuple[int, ...]) -> bytes:
        """Wait for the message with this label."""

    def close(self) -> None:
        """Let go of the connection."""


def one_or_all(values: tuple[Any, ...]) -> Any:
    """Return the only value where there is one, otherwise all of them."""
    return values[0] if len(values) == 1 else values


def require_one_exchange(exchanges: int, what: str) -> None:
    """Raise where a round has several exchanges, which only `mix` can follow."""
    if exchanges > 1:
        raise InvalidInput(
            f"the rule uses {what} of an inbox, which needs one exchange in a round; this topology has {exchanges}, where only "
            "mix() works: the neighbours of one exchange are not those of the next"
        )


def require_balance(links: Iterable[Links]) -> None:
    """Raise where someone hears more than hear it: what sums over neighbours add up to would then drift."""
    for each in links:
        if not each.balanced:
            agent = int((each.degrees != each.listeners).argmax())
            raise GraphError(
                f"the rule uses sum() of an inbox, and agent {agent} hears {each.degrees[agent]} and is heard by "
                f"{each.listeners[agent]}: what each takes would not be what the others give, and the duals of a rule such as DiNNO "
                "drift. Give links by which everyone is heard by as many as it hears, or use a rule that mixes, such as DSGT"
            )
