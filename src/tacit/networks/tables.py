"""The inbox of agents that share a process: what they hear is a table of rows, over which they take sums.

A stack of all agents and the agents of one rank differ only in how the table is filled; see `stacked` and `sharded`.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from jaxtyping import Bool, Float, Int
from torch import Tensor

from tacit.networks.adding import Sum
from tacit.networks.codecs import Codec
from tacit.networks.interface import Messages, one_or_all, require_balance, require_one_exchange
from tacit.networks.topology import Links


class Sent(Protocol):
    """A message that was sent."""

    @property
    def own(self) -> tuple[Tensor, ...]:
        """What neighbours read of the hosted agents' rows."""

    def tables(self) -> tuple[Tensor, ...]:
        """Return, for each tensor, the hosted agents' rows, then those of all agents elsewhere that they hear; they live as long as this object."""


class PreparedLinks(Protocol):
    """One set of links, prepared for the hosted agents: sums and places refer to the rows of a table."""

    @property
    def links(self) -> tuple[Links, ...]:
        """The links: one for each trial, or one for all."""

    @property
    def degree(self) -> Float[Tensor, "rows 1"]:
        """The number of neighbours of each agent."""

    @property
    def mix(self) -> Sum:
        """The weighted sum over self and neighbours."""

    @property
    def add(self) -> Sum:
        """The plain sum over neighbours."""

    def slots(self) -> tuple[Int[Tensor, "rows neighbors"], Bool[Tensor, "rows neighbors"]]:
        """Return the place of every row's n-th neighbour in the table, and whether there is one."""


class TableNetwork(Protocol):
    """A network that sends rows over prepared links."""

    def send(self, over: Any, codec: Codec, tensors: tuple[Tensor, ...]) -> Sent:
        """Count a message, show it to taps, and send it."""


class TableInbox:
    """What the neighbours of agents in one process sent; see `tacit.networks.Inbox`."""

    def __init__(
        self, network: TableNetwork, stages: Sequence[PreparedLinks], codec: Codec, tensors: tuple[Tensor, ...]
    ) -> None:
        self._network, self._codec = network, codec
        self._first, *self._later = stages
        self._sent = network.send(self._first, codec, tensors)

    @property
    def degree(self) -> Float[Tensor, "rows 1"]:
        """The number of neighbours of each agent."""
        self._require_one("degree")
        return self._first.degree

    @property
    def own(self) -> Any:
        """What neighbours read of the agents' own messages."""
        self._require_one("own")
        return one_or_all(self._sent.own)

    def mix(self) -> Any:
        """Return Wx for every tensor x that was sent."""
        mixed = tuple(self._first.mix(x) for x in self._sent.tables())
        for stage in self._later:
            sent = self._network.send(stage, self._codec, mixed)
            mixed = tuple(stage.mix(x) for x in sent.tables())
        return one_or_all(mixed)

    def sum(self) -> Any:
        """Return the sum over neighbours of every tensor that was sent."""
        self._require_one("sum()")
        require_balance(self._first.links)
        return one_or_all(tuple(self._first.add(x) for x in self._sent.tables()))

    def messages(self) -> Any:
        """Return every neighbour's value by itself."""
        self._require_one("messages()")
        rows, present = self._first.slots()
        found = []
        for x in self._sent.tables():
            values = x.index_select(0, rows.flatten()).unflatten(0, rows.shape)
            there = present.reshape(*present.shape, *[1] * (x.ndim - 1))
            found.append(Messages(values.masked_fill(~there, 0), present))
        return one_or_all(tuple(found))

    def _require_one(self, what: str) -> None:
        require_one_exchange(1 + len(self._later), what)
