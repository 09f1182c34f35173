"""How a message is encoded: all numbers as they are, or rounded; `sparse` and `quantised` have codecs that send less.

A codec turns stacked rows into a packet, whose parts are sent row by row, and back into what a neighbour reads. A row is
encoded independently of the others, so a stack and a single agent send the same bytes. A codec that needs randomness takes public
numbers for every message, so that both ends know them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tacit.errors import InvalidInput, choose
from tacit.registry import CODECS


class Packet(NamedTuple):
    """Encoded rows: one row of each part belongs to one agent. `shape` and `dtype` are those of a decoded row."""

    parts: tuple[Tensor, ...]
    shape: torch.Size
    dtype: torch.dtype

    @property
    def bytes_of_row(self) -> int:
        """The number of bytes that one agent sends to one neighbour."""
        return sum(part[0].numel() * part.element_size() for part in self.parts)

    def to_bytes(self, row: int = 0) -> bytes:
        """Return one agent's row as bytes."""
        return b"".join(_raw(part[row]) for part in self.parts)

    def like(self, data: bytes) -> "Packet":
        """Return a neighbour's row, which has the same parts as this packet. Raises if the length differs."""
        if len(data) != self.bytes_of_row:
            raise InvalidInput(f"a message has {len(data)} bytes instead of {self.bytes_of_row}")
        parts, first = [], 0
        for part in self.parts:
            size = part[0].numel() * part.element_size()
            raw = torch.from_numpy(np.frombuffer(data[first : first + size], dtype=np.uint8).copy())
            parts.append(raw.view(part.dtype).reshape(1, *part.shape[1:]).to(part.device))
            first += size
        return Packet(tuple(parts), self.shape, self.dtype)


class Codec(Protocol):
    """How rows travel."""

    def encode(self, rows: Float[Tensor, "rows ..."]) -> Packet:
        """Return the packet to send, every row by itself."""

    def decode(self, packet: Packet) -> Float[Tensor, "rows ..."]:
        """Return what neighbours read, in the type that was sent."""


class PublicChance(Protocol):
    """Public random numbers of one round; see `tacit.algorithms.At`."""

    def chance(self, *shape: int) -> Float[Tensor, "rows ..."]:
        """Return random numbers from [0, 1), a row of this shape for each agent."""

    def shared_chance(self, *shape: int) -> Float[Tensor, "..."]:
        """Return random numbers from [0, 1) that all agents have in common."""


class RandomCodec(Codec, Protocol):
    """A codec that needs public random numbers for every message."""

    def draw(self, at: PublicChance, widths: Sequence[int]) -> Codec:
        """Return the codec of one message, whose rows have these numbers of values."""


def drawn(codec: Codec, at: PublicChance, tensors: Sequence[Tensor]) -> Codec:
    """Return the codec for one message of these tensors, with public chance if it needs any."""
    if not hasattr(codec, "draw"):
        return codec
    return cast(RandomCodec, codec).draw(at, sorted({tensor[0].numel() for tensor in tensors}))


@dataclass(frozen=True)
class Dense:
    """All numbers as they are."""

    def encode(self, rows: Float[Tensor, "rows ..."]) -> Packet:
        """Return the rows."""
        return Packet((rows,), rows.shape[1:], rows.dtype)

    def decode(self, packet: Packet) -> Float[Tensor, "rows ..."]:
        """Return the rows."""
        return packet.parts[0]


@dataclass(frozen=True)
class BFloat16:
    """All numbers with eight bits of precision: half the bytes of float32."""

    def encode(self, rows: Float[Tensor, "rows ..."]) -> Packet:
        """Return rounded rows."""
        return Packet((rows.to(torch.bfloat16),), rows.shape[1:], rows.dtype)

    def decode(self, packet: Packet) -> Float[Tensor, "rows ..."]:
        """Return the rows in the type that was sent."""
        return packet.parts[0].to(packet.dtype)


@dataclass(frozen=True)
class Float16:
    """All numbers with eleven bits of precision: half the bytes of float32. Above 65,504 they are read as infinite."""

    def encode(self, rows: Float[Tensor, "rows ..."]) -> Packet:
        """Return rounded rows."""
        return Packet((rows.to(torch.float16),), rows.shape[1:], rows.dtype)

    def decode(self, packet: Packet) -> Float[Tensor, "rows ..."]:
        """Return the rows in the type that was sent."""
        return packet.parts[0].to(packet.dtype)


DENSE = Dense()


def find_codec(text: str) -> Codec:
    """Return a codec by name, with its number behind it where it has one: `bfloat16`, `topk:0.1`."""
    name, _, number = text.strip().partition(":")
    make = CODECS[choose("codec", name, CODECS)]
    example = CODECS.lines[name].example or name
    try:
        made: Codec = make(*([float(number)] if number else []))
    except (TypeError, ValueError) as error:
        why = f": {error}" if isinstance(error, InvalidInput) else ""
        raise InvalidInput(f"codec is {text!r}{why}; write it as in {example}") from None
    return made


def _raw(row: Tensor) -> bytes:
    """Return the bytes of a row, little-endian."""
    plain = row.detach().cpu().contiguous().reshape(-1)
    return plain.view(torch.uint8).numpy().tobytes()
