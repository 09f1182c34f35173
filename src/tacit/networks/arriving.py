"""Messages between ranks on their way, and the buffers that they use. Who sends them is `tacit.networks.sharded`."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from tacit.errors import RankLost
from tacit.networks.codecs import Codec, Packet

_KEPT = 2  # buffers: one that rows leave from, and one where they arrive


class Arriving:
    """A message to other ranks: what neighbours read of the hosted agents' rows, and the table once all rows have arrived."""

    def __init__(self, own: tuple[Tensor, ...]) -> None:
        self.own = own
        self._tables: tuple[Tensor, ...] | None = None

    def tables(self) -> tuple[Tensor, ...]:
        """Wait for the other ranks, and return the hosted agents' rows of each tensor followed by theirs. They live as long as this object."""
        if self._tables is None:
            self._tables = self._collect()
        return self._tables

    def _collect(self) -> tuple[Tensor, ...]:
        """Return the rows of a rank that is alone."""
        return self.own


class EncodedArriving(Arriving):
    """Packets of any codec. Both buffers live until all rows have arrived."""

    def __init__(
        self,
        own: tuple[Tensor, ...],
        packets: Sequence[Packet],
        codec: Codec,
        work: Any,
        buffers: tuple[Tensor, Tensor],
    ) -> None:
        super().__init__(own)
        self._packets, self._codec, self._work, self._buffers = packets, codec, work, buffers

    def _collect(self) -> tuple[Tensor, ...]:
        wait_for(self._work)
        theirs = _read(self._buffers[1], self._packets, self._codec)
        del self._work, self._buffers
        return tuple(torch.cat(pair) for pair in zip(self.own, theirs, strict=True))


class DenseArriving(Arriving):
    """Rows of one tensor as they are, received straight into the table. Its buffers return to the room once nobody reads them."""

    def __init__(self, own: Tensor, work: Any, leaving: Tensor, table: Tensor, room: "Room") -> None:
        super().__init__((own,))
        self._work, self._leaving, self._table, self._room = work, leaving, table, room

    def _collect(self) -> tuple[Tensor, ...]:
        wait_for(self._work)
        self._table[: len(self.own[0])].copy_(self.own[0])
        return (self._table,)

    def __del__(self) -> None:
        if self._tables is not None:  # otherwise rows may still be on their way
            self._room.give_back(self._leaving, self._table)


class Room:
    """Buffers of earlier messages, kept for the next ones: getting a large one from the system takes longer than filling it."""

    def __init__(self) -> None:
        self._free: list[Tensor] = []

    def take(self, like: Tensor, count: int) -> Tensor:
        """Return `count` rows like these, with any content."""
        size = count * math.prod(like.shape[1:])
        for place, flat in enumerate(self._free):
            if flat.numel() >= size and (flat.dtype, flat.device) == (like.dtype, like.device):
                return self._free.pop(place)[:size].view(count, *like.shape[1:])
        return like.new_empty(size).view(count, *like.shape[1:])

    def give_back(self, *buffers: Tensor) -> None:
        """Keep the largest buffers; nobody may still use those given back."""
        flat = [buffer.new_empty(0).set_(buffer.untyped_storage()) for buffer in buffers]
        self._free = sorted([*self._free, *flat], key=Tensor.numel)[-_KEPT:]


def wait_for(work: Any) -> None:
    """Wait until what was sent has arrived."""
    with rank_losses_reported():
        work.wait()


@contextmanager
def rank_losses_reported() -> Iterator[None]:
    """Turn what torch.distributed raises when another process is gone or silent into an error of ours."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, RankLost):
            raise
        cause = str(error).splitlines()[0][:200]
        raise RankLost(f"another rank ended, or did not answer within the deadline: {cause}") from error


def as_bytes(rows: Tensor) -> Tensor:
    """Return rows of any type as rows of bytes, without a copy where they are contiguous."""
    return rows.reshape(len(rows), math.prod(rows.shape[1:])).contiguous().view(torch.uint8)


def _read(arriving: Tensor, packets: Sequence[Packet], codec: Codec) -> tuple[Tensor, ...]:
    """Return the tensors in rows of bytes, which have the layout of this process's own packets."""
    first, tensors = 0, []
    for packet in packets:
        parts = []
        for part in packet.parts:
            item = part.element_size()
            last = first + part[0].numel() * item
            raw = arriving[:, first:last]
            if first % item or arriving.shape[1] % item:  # a number must begin where its type may begin
                raw = raw.clone(memory_format=torch.contiguous_format)
            parts.append(raw.view(part.dtype).reshape(len(arriving), *part.shape[1:]))
            first = last
        tensors.append(codec.decode(Packet(tuple(parts), packet.shape, packet.dtype)))
    return tuple(tensors)
