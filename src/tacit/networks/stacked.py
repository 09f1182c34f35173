"""All agents in one process, stacked: an exchange is a sum over rows.

This is the one place where bytes "leave" an agent: they are counted here, and a tap sees what was sent. Mixing is
synchronous: everyone reads what the others had when the exchange began. Several independent trials lie side by side on
the agents' axis, and no message crosses from one to another.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tacit.errors import InvalidInput
from tacit.networks.adding import Sum, mixing_sum, plain_sum, product
from tacit.networks.codecs import DENSE, Codec
from tacit.networks.tables import TableInbox
from tacit.networks.topology import Links, Topology

Tap = Callable[[tuple[Tensor, ...]], None]
_REMEMBERED = 64  # sets of links kept for other rounds


class _Slots(NamedTuple):
    """The row of each row's n-th neighbour; row 0 where an agent has fewer."""

    rows: Int[Tensor, "rows neighbors"]
    present: Bool[Tensor, "rows neighbors"]


class _Exchange:
    """One set of links of all trials, prepared for tensors of one type."""

    def __init__(
        self, links: Sequence[Links], trials: int, dtype: torch.dtype, device: torch.device, *, any_order: bool
    ) -> None:
        self.links, self._trials, self._device = tuple(links), trials, device
        copies = trials if len(links) == 1 else 1
        degrees = np.concatenate([each.degrees for each in links] * copies)
        self.listeners = np.concatenate([each.listeners for each in links] * copies)
        self.degree = torch.from_numpy(degrees).to(device, dtype)[:, None]
        if any_order:
            self.mix: Sum = product([each.weights for each in links], trials, dtype, device)
            self.add: Sum = product([each.heard for each in links], trials, dtype, device)
        else:
            self.mix = mixing_sum(links, trials, dtype, device)
            self.add = plain_sum(links, trials, dtype, device)
        self._slots: _Slots | None = None

    def slots(self) -> _Slots:
        """Return the rows of every row's neighbours, ascending."""
        if self._slots is None:
            agents, most = self.links[0].agents, int(max(each.degrees.max(initial=0) for each in self.links))
            rows = np.zeros((self._trials * agents, most), dtype=np.int64)
            present = np.zeros(rows.shape, dtype=bool)
            for trial in range(self._trials):
                links = self.links[trial if len(self.links) > 1 else 0]
                own = np.repeat(np.arange(agents), links.degrees)
                place = np.arange(len(own)) - np.repeat(links.heard.indptr[:-1], links.degrees)
                rows[trial * agents + own, place] = trial * agents + links.heard.indices
                present[trial * agents + own, place] = True
            self._slots = _Slots(torch.from_numpy(rows).to(self._device), torch.from_numpy(present).to(self._device))
        return self._slots


class _Read(NamedTuple):
    """What neighbours read; everybody's rows are here."""

    own: tuple[Tensor, ...]

    def tables(self) -> tuple[Tensor, ...]:
        return self.own


class StackedNetwork:
    """Neighbours' values arrive by sums over rows, block by block where there are several trials.

    `topology` is one for all trials or one for each. Values are added in the order of `Inbox`, unless `any_order` lets a matrix
    product choose its own. A tap is called with the stacked tensors of every exchange, as neighbours read them.
    """

    def __init__(
        self,
        topology: Topology | Sequence[Topology],
        *,
        trials: int = 1,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
        taps: Sequence[Tap] = (),
        any_order: bool = False,
    ) -> None:
        each = list(topology) if isinstance(topology, Sequence) else [topology]
        agents = sorted({one.agents for one in each})
        if len(each) not in (1, trials) or len(agents) != 1:
            raise InvalidInput(f"{len(each)} topologies of {agents} agents do not fit {trials} trials")
        self.trials, self.agents = trials, agents[0]
        self._topologies, self._dtype, self._any_order = each, dtype, any_order
        self._device = device or torch.device("cpu")
        self.hosted = torch.arange(self.agents, device=self._device).repeat(trials)
        self.bytes_sent = np.zeros(trials * self.agents, dtype=np.int64)
        self._taps = tuple(taps)
        self._ready: dict[tuple[int, ...], _Exchange] = {}

    def exchange(self, round: int, *tensors: Float[Tensor, "agents ..."], codec: Codec = DENSE) -> TableInbox:
        """Send the rows of all tensors as one message to every neighbour in this round."""
        if not tensors:
            raise InvalidInput("an exchange needs at least one tensor to send")
        for tensor in tensors:
            if tensor.shape[0] != self.trials * self.agents:
                raise InvalidInput(
                    f"an exchange got {tensor.shape[0]} rows for {self.trials} trials of {self.agents} agents"
                )
        return TableInbox(self, self._stages(round), codec, tensors)

    def close(self) -> None:
        """Nothing holds it."""

    def send(self, over: _Exchange, codec: Codec, tensors: tuple[Tensor, ...]) -> _Read:
        """Count a message, show it to taps, and return what neighbours read."""
        packets = [codec.encode(tensor) for tensor in tensors]
        self.bytes_sent += sum(packet.bytes_of_row for packet in packets) * over.listeners
        read = tuple(codec.decode(packet) for packet in packets)
        for tap in self._taps:
            tap(read)
        return _Read(read)

    def _stages(self, round: int) -> list[_Exchange]:
        """Return the exchanges of a round; all trials must have the same number."""
        each = [topology.at(round) for topology in self._topologies]
        if len({len(stages) for stages in each}) > 1:
            raise InvalidInput("the trials' topologies have different numbers of exchanges in a round")
        return [self._made_ready(links) for links in zip(*each, strict=True)]

    def _made_ready(self, links: tuple[Links, ...]) -> _Exchange:
        key = tuple(map(id, links))  # each is kept alive, so no other object can have its id
        if key not in self._ready:
            if len(self._ready) >= _REMEMBERED:
                self._ready.pop(next(iter(self._ready)))
            self._ready[key] = _Exchange(links, self.trials, self._dtype, self._device, any_order=self._any_order)
        return self._ready[key]
