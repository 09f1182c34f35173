"""Lots cut into blocks of equally many records, each of one agent, so that many blocks are worked on as one batch.

Every batch has one of a few fixed shapes, chosen from public facts: libraries round by the shape of a batch, so a shape that
followed the lots would let one record change the last bits of another's gradient. What is not full is filled up with a public
record that does not count. Small blocks waste little on that; large ones read every agent's parameters less often.
`choose_sizes` weighs the two, from expected lot sizes, which are public.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from tacit.privacy.clipping import Lot

# Products of other numbers of rows are rounded by the row's place, at least by the library that torch comes with on x86.
_SIZES = (1, 2, 4, 8, 12, 16, 24, 32)
# Numbers in a vector of the processor: elementwise functions are rounded differently in a rest that fills none.
_LANES = 16
# What a block costs beside its records, in records: its parameters are read, its sum is written.
_OVERHEAD = 6
# A further size must save so much: each is compiled by itself.
_WORTH_A_SIZE = 0.93
_MOST_SIZES = 3


class Step(NamedTuple):
    """Some blocks of one size that are worked on as one batch: whose they are, and which places of the lot they hold."""

    agents: Int[Tensor, " blocks"]
    rows: Int[Tensor, "blocks records"]
    keep: Bool[Tensor, "blocks records"]

    def alone(self, block: int, record: int) -> "Step":
        """Return the step with one of its records only, at the place where it stands."""
        keep = torch.zeros_like(self.keep)
        keep[block, record] = True
        return Step(self.agents, self.rows[block, record].expand_as(self.rows), keep)


class Cut(NamedTuple):
    """All blocks of one size that a lot falls into; `rows` are places in the lot."""

    agents: Int[Tensor, " blocks"]
    rows: Int[Tensor, "blocks records"]
    keep: Bool[Tensor, "blocks records"]

    def steps(self, at_once: int) -> Iterator[Step]:
        """Yield the blocks in steps of as many as asked for; the last is filled up with empty blocks of agent 0."""
        for first in range(0, len(self.agents), at_once):
            part = slice(first, first + at_once)
            agents, rows, keep = self.agents[part], self.rows[part], self.keep[part]
            if missing := at_once - len(agents):
                agents = torch.cat([agents, agents.new_zeros(missing)])
                rows = torch.cat([rows, rows[:1, :1].expand(missing, rows.shape[1])])
                keep = torch.cat([keep, keep.new_zeros(missing, keep.shape[1])])
            yield Step(agents, rows, keep)


def blocks_at_once(size: int, lot_sizes: Sequence[float], most: int, threads: int) -> int:
    """Return how many blocks of this size a step should hold: about what a query needs, and at most `most`.

    Where it can be, the records of a step are a multiple of what the threads' vectors hold.
    """
    needed = sum(int(lot) // size + 1 for lot in lot_sizes)
    even = _LANES * threads // math.gcd(size, _LANES * threads)
    wanted = max(1, min(needed, most))
    rounded = max(1, wanted // even if wanted == most else -(-wanted // even)) * even
    return rounded if rounded <= most else wanted


def choose_sizes(lot_sizes: Sequence[float], *, most: int = _SIZES[-1]) -> tuple[int, ...]:
    """Return how many records blocks should hold: one size or a few, and at most `most` unless that is less than one."""
    sizes = [size for size in _SIZES if size <= most] or _SIZES[:1]
    means = np.unique(np.asarray(lot_sizes, dtype=float))
    spread = np.linspace(-2.5, 2.5, 21)
    counts = np.maximum(np.round(means + spread[:, None] * np.sqrt(means)), 1)  # about where Poisson lots fall
    weights = np.broadcast_to(np.exp(-(spread**2) / 2)[:, None], counts.shape)
    best: tuple[int, ...] = ()
    for number in range(1, min(_MOST_SIZES, len(sizes)) + 1):
        found = min(combinations(sizes, number), key=lambda some: _cost(some, counts, weights))
        if number == 1 or _cost(found, counts, weights) < _WORTH_A_SIZE * _cost(best, counts, weights):
            best = found
    return best


def cut(lot: Lot, sizes: Sequence[int]) -> Iterator[Cut]:
    """Cut every agent's records into blocks of the largest size, and the rest into one of the smallest that holds it."""
    counts, device = lot.counts, lot.offsets.device
    everyone = torch.arange(len(counts), device=device)
    rest = counts % sizes[-1]
    fits = torch.bucketize(rest, torch.tensor(sizes, device=device))
    for place, size in enumerate(sizes):
        own = (fits == place) & (rest > 0)
        agents, starts = everyone[own], (counts - rest)[own]
        if place == len(sizes) - 1:
            whole = counts // size
            repeated = everyone.repeat_interleave(whole)
            number = torch.arange(len(repeated), device=device) - (whole.cumsum(0) - whole)[repeated]
            agents, starts = torch.cat([repeated, agents]), torch.cat([number * size, starts])
        if not len(agents):
            continue
        within = starts[:, None] + torch.arange(size, device=device)
        keep = within < counts[agents][:, None]
        firsts = lot.offsets[:-1][agents][:, None]
        yield Cut(agents, firsts + torch.where(keep, within, 0), keep)


def _cost(sizes: Sequence[int], counts: np.ndarray, weights: np.ndarray) -> float:
    ends = np.asarray(sizes)
    rest = counts % ends[-1]
    last = np.where(rest > 0, ends[np.searchsorted(ends, rest).clip(max=len(ends) - 1)] + _OVERHEAD, 0)
    return float(np.average(counts // ends[-1] * (ends[-1] + _OVERHEAD) + last, weights=weights))
