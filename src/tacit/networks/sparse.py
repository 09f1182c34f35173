"""Codecs that send a few numbers of every row: the largest ones, or a random choice that everybody knows."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from tacit.errors import InvalidInput
from tacit.networks.codecs import Packet, PublicChance


@dataclass(frozen=True)
class TopK:
    """The given share of a row's numbers with the largest absolute values, with their places; the rest is read as zero.

    Of equal numbers, the first are sent.
    """

    share: float

    def __post_init__(self) -> None:
        check_share(self.share)

    def encode(self, rows: Float[Tensor, "rows ..."]) -> Packet:
        """Return places and values of the largest numbers, ascending by place."""
        flat = rows.flatten(1)
        kept = kept_of(flat.shape[1], self.share)
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


@dataclass(frozen=True)
class RandomK:
    """The given share of all numbers, chosen anew for every message by public chance, the same for all agents; the rest is read as zero.

    Both ends know the places from the run's seed, so only values travel. All agents choose the same places, so these numbers are
    mixed as without a codec, and the others stay as they are.
    """

    share: float
    places: Mapping[int, Tensor] | None = field(default=None, repr=False, compare=False)
    """Which numbers are sent in a message, by the width of its rows; drawn for every message."""

    def __post_init__(self) -> None:
        check_share(self.share)

    def draw(self, at: PublicChance, widths: Sequence[int]) -> "RandomK":
        """Return the codec of one message."""
        places = {
            width: at.shared_chance(width).argsort(stable=True)[: kept_of(width, self.share)].sort().values
            for width in widths
        }
        return replace(self, places=places)

    def encode(self, rows: Float[Tensor, "rows ..."]) -> Packet:
        """Return the chosen values, ascending by place."""
        flat = rows.flatten(1)
        return Packet((flat.index_select(1, self._places(flat.shape[1])),), rows.shape[1:], rows.dtype)

    def decode(self, packet: Packet) -> Float[Tensor, "rows ..."]:
        """Return rows of zeros with the numbers that were sent."""
        (values,) = packet.parts
        width = math.prod(packet.shape)
        flat = values.new_zeros(len(values), width).index_copy_(1, self._places(width), values)
        return flat.reshape(len(values), *packet.shape)

    def _places(self, width: int) -> Tensor:
        if self.places is None or width not in self.places:
            raise InvalidInput(
                "RandomK needs a random choice for every message, which at.exchange of a rule draws; use it there"
            )
        return self.places[width]


def check_share(share: float) -> None:
    """Raise unless a share lies between none and all."""
    if not 0 < share <= 1:
        raise InvalidInput(f"share is {share}; it must lie in (0, 1]")


def kept_of(width: int, share: float) -> int:
    """Return how many of `width` numbers a share of them is, at least one."""
    return max(1, math.ceil(share * width * (1 - 1e-12)))  # 0.07 of 100 numbers are 7, whatever 0.07 * 100 is
