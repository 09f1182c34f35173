"""How one agent's neighbours' values arrive at a peer: the exchange of a wired network, over links that may be skipped."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.errors import InvalidInput
from tacit.networks import Codec, Links, Tap, Topology, WiredNetwork
from tacit.networks.skipped import skip_links
from tacit.networks.wired import Swapped, read_message
from tacit.peer.protocol.core import Core
from tacit.peer.protocol.driver import Suspended
from tacit.peer.protocol.interface import Refused, Slot
from tacit.peer.protocol.link import Pending


class _NoTransport:
    """Messages of a peer go through its core."""

    def send(self, to: int, label: tuple[int, ...], data: bytes) -> None:
        raise AssertionError("a peer's messages are sent by its core")

    def receive(self, sender: int, label: tuple[int, ...]) -> bytes:
        raise AssertionError("a peer's messages are received by its core")

    def close(self) -> None:
        """Nothing is open."""


class PeerNetwork(WiredNetwork):
    """Hosts one agent. An exchange that is not settled raises `Suspended`; the round is then played again from its beginning."""

    def __init__(
        self,
        agent: int,
        topology: Topology,
        core: Core,
        *,
        device: torch.device | None = None,
        taps: Sequence[Tap] = (),
    ) -> None:
        super().__init__(agent, topology, _NoTransport(), device=device, taps=taps)
        self._core = core
        self._counted = Slot(-1, 0)
        self._swaps = 0

    def rewind(self) -> None:
        """Begin a round, possibly again."""
        self._last, self._swaps = -1, 0

    def neighbors_of(self, round: int) -> set[int]:
        """Return with whom the agent exchanges messages in a round."""
        return {other for links in self._topology.at(round) for other in links.of_agent(self.agent)[0].tolist()}

    def swap(self, links: Links, codec: Codec, label: tuple[int, ...], tensors: tuple[Tensor, ...]) -> Swapped:
        """Exchange a message over all links that both ends use."""
        if not links.symmetric:
            raise InvalidInput(f"the links of round {label[0]} are not mutual with equal weights, which peers need")
        slot = Slot(label[0], self._swaps)
        self._swaps += 1
        packets = [codec.encode(tensor) for tensor in tensors]
        message = b"".join(packet.to_bytes() for packet in packets)
        bound = self._core.terms.norm_bound

        def accept(theirs: bytes) -> None:
            try:
                read = read_message(theirs, packets, codec)
            except InvalidInput as error:
                raise Refused("a message that cannot be read") from error
            if not all(bool(tensor.isfinite().all()) for tensor in read):
                raise Refused("a message with numbers that are not finite")
            if any(float(tensor.double().norm()) > bound for tensor in read):
                raise Refused("a message beyond the norm bound")

        neighbors = tuple(links.of_agent(self.agent)[0].tolist())
        pending = Pending(slot, message, neighbors, accept)
        heard = self._core.outcome(pending)
        if heard is None:
            raise Suspended(pending)
        own = tuple(codec.decode(packet) for packet in packets)
        if slot > self._counted:
            self._counted = slot
            self.bytes_sent += len(message) * len(heard)
            for tap in self._taps:
                tap(own)
        skipped = {(min(self.agent, other), max(self.agent, other)) for other in neighbors if other not in heard}
        theirs = {sender: read_message(data, packets, codec) for sender, data in heard.items()}
        return Swapped(skip_links(links, skipped), own, theirs)
