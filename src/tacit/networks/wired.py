"""One agent in its own process: messages are bytes, sent over any transport.

It sends to all who hear it, waits for all it hears, and adds their values in the order that all networks use.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tacit.errors import InvalidInput
from tacit.networks.codecs import DENSE, Codec, Packet
from tacit.networks.interface import Messages, Transport, one_or_all, require_balance, require_one_exchange
from tacit.networks.stacked import Tap
from tacit.networks.topology import Links, Topology


class Swapped(NamedTuple):
    """One exchange: the links that it used, what neighbours read of this agent's message, and what each of them sent."""

    links: Links
    own: tuple[Tensor, ...]
    theirs: dict[int, tuple[Tensor, ...]]


class WiredNetwork:
    """Hosts one agent. Tensors have one row: its own."""

    trials = 1

    def __init__(
        self,
        agent: int,
        topology: Topology,
        transport: Transport,
        *,
        device: torch.device | None = None,
        taps: Sequence[Tap] = (),
    ) -> None:
        if not 0 <= agent < topology.agents:
            raise InvalidInput(f"agent {agent} is not among {topology.agents}, which are numbered from 0")
        self.agent, self.agents, self._topology, self._transport = agent, topology.agents, topology, transport
        self.hosted = torch.tensor([agent], device=device)
        self.bytes_sent = np.zeros(1, dtype=np.int64)
        self._taps = tuple(taps)
        self._last, self._exchanges = -1, 0

    def exchange(self, round: int, *tensors: Float[Tensor, "1 ..."], codec: Codec = DENSE) -> "WiredInbox":
        """Send the row of all tensors as one message to every neighbour in this round, and wait for theirs."""
        if not tensors:
            raise InvalidInput("an exchange needs at least one tensor to send")
        for tensor in tensors:
            if tensor.shape[0] != 1:
                raise InvalidInput(f"an exchange got {tensor.shape[0]} rows for one agent")
        self._exchanges = self._exchanges + 1 if round == self._last else 0
        self._last = round
        return WiredInbox(self, self._topology.at(round), codec, (round, self._exchanges), tensors)

    def close(self) -> None:
        """Close the transport."""
        self._transport.close()

    def swap(self, links: Links, codec: Codec, label: tuple[int, ...], tensors: tuple[Tensor, ...]) -> Swapped:
        """Send a message over all links, and wait for everybody's."""
        packets = [codec.encode(tensor) for tensor in tensors]
        message = b"".join(packet.to_bytes() for packet in packets)
        for listener in links.hearing(self.agent).tolist():
            self._transport.send(listener, label, message)
            self.bytes_sent += len(message)
        own = tuple(codec.decode(packet) for packet in packets)
        for tap in self._taps:
            tap(own)
        heard = links.of_agent(self.agent)[0].tolist()
        theirs = {sender: read_message(self._transport.receive(sender, label), packets, codec) for sender in heard}
        return Swapped(links, own, theirs)


class WiredInbox:
    """What one agent's neighbours sent; see `tacit.networks.Inbox`."""

    def __init__(
        self,
        network: WiredNetwork,
        stages: tuple[Links, ...],
        codec: Codec,
        label: tuple[int, ...],
        tensors: tuple[Tensor, ...],
    ) -> None:
        self._network, self._codec, self._label, self._stages = network, codec, label, stages
        self._first = network.swap(stages[0], codec, (*label, 0), tensors)
        self._own, self._theirs = self._first.own, self._first.theirs
        self._swaps = 1

    @property
    def degree(self) -> Float[Tensor, "1 1"]:
        """The number of neighbours it hears."""
        self._require_one("degree")
        return self._own[0].new_full((1, 1), len(self._theirs))

    @property
    def own(self) -> Any:
        """What neighbours read of this agent's message."""
        self._require_one("own")
        return one_or_all(self._own)

    def mix(self) -> Any:
        """Return the weighted sum of every tensor that was sent."""
        mixed = self._mixed(self._first)
        for links in self._stages[1:]:
            mixed = self._mixed(self._network.swap(links, self._codec, (*self._label, self._swaps), mixed))
            self._swaps += 1
        return one_or_all(mixed)

    def sum(self) -> Any:
        """Return the sum over neighbours of every tensor that was sent."""
        self._require_one("sum()")
        require_balance((self._first.links,))
        sums = []
        for place, own in enumerate(self._own):
            values = [each[place] for each in self._theirs.values()]
            total = values[0].clone() if values else torch.zeros_like(own)
            for value in values[1:]:
                total.add_(value)
            sums.append(total)
        return one_or_all(tuple(sums))

    def messages(self) -> Any:
        """Return every neighbour's value by itself."""
        self._require_one("messages()")
        present = torch.ones(1, len(self._theirs), dtype=torch.bool, device=self._own[0].device)
        found = []
        for place, own in enumerate(self._own):
            values = [each[place] for each in self._theirs.values()]
            stacked = torch.stack(values, dim=1) if values else own.new_zeros(1, 0, *own.shape[1:])
            found.append(Messages(stacked, present))
        return one_or_all(tuple(found))

    def _mixed(self, swapped: Swapped) -> tuple[Tensor, ...]:
        links, own, theirs = swapped
        agent = self._network.agent
        senders, weights = links.of_agent(agent)
        mixed = []
        for place, value in enumerate(own):
            total = value * value.new_tensor(links.own_weights[agent])
            for sender, weight in zip(senders.tolist(), weights.tolist(), strict=True):
                if weight:
                    total.add_(theirs[sender][place] * value.new_tensor(weight))
            mixed.append(total)
        return tuple(mixed)

    def _require_one(self, what: str) -> None:
        require_one_exchange(len(self._stages), what)


def read_message(message: bytes, packets: list[Packet], codec: Codec) -> tuple[Tensor, ...]:
    """Return the tensors of a neighbour's message, which has the same layout as this agent's."""
    expected = sum(packet.bytes_of_row for packet in packets)
    if len(message) != expected:
        raise InvalidInput(f"a neighbour's message has {len(message)} bytes instead of {expected}")
    first, tensors = 0, []
    for packet in packets:
        last = first + packet.bytes_of_row
        tensors.append(codec.decode(packet.like(message[first:last])))
        first = last
    return tuple(tensors)
