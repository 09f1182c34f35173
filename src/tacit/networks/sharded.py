"""Some of the agents in each process of a group of torch.distributed.

Agents of the same process are summed over as in a stack. What they hear of agents elsewhere arrives by one all-to-all, in which each
value crosses once to every process that needs it, however many agents there hear it. Who needs what follows from the links, which all
processes know, so it is computed once for each set of links and nothing is negotiated. Values are added in the order that all networks use.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from tacit.errors import InvalidInput
from tacit.networks.adding import OrderedSum
from tacit.networks.arriving import Arriving, DenseArriving, EncodedArriving, Room, as_bytes, rank_losses_reported
from tacit.networks.codecs import DENSE, Codec
from tacit.networks.stacked import Tap
from tacit.networks.tables import TableInbox
from tacit.networks.topology import Links, Topology

Shards = Sequence[Sequence[int]]
"""The agents of each rank, ascending."""
_REMEMBERED = 64  # sets of links kept for other rounds


class Crossing(NamedTuple):
    """Which agents' rows cross between processes over one set of links, as one of them sees it."""

    sent: NDArray[np.int64]
    """The agents whose rows leave, by receiving rank and then by number."""
    sent_to: list[int]
    """How many of them go to each rank."""
    received: NDArray[np.int64]
    """The agents whose rows arrive, by rank and then by number."""
    received_from: list[int]
    """How many of them come from each rank."""


def find_crossing(links: Links, rank_of: NDArray[np.int64], rank: int, ranks: int) -> Crossing:
    """Return whose rows cross to and from a rank; every rank finds the same from the same links."""
    listener = np.repeat(np.arange(links.agents), links.degrees)
    speaker = links.heard.indices.astype(np.int64)
    to, source = rank_of[listener], rank_of[speaker]
    out = np.unique(to[leaving := (source == rank) & (to != rank)] * links.agents + speaker[leaving])
    inward = np.unique(source[arriving := (to == rank) & (source != rank)] * links.agents + speaker[arriving])
    return Crossing(
        out % links.agents,
        np.bincount(out // links.agents, minlength=ranks).tolist(),
        inward % links.agents,
        np.bincount(inward // links.agents, minlength=ranks).tolist(),
    )


class _ShardedExchange:
    """One set of links, prepared for the hosted agents and for tensors of one type.

    `mix`, `add` and `slots` refer to a table: the hosted agents' rows, then those that arrive.
    """

    def __init__(
        self,
        links: Links,
        shards: Shards,
        rank_of: NDArray[np.int64],
        rank: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        own = np.asarray(shards[rank], dtype=np.int64)
        self.links, self._device = (links,), device
        self.crossing = find_crossing(links, rank_of, rank, len(shards))
        place = np.full(links.agents, -1, dtype=np.int64)
        place[own] = np.arange(len(own))
        self.leaving = torch.from_numpy(place[self.crossing.sent]).to(device)
        place[self.crossing.received] = len(own) + np.arange(len(self.crossing.received))
        self.listeners = links.listeners[own]
        self.degree = torch.from_numpy(links.degrees[own]).to(device, dtype)[:, None]

        counts = links.degrees[own]
        within = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
        entries = np.repeat(links.heard.indptr[own], counts) + within
        rows = np.repeat(np.arange(len(own)), counts)
        columns, weights = place[links.heard.indices[entries]], links.neighbor_weights[entries]
        table = len(own) + len(self.crossing.received)
        heavy = weights != 0
        self.mix = OrderedSum(
            _in_given_order(rows[heavy], columns[heavy], weights[heavy], (len(own), table)),
            links.own_weights[own],
            dtype,
            device,
        )
        self.add = OrderedSum(
            _in_given_order(rows, columns, np.ones(len(rows)), (len(own), table)), None, dtype, device
        )
        self._rows, self._columns = rows, columns

    def slots(self) -> tuple[Int[Tensor, "rows neighbors"], Bool[Tensor, "rows neighbors"]]:
        """Return the place of every row's n-th neighbour in the table, and whether there is one."""
        hosted, most = len(self.listeners), int(self.links[0].degrees.max(initial=0))
        places, present = np.zeros((hosted, most), dtype=np.int64), np.zeros((hosted, most), dtype=bool)
        counts = np.bincount(self._rows, minlength=hosted)
        nth = np.arange(len(self._rows)) - np.repeat(counts.cumsum() - counts, counts)
        places[self._rows, nth], present[self._rows, nth] = self._columns, True
        return torch.from_numpy(places).to(self._device), torch.from_numpy(present).to(self._device)


def _in_given_order(
    rows: NDArray[np.int64], columns: NDArray[np.int64], data: NDArray[np.float64], shape: tuple[int, int]
) -> sparse.csr_array:
    """Return a matrix whose entries stay in the order given: by agents' numbers, which is not that of the table's rows."""
    starts = np.concatenate([[0], np.bincount(rows, minlength=shape[0]).cumsum()])
    return sparse.csr_array((data, columns, starts), shape=shape)


class ShardedNetwork:
    """Hosts one rank's agents; `group` is the process group, the default one unless given.

    `bytes_sent` counts what each agent sends to each neighbour, as on every network; `bytes_crossed` what actually leaves this process.
    """

    trials = 1

    def __init__(
        self,
        topology: Topology,
        shards: Shards,
        rank: int,
        *,
        group: Any = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
        taps: Sequence[Tap] = (),
    ) -> None:
        self.agents, self.shards, self.rank = topology.agents, shards, rank
        self._rank_of = ranks_of(shards, topology.agents)
        self._topology, self._group, self._dtype = topology, group, dtype
        self._device = device or torch.device("cpu")
        self.hosted = torch.tensor(list(shards[rank]), dtype=torch.int64, device=self._device)
        self.bytes_sent = np.zeros(len(self.hosted), dtype=np.int64)
        self.bytes_crossed = 0
        self._taps = tuple(taps)
        self._ready: dict[int, _ShardedExchange] = {}
        self._room = Room()

    def exchange(self, round: int, *tensors: Float[Tensor, "rows ..."], codec: Codec = DENSE) -> TableInbox:
        """Send the rows of all tensors as one message to every neighbour in this round; those of other ranks travel meanwhile."""
        if not tensors:
            raise InvalidInput("an exchange needs at least one tensor to send")
        for tensor in tensors:
            if tensor.shape[0] != len(self.hosted):
                raise InvalidInput(
                    f"an exchange got {tensor.shape[0]} rows for the {len(self.hosted)} agents hosted here"
                )
        return TableInbox(self, [self._made_ready(links) for links in self._topology.at(round)], codec, tensors)

    def close(self) -> None:
        """Leave the process group to whoever made it."""

    def send(self, over: _ShardedExchange, codec: Codec, tensors: tuple[Tensor, ...]) -> Arriving:
        """Count a message, show it to taps, and send off what other ranks need."""
        packets = [codec.encode(tensor) for tensor in tensors]
        self.bytes_sent += sum(packet.bytes_of_row for packet in packets) * over.listeners
        own = tuple(codec.decode(packet) for packet in packets)
        for tap in self._taps:
            tap(own)
        if len(self.shards) == 1:
            return Arriving(own)
        if codec == DENSE and len(own) == 1:
            return self._send_dense(over, own[0])
        parts = [as_bytes(part.index_select(0, over.leaving)) for packet in packets for part in packet.parts]
        leaving = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        arriving = leaving.new_empty(len(over.crossing.received), leaving.shape[1])
        return EncodedArriving(own, packets, codec, self._swap(over, leaving, arriving), (leaving, arriving))

    def _send_dense(self, over: _ShardedExchange, own: Tensor) -> Arriving:
        leaving = self._room.take(own, len(over.leaving))
        torch.index_select(own, 0, over.leaving, out=leaving)
        table = self._room.take(own, len(own) + len(over.crossing.received))
        work = self._swap(over, as_bytes(leaving), as_bytes(table[len(own) :]))
        return DenseArriving(own, work, leaving, table, self._room)

    def _swap(self, over: _ShardedExchange, leaving: Tensor, arriving: Tensor) -> Any:
        self.bytes_crossed += leaving.numel()
        return swap_rows(leaving, over.crossing.sent_to, arriving, over.crossing.received_from, self._group)

    def _made_ready(self, links: Links) -> _ShardedExchange:
        key = id(links)  # the exchange keeps it alive, so no other object can have its id
        if key not in self._ready:
            if len(self._ready) >= _REMEMBERED:
                self._ready.pop(next(iter(self._ready)))
            self._ready[key] = _ShardedExchange(links, self.shards, self._rank_of, self.rank, self._dtype, self._device)
        return self._ready[key]


def ranks_of(shards: Shards, agents: int) -> NDArray[np.int64]:
    """Return the rank of each agent. Raises unless every agent has one, and each rank's agents ascend."""
    found = np.full(agents, -1, dtype=np.int64)
    for rank, own in enumerate(shards):
        if not len(own) or list(own) != sorted(set(own)) or own[0] < 0 or own[-1] >= agents:
            raise InvalidInput(f"rank {rank} hosts {list(own)[:5]}; give it agents out of {agents}, in ascending order")
        found[list(own)] = rank
    if sum(map(len, shards)) != agents or (found < 0).any():
        raise InvalidInput(
            f"the ranks host {sum(map(len, shards))} agents in all; each of {agents} must be hosted once"
        )
    return found


def swap_rows(leaving: Tensor, sent_to: list[int], arriving: Tensor, received_from: list[int], group: Any) -> Any:
    """Start to send `sent_to` rows to the ranks and to receive `received_from` from them; return what to wait for."""
    with rank_losses_reported():
        return dist.all_to_all_single(arriving, leaving, received_from, sent_to, group=group, async_op=True)
