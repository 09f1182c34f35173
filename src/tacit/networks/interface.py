"""What a network is: how neighbours' values arrive at the agents hosted here.

A process hosts all agents of a run, some, or one. Rows of tensors are the hosted agents, and no code above a network knows
where the others run.
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
    """Every neighbour's value by itself, in ascending order; where an agent has fewer, `present` is False and the value zero."""

    values: Float[Tensor, "rows neighbors ..."]
    present: Bool[Tensor, "rows neighbors"]


class Inbox(Protocol):
    """What the hosted agents' neighbours sent in one exchange.

    Methods return one tensor if one was sent, otherwise a tuple. Values are added in the same order on every network: an agent's
    own first, then its neighbours' by ascending number.
    """

    @property
    def degree(self) -> Float[Tensor, "rows 1"]:
        """The number of neighbours that each agent hears, without itself."""

    @property
    def own(self) -> Any:
        """What neighbours read of the agents' own messages."""

    def mix(self) -> Any:
        """Return the sum over self and neighbours, weighted by the mixing matrix, of what was read."""

    def sum(self) -> Any:
        """Return the plain sum over neighbours, without self. Every agent must be heard by as many as it hears."""

    def messages(self) -> Any:
        """Return every neighbour's value by itself, as `Messages`."""


class Network(Protocol):
    """How hosted agents exchange rows with their neighbours."""

    @property
    def trials(self) -> int:
        """The number of independent trials side by side on the rows."""

    @property
    def hosted(self) -> Int[Tensor, " rows"]:
        """The number of each row's agent."""

    @property
    def bytes_sent(self) -> NDArray[np.int64]:
        """The number of bytes that each row's agent has sent."""

    def exchange(self, round: int, *tensors: Float[Tensor, "rows ..."], codec: Codec = DENSE) -> Inbox:
        """Send one message with these rows to every neighbour in this round, and return what neighbours sent."""

    def close(self) -> None:
        """Close all connections."""


class Transport(Protocol):
    """Carries bytes between two agents; below a wired network."""

    def send(self, to: int, label: tuple[int, ...], data: bytes) -> None:
        """Send a message under a label that both ends know: the round and the number of the exchange in it."""

    def receive(self, sender: int, label: tuple[int, ...]) -> bytes:
        """Wait for the message with this label."""

    def close(self) -> None:
        """Close the connection."""


def one_or_all(values: tuple[Any, ...]) -> Any:
    """Return the only value where there is one, otherwise all of them."""
    return values[0] if len(values) == 1 else values


def require_one_exchange(exchanges: int, what: str) -> None:
    """Raise if a round has several exchanges, which only `mix` supports."""
    if exchanges > 1:
        raise InvalidInput(
            f"the rule uses {what} of an inbox, which needs one exchange in a round; this topology has {exchanges}, where only "
            "mix() works: the neighbours of one exchange are not those of the next"
        )


def require_balance(links: Iterable[Links]) -> None:
    """Raise if an agent hears more neighbours than hear it: sums over neighbours would then drift."""
    for each in links:
        if not each.balanced:
            agent = int((each.degrees != each.listeners).argmax())
            raise GraphError(
                f"the rule uses sum() of an inbox, but agent {agent} hears {each.degrees[agent]} and is heard by "
                f"{each.listeners[agent]}: what each takes would not be what the others give, and the duals of a rule such as DiNNO "
                "would drift. Give links where every agent is heard by as many as it hears, or use a rule that mixes, such as DSGT"
            )
