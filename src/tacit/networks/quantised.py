"""QSGD: every number as one of a few levels, rounded up or down at random so that it is right on average.

Alistarh et al., *QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding*, NeurIPS 2017. Numbers are divided into buckets,
and each bucket is scaled by its largest absolute value. With the Euclidean norm of a wide row instead, most of its numbers would be
rounded to zero.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from tacit.errors import InvalidInput
from tacit.networks.codecs import Packet, PublicChance

_BUCKET = 512  # numbers with one scale
_BITS = (2, 4, 8)


@dataclass(frozen=True)
class QSGD:
    """Every number in 2, 4 or 8 bits, and for every 512 numbers a scale in float32.

    With b bits there are 2^(b−1) − 1 levels on either side of zero. Rounding is by public chance, and unbiased.
    """

    bits: float
    chances: Mapping[int, Tensor] | None = field(default=None, repr=False, compare=False)
    """The random numbers of a message, by the width of its rows; drawn for every message."""

    def __post_init__(self) -> None:
        if self.bits not in _BITS:
            raise InvalidInput(f"bits is {self.bits:g}; QSGD takes 2, 4 or 8 bits for each number")

    def draw(self, at: PublicChance, widths: Sequence[int]) -> "QSGD":
        """Return the codec of one message."""
        return replace(self, chances={width: at.chance(width) for width in widths})

    def encode(self, rows: Float[Tensor, "rows ..."]) -> Packet:
        """Return levels, several in a byte, and scales."""
        flat = rows.flatten(1)
        width = flat.shape[1]
        if self.chances is None or width not in self.chances:
            raise InvalidInput(
                "QSGD needs random numbers for every message, which at.exchange of a rule draws; use it there"
            )
        buckets = _in_buckets(flat)
        scales = buckets.abs().amax(2, keepdim=True)
        scales = torch.where(scales.isfinite(), scales, torch.nan).float()
        share = buckets / torch.where(scales > 0, scales, 1.0).to(flat.dtype)
        whole = share.abs().mul(self._levels).nan_to_num(nan=0.0)
        up = _in_buckets(self.chances[width].to(flat.dtype))
        level = (whole + up).floor().clamp(max=self._levels).copysign(share)
        codes = (level.flatten(1)[:, :width] + self._levels).to(torch.uint8)
        return Packet((self._packed(codes), scales.flatten(1)), rows.shape[1:], rows.dtype)

    def decode(self, packet: Packet) -> Float[Tensor, "rows ..."]:
        """Return the levels times their scales."""
        packed, scales = packet.parts
        width = math.prod(packet.shape)
        codes = self._unpacked(packed)[:, :width].clamp(max=2 * self._levels)
        level = _in_buckets(codes.to(packet.dtype) - self._levels)
        flat = (level / self._levels * scales[:, :, None].to(packet.dtype)).flatten(1)[:, :width]
        return flat.reshape(len(flat), *packet.shape)

    @property
    def _levels(self) -> int:
        return int(2 ** (self.bits - 1)) - 1

    @property
    def _shifts(self) -> range:
        return range(0, 8, int(self.bits))

    def _packed(self, codes: Tensor) -> Tensor:
        """Return several codes in each byte, the first in the lowest bits."""
        parts = torch.nn.functional.pad(codes, (0, -codes.shape[1] % len(self._shifts))).unflatten(
            1, (-1, len(self._shifts))
        )
        total = torch.zeros_like(parts[:, :, 0])
        for place, shift in enumerate(self._shifts):
            total = total | (parts[:, :, place] << shift)
        return total

    def _unpacked(self, packed: Tensor) -> Tensor:
        mask = int(2**self.bits) - 1
        return torch.stack([(packed >> shift) & mask for shift in self._shifts], dim=2).flatten(1)


def _in_buckets(flat: Float[Tensor, "rows width"]) -> Float[Tensor, "rows buckets numbers"]:
    """Return rows in buckets of equal size, filled up with zeros."""
    size = min(_BUCKET, flat.shape[1])
    return torch.nn.functional.pad(flat, (0, -flat.shape[1] % size)).unflatten(1, (-1, size))
