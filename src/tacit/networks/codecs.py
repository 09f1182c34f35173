"""How a message is encoded: all numbers as they are, rounded, or only the largest ones.

A codec turns stacked rows into a packet, whose parts are sent row by row, and back into what a neighbour reads. A row is
encoded independently of the others, so a stack and a single agent send the same bytes.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

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
class TopK:
    """The given share of a row's numbers with the largest absolute values, with their places; the rest is read as zero.

    Of equal numbers, the first are sent.
    """

    share: float

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise InvalidInput(f"share is {self.share}; it must lie in (0, 1]")

    def encode(self, rows: Float[Tensor, "rows ..."]) -> Packet:
        """Return places and values of the largest numbers, ascending by place."""
        flat = rows.flatten(1)
        kept = max(1, math.ceil(self.share * flat.shape[1]))
        size = flat.abs().nan_to_num(nan=torch.inf)
        least = size.topk(kept, dim=1).values[:, -1:]
        equal = size == least
        room = kept - (size > least).sum(1, keepdim=True)
        sent = (size > least) | (equal & (equal.cumsum(1) <= room))
        places = sent.to(torch.uint8).topk(kept, dim=1).indices.sort(dim=1).values
        return Packet((places.to(torch.int32), flat.gather(1, places)), rows.shape[1:], rows.dtype)

    def decode(self, packet: Packet) -> Float[Tensor, "rows ..."]:
        """Return rows of zeros with the numbers that were sent. Raises if a place is outside a row."""
        places, values = packet.parts
        width = math.prod(packet.shape)
        if len(places) and not bool(((places >= 0) & (places < width)).all()):
            raise InvalidInput(f"a message has a place outside its {width} numbers")
        flat = values.new_zeros(len(values), width).scatter_(1, places.long(), values)
        return flat.reshape(len(values), *packet.shape)


DENSE = Dense()


def find_codec(text: str) -> Codec:
    """Return a codec by name, with its number behind it where it has one: `bfloat16`, `topk:0.1`."""
    name, _, number = text.strip().partition(":")
    make = CODECS[choose("codec", name, CODECS)]
    example = CODECS.lines[name].example or name
    try:
        made: Codec = make(*([float(number)] if number else []))
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"codec is {text!r}; write it as in {example}") from None
    return made


def _raw(row: Tensor) -> bytes:
    """Return the bytes of a row, little-endian."""
    plain = row.detach().cpu().contiguous().reshape(-1)
    return plain.view(torch.uint8).numpy().tobytes()
