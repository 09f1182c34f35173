"""Lots, and how the vectors of their records are clipped and added up: the one computation that touches records.

The interface of an engine is narrow on purpose: stacked parameters and flat records with offsets per agent go in, one
clipped sum per agent comes out, with norms for the oracle's diagnostics.

Sums are exact. A record's clipped vector is truncated to whole multiples of a public quantum, a tiny power of two times C,
and float64 adds such multiples without rounding as long as they stay below 2⁵³ quanta. So a sum does not depend on the
order, block or thread in which records are added, and one more record changes it by exactly that record's vector.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.func import grad

from tacit.data.inputs import Inputs, mapped
from tacit.errors import InvalidInput, PrivacyError
from tacit.models.functional import FlatModel

# A clipped vector stays this far below C, to leave room for the last bits of its norm and factor, which are float64.
HAIR = 2.0**-16
_EXACT_BITS = 53
_CHUNK_NUMBERS = 2**20


class Lot(NamedTuple):
    """Records of several agents, one after another: agent i's are offsets[i] to offsets[i + 1].

    With `rows`, the lot is these rows of a larger table, and `prepare` turns each record by itself into what the model reads, when
    it is taken, a few records at a time. If units are protected (see `units`), rows have a second axis: the records of a unit, -1
    where it has fewer.
    """

    inputs: Inputs
    targets: Tensor
    offsets: Int[Tensor, " agents+1"]
    rows: Int[Tensor, " records"] | Int[Tensor, "units most"] | None = None
    prepare: Callable[[Inputs], Inputs] | None = None

    @property
    def size(self) -> int:
        """The number of records."""
        return len(self.targets if self.rows is None else self.rows)

    def take(self, places: Int[Tensor, " *places"]) -> tuple[Inputs, Tensor]:
        """Return inputs, ready for the model, and targets of the records at these places in the lot."""
        rows = places.flatten() if self.rows is None else self.rows.index_select(0, places.flatten())
        if rows.ndim == 2:
            return self._take_units(rows, places.shape)
        inputs, targets = self._prepared(rows), self.targets.index_select(0, rows)
        return mapped(lambda table: table.unflatten(0, places.shape), inputs), targets.unflatten(0, places.shape)

    def _prepared(self, rows: Int[Tensor, " rows"]) -> Inputs:
        """Return inputs ready for the model, in their own memory."""
        # Copies whole rows at once; indexing with brackets would copy number by number.
        inputs: Inputs = mapped(lambda table: table.index_select(0, rows), self.inputs)
        if self.prepare is not None:
            inputs = self.prepare(inputs)
            # Padding is written into it, so no two records, nor two inputs of one, may share memory.
            inputs = inputs.contiguous() if isinstance(inputs, Tensor) else mapped(_copy, inputs)
        return inputs

    def _take_units(self, rows: Int[Tensor, "units most"], shape: torch.Size) -> tuple[Inputs, Tensor]:
        """Return the inputs of each unit's records side by side, and their targets with a flag for filled places.

        An empty place holds the unit's first record, which does not count there.
        """
        present = rows >= 0
        flat = torch.where(present, rows, rows[:, :1]).flatten()
        inputs, targets = self._prepared(flat), self.targets.index_select(0, flat).unflatten(0, rows.shape)
        targets = targets.flatten(2) if targets.ndim > 2 else targets[..., None]
        packed = torch.cat([targets, present[..., None].to(targets)], dim=2)
        side_by_side = mapped(lambda table: table.unflatten(0, (*shape, rows.shape[1])), inputs)
        return side_by_side, packed.unflatten(0, shape)

    @property
    def counts(self) -> Int[Tensor, " agents"]:
        """The number of records of each agent in the lot."""
        return self.offsets.diff()


def _copy(table: Tensor) -> Tensor:
    return table.clone(memory_format=torch.contiguous_format)


class Clipped(NamedTuple):
    """The result for a lot, in float64: a sum per agent, and norms that stay inside the oracle."""

    sums: Float[Tensor, "agents width"]
    norms: Float[Tensor, " records"]


class WidthError(InvalidInput):
    """A per-sample function whose value has another length than announced; the length is not secret."""


class Sample:
    """One record as a per-sample function sees it: its loss and gradient at any θ, its input and target."""

    def __init__(self, model: FlatModel, input: Inputs, target: Tensor) -> None:
        self._model, self.input, self.target = model, input, target

    def loss(self, theta: Float[Tensor, " params"]) -> Float[Tensor, ""]:
        """Return the loss of this record."""
        return self._model.loss_of_one(theta, self.input, self.target)

    def gradient(self, theta: Float[Tensor, " params"]) -> Float[Tensor, " params"]:
        """Return the gradient of this record's loss."""
        return grad(self.loss)(theta)


# A function of one record and one agent's public vectors, whose value is clipped, summed and noised.
PerSample = Callable[..., Float[Tensor, " width"]]


class Engine(Protocol):
    """Computes sums of gradients over a lot, for stacked agents with different parameters.

    `most_records` is the most records it takes at once.
    """

    most_records: int

    def clipped_sums(self, theta: Float[Tensor, "agents params"], lot: Lot, clip: Float[Tensor, " agents"]) -> Clipped:
        """Return every agent's sum of clipped per-sample gradients."""

    def plain_sums(self, theta: Float[Tensor, "agents params"], lot: Lot) -> Float[Tensor, "agents params"]:
        """Return every agent's sum of gradients, unclipped."""

    def working_bytes(self, records: float) -> float:
        """Return roughly how much memory it needs for lots of this many records in total."""


class Quantum(NamedTuple):
    """The unit of which clipped vectors are whole multiples: `power` · 2^(−2·bits), with `power` the largest power of two up to C.

    A clipped vector is below two powers, so its numbers are below 2^(2·bits + 1) quanta. If a vector is a product, each of
    its two factors gets half of the bits.
    """

    power: Float[Tensor, " agents"]
    bits: int

    @property
    def size(self) -> Float[Tensor, " agents"]:
        """The quantum itself."""
        return self.power * 2.0 ** (-2 * self.bits)

    def of(self, agents: Int[Tensor, " blocks"]) -> "Quantum":
        """Return the quanta of these agents."""
        return Quantum(self.power[agents], self.bits)


def factor_bits(most_records: int) -> int:
    """Return how many bits each of two factors may have so that this many products add up without rounding."""
    bits = (_EXACT_BITS - 1 - max(0, most_records - 1).bit_length()) // 2
    if bits < 8:
        raise PrivacyError(f"a lot of up to {most_records} records is too large to be added up exactly")
    return bits


def power_below(clip: Float[Tensor, " agents"]) -> Float[Tensor, " agents"]:
    """Return the largest power of two up to each number: its exponent without its fraction."""
    return clip.double().view(torch.int64).bitwise_and(0x7FF << 52).view(torch.float64)


def clip_factors(norms: Float[Tensor, "..."], clip: Float[Tensor, "..."], hair: float = HAIR) -> Float[Tensor, "..."]:
    """Return the factor, at most 1, that scales vectors of these norms to slightly less than `clip`."""
    return (clip * (1 - hair) / norms.clamp(min=torch.finfo(norms.dtype).tiny)).clamp(max=1)


def lengths(values: Float[Tensor, "... width"]) -> Float[Tensor, "..."]:
    """Return Euclidean norms in float64, accurate to a few last bits for rows of any length.

    Squares of float32 numbers neither overflow nor underflow in float64. Those of float64 numbers can, so rows are
    first scaled to a largest number of one; what is not finite stays so.
    """
    if values.dtype != torch.float64:
        return values.double().square().sum(-1).sqrt()
    if not values.shape[-1]:
        return values.new_zeros(values.shape[:-1])
    top = values.abs().amax(-1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    return (values / top).square().sum(-1).sqrt() * top[..., 0]


def only(values: Tensor, weights: Tensor) -> Tensor:
    """Zero the values of records without weight: infinity times zero is not zero."""
    return torch.where(weights.reshape(*weights.shape, *[1] * (values.ndim - 2)) != 0, values, 0)


def exact_sums(
    values: Float[Tensor, "blocks records width"],
    weights: Float[Tensor, "blocks records"],
    quantum: Quantum | None,
) -> Float[Tensor, "blocks width"]:
    """Return Σ weight · value of every block, each term truncated to whole quanta, so that nothing is rounded.

    Without a quantum it is the plain weighted sum, in float64.
    """
    if quantum is None:
        return torch.bmm(weights[:, None].double(), only(values, weights).double())[:, 0]
    size = quantum.size[:, None]
    return (only(values, weights).double() * (weights / size)[..., None]).trunc().sum(1) * size


def exact_sums_in_chunks(
    values: Float[Tensor, "blocks records width"],
    weights: Float[Tensor, "blocks records"],
    quantum: Quantum | None,
) -> Float[Tensor, "blocks width"]:
    """Return the same as `exact_sums` with small copies: gradients of many records are large."""
    blocks, records, width = values.shape
    rows = max(1, min(records, _CHUNK_NUMBERS // max(1, width)))
    group = max(1, _CHUNK_NUMBERS // (rows * max(1, width)))
    sums = torch.zeros(blocks, width, dtype=torch.float64, device=values.device)
    for some in (slice(first, first + group) for first in range(0, blocks, group)):
        for part in (slice(first, first + rows) for first in range(0, records, rows)):
            own = None if quantum is None else Quantum(quantum.power[some], quantum.bits)
            sums[some] += exact_sums(values[some, part], weights[some, part], own)
    return sums
