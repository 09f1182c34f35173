"""Lots cut into blocks of equally many records, each of one agent, so that many blocks are worked on as one batch.

Every batch of a run has one fixed shape, chosen from public facts: libraries round by the shape of a batch, so a shape that
followed the lots would let one record change the last bits of another's gradient. What is not full is filled up with a public
record that does not count. Small blocks waste little on that; large ones read every agent's parameters less often.
`choose_size` weighs the two, from expected lot sizes, which are public.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from tacit.privacy.gradients.clipping import Lot

# Products of other numbers of rows are rounded by the row's place, at least by the library that torch comes with on x86.
_SIZES = (1, 2, 4, 8, 12, 16, 24, 32)
# Numbers in a vector of the processor: elementwise functions are rounded differently in a rest that fills none.
_LANES = 16
# What a block costs beside its records, in records: its parameters are read, its sum is written.
_OVERHEAD = 6


class Batch(NamedTuple):
    """Some blocks of one size that are worked on as one batch: whose they are, and which places of the lot they hold."""

    agents: Int[Tensor, " blocks"]
    rows: Int[Tensor, "blocks records"]
    keep: Bool[Tensor, "blocks records"]

    def alone(self, block: int, record: int) -> "Batch":
        """Return the batch with one of its records only, at the place where it stands."""
        keep = torch.zeros_like(self.keep)
        keep[block, record] = True
        return Batch(self.agents, self.rows[block, record].expand_as(self.rows), keep)


def blocks_at_once(size: int, lot_sizes: Sequence[float], most: int, threads: int) -> int:
    """Return how many blocks of this size a batch should hold: about what a query needs, and at most `most`.

    Where it can be, the records of a batch are a multiple of what the threads' vectors hold.
    """
    needed = sum(int(lot) // size + 1 for lot in lot_sizes)
    even = _LANES * threads // math.gcd(size, _LANES * threads)
    wanted = max(1, min(needed, most))
    rounded = max(1, wanted // even if wanted == most else -(-wanted // even)) * even
    return rounded if rounded <= most else wanted


def choose_size(lot_sizes: Sequence[float], *, most: int = _SIZES[-1]) -> int:
    """Return how many records blocks should hold, at most `most` unless that is less than one."""
    means = np.unique(np.asarray(lot_sizes, dtype=float))
    spread = np.linspace(-2.5, 2.5, 21)
    counts = np.maximum(np.round(means + spread[:, None] * np.sqrt(means)), 1)  # about where Poisson lots fall
    weights = np.broadcast_to(np.exp(-(spread**2) / 2)[:, None], counts.shape)

    def cost(size: int) -> float:
        return float(np.average(np.ceil(counts / size) * (size + _OVERHEAD), weights=weights))

    return min((size for size in _SIZES if size <= max(most, _SIZES[0])), key=cost)


def batches_of(lot: Lot, size: int, at_once: int) -> Iterator[Batch]:
    """Cut every agent's records into blocks of one size, and yield them so many at a time.

    The last batch is filled up with empty blocks of agent 0.
    """
    counts, device = lot.counts, lot.offsets.device
    blocks = -(-counts // size)
    agents = torch.arange(len(counts), device=device).repeat_interleave(blocks)
    number = torch.arange(len(agents), device=device) - (blocks.cumsum(0) - blocks)[agents]
    within = number[:, None] * size + torch.arange(size, device=device)
    keep = within < counts[agents][:, None]
    rows = lot.offsets[:-1][agents][:, None] + torch.where(keep, within, 0)  # never another's record
    for first in range(0, len(agents), at_once):
        part = slice(first, first + at_once)
        if (missing := first + at_once - len(agents)) > 0:
            agents = torch.cat([agents, agents.new_zeros(missing)])
            rows = torch.cat([rows, rows[:1, :1].expand(missing, size)])
            keep = torch.cat([keep, keep.new_zeros(missing, size)])
        yield Batch(agents[part], rows[part], keep[part])
