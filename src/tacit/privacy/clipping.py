"""Sums of clipped per-sample vectors: the one computation that touches a lot.

The interface is narrow on purpose: stacked parameters and flat samples with offsets per agent go in, one clipped
sum per agent comes out, with norms for the oracle's diagnostics. This engine is a `vmap` of `grad`, which serves every
module; those in `engines` are faster where they apply, behind the same three arguments.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.func import grad, vmap

from tacit.models.functional import FlatModel

# Rounding may push a clipped vector's norm past C by some units in the last place; this much room is left below.
_HAIR = 1e-5
_NORM_BLOCK = 256
# How much memory the per-sample vectors of one piece of a lot may take.
_PIECE_BYTES = 256 * 2**20
_BLOCK_NUMBERS = 2**18


class Lot(NamedTuple):
    """Records of several agents, one after another: agent i's are offsets[i] to offsets[i + 1].

    With `rows`, the lot is these rows of a larger table, and `prepare` makes of a record what the model reads: only when
    it is taken, some records at a time.
    """

    inputs: Tensor
    targets: Tensor
    offsets: Int[Tensor, " agents+1"]
    rows: Int[Tensor, " records"] | None = None
    prepare: Callable[[Tensor], Tensor] | None = None

    @property
    def size(self) -> int:
        """How many records there are."""
        return len(self.targets if self.rows is None else self.rows)

    def take(self, places: Int[Tensor, " *places"]) -> tuple[Tensor, Tensor]:
        """Return inputs, ready for the model, and targets of the records at these places in the lot."""
        rows = places.flatten() if self.rows is None else self.rows.index_select(0, places.flatten())
        # Whole rows are copied at once; an index in brackets would go number by number.
        inputs, targets = self.inputs.index_select(0, rows), self.targets.index_select(0, rows)
        if self.prepare is not None:
            inputs = self.prepare(inputs).contiguous()  # padding is written into it, so no two records may share memory
        return inputs.unflatten(0, places.shape), targets.unflatten(0, places.shape)

    @property
    def counts(self) -> Int[Tensor, " agents"]:
        """How many records each agent has in the lot."""
        return self.offsets.diff()


class Clipped(NamedTuple):
    """What came of a lot, in float64: a sum per agent, and norms that stay inside the oracle."""

    sums: Float[Tensor, "agents width"]
    norms: Float[Tensor, " records"]


class Record:
    """One record as a per-sample function sees it: its loss and gradient at any θ, its input and target."""

    def __init__(self, model: FlatModel, input: Tensor, target: Tensor) -> None:
        self._model, self.input, self.target = model, input, target

    def loss(self, theta: Float[Tensor, " params"]) -> Float[Tensor, ""]:
        """Return the loss of this record."""
        return self._model.losses(theta, self.input[None], self.target[None], training=True)[0]

    def gradient(self, theta: Float[Tensor, " params"]) -> Float[Tensor, " params"]:
        """Return the gradient of this record's loss."""
        return grad(self.loss)(theta)


# A function of one record and one agent's public vectors, whose value is clipped, summed and noised.
PerSample = Callable[..., Float[Tensor, " width"]]


class Engine(Protocol):
    """Computes sums of gradients over a lot, for stacked agents with different parameters.

    `most_records` is how many records, agents padded to the longest lot, it may be handed at once.
    """

    most_records: int

    def clipped_sums(self, theta: Float[Tensor, "agents params"], lot: Lot, clip: Float[Tensor, " agents"]) -> Clipped:
        """Return every agent's sum of clipped per-sample gradients."""

    def plain_sums(self, theta: Float[Tensor, "agents params"], lot: Lot) -> Float[Tensor, "agents params"]:
        """Return every agent's sum of gradients, unclipped."""

    def working_bytes(self, records: float) -> float:
        """Return about how much memory it takes to work on lots of so many records in all."""


class VmapEngine:
    """Per-sample gradients by `vmap` of `grad`, agents padded to the longest lot among them."""

    def __init__(self, model: FlatModel) -> None:
        self._model = model
        self.most_records = records_at_once(model.size, model.dtype)

    def clipped_sums(self, theta: Float[Tensor, "agents params"], lot: Lot, clip: Float[Tensor, " agents"]) -> Clipped:
        """Return every agent's sum of clipped per-sample gradients."""
        return clipped_sums(self._model, lambda record, theta: record.gradient(theta), (theta,), lot, clip)

    def plain_sums(self, theta: Float[Tensor, "agents params"], lot: Lot) -> Float[Tensor, "agents params"]:
        """Return every agent's sum of gradients; no per-sample gradient is ever made."""

        def total(theta: Tensor, inputs: Tensor, targets: Tensor, keep: Tensor) -> Tensor:
            return self._model.losses(theta, inputs, targets, training=True) @ keep.to(theta.dtype)

        inputs, targets, keep = _pad(lot)
        return vmap(grad(total))(theta, inputs, targets, keep)

    def working_bytes(self, records: float) -> float:
        """Return about how much memory per-sample gradients take, and copies of them."""
        return 3 * min(records, self.most_records) * self._model.size * self._model.dtype.itemsize


def records_at_once(width: int, dtype: torch.dtype) -> int:
    """Return how many per-sample vectors of this width may be made at once."""
    return max(1, _PIECE_BYTES // (2 * width * dtype.itemsize))


def clipped_sums(
    model: FlatModel,
    per_sample: PerSample,
    public: tuple[Float[Tensor, "agents ..."], ...],
    lot: Lot,
    clip: Float[Tensor, " agents"],
) -> Clipped:
    """Sum clip_C(per_sample(record, *public)) over each agent's records.

    A vector whose norm is not finite counts as zero, silently: an error would tell of the record that caused it.
    """

    def agent(inputs: Tensor, targets: Tensor, *public: Tensor) -> Tensor:
        def one(input: Tensor, target: Tensor) -> Tensor:
            return per_sample(Record(model, input, target), *public)

        return vmap(one)(inputs, targets)

    inputs, targets, keep = _pad(lot)
    values = vmap(agent)(inputs, targets, *public)
    norms = row_norms(values.flatten(0, 1)).reshape(keep.shape)
    counted = keep & norms.isfinite()
    factors = torch.where(counted, clip_factors(norms, clip[:, None]), 0)
    return Clipped(weighted_sums(factors, values, counted), norms[keep])


def weighted_sums(
    factors: Float[Tensor, "agents records"],
    values: Float[Tensor, "agents records width"],
    counted: Bool[Tensor, "agents records"],
) -> Float[Tensor, "agents width"]:
    """Return Σ factor · value per agent over the counted records, added up in float64.

    The bound of one record's influence holds for the sum as it is computed: in float32, rounding moves the sum of 5,000
    equal vectors by 5 % of C, and by another amount with one record less. Small blocks keep the copies in cache.
    """
    agents, records, width = values.shape
    rows = max(1, min(records, _BLOCK_NUMBERS // width))
    group = max(1, _BLOCK_NUMBERS // (rows * width))
    sums = torch.zeros(agents, 1, width, dtype=torch.float64, device=values.device)
    for some in (slice(first, first + group) for first in range(0, agents, group)):
        for part in (slice(first, first + rows) for first in range(0, records, rows)):
            block = values[some, part].to(torch.float64, copy=True)
            block.masked_fill_(~counted[some, part, None], 0)  # what is not finite stays so when weighed with zero
            sums[some] += torch.bmm(factors[some, None, part], block)
    return sums[:, 0]


def row_norms(values: Float[Tensor, "records width"]) -> Float[Tensor, " records"]:
    """Return Euclidean norms in float64 that are right to 1e-6, however long the rows.

    torch adds float32 squares up in float32: a row of 6.5 million equal numbers comes out 0.6 % short, and would
    be clipped to 0.6 % more than C. Blocks of 256 are exact enough; their sum is taken in float64.
    """
    whole = values.shape[1] // _NORM_BLOCK * _NORM_BLOCK
    blocks = values[:, :whole].unflatten(1, (-1, _NORM_BLOCK)) if whole else values[:, :0, None]
    squares = torch.linalg.vector_norm(blocks, dim=2).double().square().sum(dim=1)
    squares = squares + torch.linalg.vector_norm(values[:, whole:], dim=1).double().square()
    return squares.sqrt()


def clip_factors(norms: Float[Tensor, "..."], clip: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return the factor, at most 1, that brings vectors of these norms to at most `clip`, less a hair."""
    return (clip * (1 - _HAIR) / norms.clamp(min=torch.finfo(norms.dtype).tiny)).clamp(max=1)


def _pad(lot: Lot) -> tuple[Tensor, Tensor, Tensor]:
    """Return inputs, targets and a mask as [agents, longest lot, ...]. Padding is zeros, never another's record."""
    counts = lot.counts
    slots = torch.arange(int(counts.max()), device=counts.device)
    keep = slots < counts[:, None]
    rows = torch.where(keep, lot.offsets[:-1, None] + slots, 0)
    inputs, targets = lot.take(rows)
    inputs[~keep], targets[~keep] = 0, 0
    return inputs, targets, keep
