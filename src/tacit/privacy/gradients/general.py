"""The engine for every model: a `vmap` of `grad`, which runs each record by itself.

It also serves `at.query`, whose per-sample function may return any vector.
"""

from collections.abc import Sequence
from operator import itemgetter

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import grad, vmap

from tacit.data.guards import Guard
from tacit.data.inputs import Inputs, mapped
from tacit.data.products import EvenProducts
from tacit.models.functional import FlatModel
from tacit.privacy.gradients.arithmetic import own_arithmetic
from tacit.privacy.gradients.batches import BatchData, BatchEngine, BatchRunner, Shape, SumsAndNorms, largest_lot
from tacit.privacy.gradients.blocks import blocks_at_once, choose_size
from tacit.privacy.gradients.clipping import (
    Lot,
    PerSample,
    Quantum,
    Sample,
    WidthError,
    clip_factors,
    exact_sums_in_chunks,
    lengths,
)

# How much memory the per-sample vectors of one batch may take.
_BATCH_BYTES = 128 * 2**20
_MOST_RECORDS = 1024
_SMALL_LOTS, _ANY_LOT = (16.0,), 2**20


class PerSampleKernel:
    """Clips and adds up the values of a function of one record and its block's public tensors."""

    exact = True
    room = 1.0

    def __init__(self, model: FlatModel, per_sample: PerSample, width: int | None = None) -> None:
        self._model, self._per_sample, self._width = model, per_sample, width
        self.strange: set[str] = set()

    def clipped(self, data: BatchData, clip: Float[Tensor, " blocks"], quantum: Quantum) -> SumsAndNorms:
        """Return sums and norms. A vector whose norm is not finite counts as zero, silently: an error would reveal it."""
        values = self._values(data)
        norms = torch.stack([lengths(one) for one in values])
        factors = torch.where(data.keep & norms.isfinite(), clip_factors(norms, clip[:, None]), 0)
        return exact_sums_in_chunks(values, factors, quantum), norms

    def plain(self, data: BatchData) -> Float[Tensor, "blocks width"]:
        """Return sums."""
        return exact_sums_in_chunks(self._values(data), data.keep.double(), None)

    def _values(self, data: BatchData) -> Tensor:
        def value(input: Inputs, target: Tensor, *public: Tensor) -> Tensor:
            return self._per_sample(Sample(self._model, input, target), *public)

        # Every record gets a copy of its block's tensors: with two nested `vmap`s, over blocks and over records, torch uses
        # another block's parameters in some functions.
        own = (one.repeat_interleave(data.keep.shape[1], 0) for one in data.public)
        with Guard() as guard, EvenProducts() as products:
            values = vmap(value)(data.inputs, data.targets, *own).detach()
        guard.check()
        self.strange |= guard.strange | products.strange
        values = values.unflatten(0, data.keep.shape)
        if values.ndim != 3 or (self._width is not None and values.shape[2] != self._width):
            found = "x".join(map(str, values.shape[2:])) or "1"
            wanted = "one axis of numbers" if self._width is None else self._width
            raise WidthError(f"the per-sample function returns {found} numbers, not {wanted}; pass width=")
        return values


class GradientKernel(PerSampleKernel):
    """The per-sample function is the gradient of the loss; plain sums need no per-sample gradients."""

    def __init__(self, model: FlatModel) -> None:
        super().__init__(model, lambda record, theta: record.gradient(theta), model.size)

    def plain(self, data: BatchData) -> Float[Tensor, "blocks width"]:
        """Return sums of gradients."""

        def total(theta: Tensor, inputs: Inputs, targets: Tensor, keep: Tensor) -> Tensor:
            return self._model.losses(theta, inputs, targets, training=True) @ keep.to(theta.dtype)

        shape = data.keep.shape
        blocks = mapped(lambda table: table.unflatten(0, shape), data.inputs), data.targets.unflatten(0, shape)
        return vmap(grad(total))(data.public[0], *blocks, data.keep).double()


def general_shape(
    width: int, dtype: torch.dtype, lot_sizes: Sequence[float] | None, *, one_by_one: bool = False
) -> Shape:
    """Return a shape whose vectors fit into memory, or that of a single record. Unknown lots may have any size."""
    threads = torch.get_num_threads()
    largest = _ANY_LOT if lot_sizes is None else largest_lot(lot_sizes)
    if one_by_one:
        return Shape(1, 1, threads, largest)
    lot_sizes = lot_sizes or _SMALL_LOTS
    most = max(1, min(_MOST_RECORDS, _BATCH_BYTES // (max(1, width) * (2 * dtype.itemsize + 8))))
    size = choose_size(lot_sizes, most=most)
    return Shape(size, blocks_at_once(size, lot_sizes, max(1, most // size), threads), threads, largest)


class VmapEngine(BatchEngine):
    """Per-sample gradients by `vmap` of `grad`. `example` holds public records, the first of which fills empty places."""

    def __init__(
        self,
        model: FlatModel,
        lot_sizes: Sequence[float] | None = None,
        example: Lot | None = None,
        *,
        one_by_one: bool = False,
    ) -> None:
        shape = general_shape(model.size, model.dtype, lot_sizes, one_by_one=one_by_one)
        runner = BatchRunner(GradientKernel(model), shape, model.dtype, filler_of(example, model.dtype))
        super().__init__(model, runner)
        self.most_records = 2**16
        self.one_by_one = one_by_one

    def working_bytes(self, records: float) -> float:
        """Return roughly how much memory per-sample gradients and copies of them take."""
        at_once = self.runner.shape.size * self.runner.shape.blocks
        return 3 * min(records, at_once) * self._model.size * self._model.dtype.itemsize


def filler_of(example: Lot | None, dtype: torch.dtype) -> tuple[Inputs, Tensor] | None:
    """Return the first of these public records, ready for a model of this type."""
    if example is None or not example.size:
        return None
    with own_arithmetic(dtype, torch.get_num_threads()):  # as private records are prepared
        inputs, targets = example.take(torch.zeros(1, dtype=torch.int64, device=example.targets.device))
    return mapped(itemgetter(0), inputs), targets[0]
