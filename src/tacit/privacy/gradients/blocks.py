"""Lots cut into blocks of the same number of records, each of one agent, so that many blocks are computed as one batch.

Every batch of a run has one fixed shape, chosen from public facts: rounding depends on the shape of a batch, so with a shape
that followed the lots, one record could change the last bits of another's gradient. Empty places are filled with a public
record that does not count. Small blocks waste little on filling; large ones read every agent's parameters less often.
`choose_size` balances the two, from expected lot sizes, which are public.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from tacit.privacy.gradients.clipping import Lot

# With other numbers of rows, the rounding of a product depends on the row's place, at least in torch's library on x86.
_SIZES = (1, 2, 4, 8, 12, 16, 24, 32)
# Numbers in a processor's vector: elementwise functions round differently in a remainder that does not fill one.
_LANES = 16
# The cost of a block beyond its records, in records: reading its parameters, writing its sum.
_OVERHEAD = 6


class Batch(NamedTuple):
    """Blocks of one size that are computed together: their agents, and which places of the lot they contain."""

    agents: Int[Tensor, " blocks"]
    rows: Int[Tensor, "blocks records"]
    keep: Bool[Tensor, "blocks records"]

    def alone(self, block: int, record: int) -> "Batch":
        """Return the batch with only one of its records, at the same place."""
        keep = torch.zeros_like(self.keep)
        keep[block, record] = True
        return Batch(self.agents, self.rows[block, record].expand_as(self.rows), keep)


def blocks_at_once(size: int, lot_sizes: Sequence[float], most: int, threads: int) -> int:
    """Return how many blocks of this size a batch should have: about what a query needs, and at most `most`.

    If possible, the number of records in a batch is a multiple of what the threads' vectors hold.
    """
    needed = sum(int(lot) // size + 1 for lot in lot_sizes)
    even = _LANES * threads // math.gcd(size, _LANES * threads)
    wanted = max(1, min(needed, most))
    rounded = max(1, wanted // even if wanted == most else -(-wanted // even)) * even
    return rounded if rounded <= most else wanted


def choose_size(lot_sizes: Sequence[float], *, most: int = _SIZES[-1]) -> int:
    """Return how many records a block should have, at most `most` and at least one."""
    means = np.unique(np.asarray(lot_sizes, dtype=float))
    spread = np.linspace(-2.5, 2.5, 21)
    counts = np.maximum(np.round(means + spread[:, None] * np.sqrt(means)), 1)  # the likely sizes of Poisson lots
    weights = np.broadcast_to(np.exp(-(spread**2) / 2)[:, None], counts.shape)

    def cost(size: int) -> float:
        return float(np.average(np.ceil(counts / size) * (size + _OVERHEAD), weights=weights))

    return min((size for size in _SIZES if size <= max(most, _SIZES[0])), key=cost)


def batches_of(lot: Lot, size: int, at_once: int) -> Iterator[Batch]:
    """Cut every agent's records into blocks of one size, and yield `at_once` blocks at a time.

    The last batch is filled with empty blocks of agent 0.
    """
    counts, device = lot.counts, lot.offsets.device
    blocks = -(-counts // size)
    agents = torch.arange(len(counts), device=device).repeat_interleave(blocks)
    number = torch.arange(len(agents), device=device) - (blocks.cumsum(0) - blocks)[agents]
    within = number[:, None] * size + torch.arange(size, device=device)
    keep = within < counts[agents][:, None]
    rows = lot.offsets[:-1][agents][:, None] + torch.where(keep, within, 0)  # never another agent's record
    for first in range(0, len(agents), at_once):
        part = slice(first, first + at_once)
        if (missing := first + at_once - len(agents)) > 0:
            agents = torch.cat([agents, agents.new_zeros(missing)])
            rows = torch.cat([rows, rows[:1, :1].expand(missing, size)])
            keep = torch.cat([keep, keep.new_zeros(missing, size)])
        yield Batch(agents[part], rows[part], keep[part])
