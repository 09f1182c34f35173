"""The engine that avoids per-sample gradients where possible: layer by layer, in blocks of records.

Its batches can be compiled. All batches have one shape, so they are compiled once.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from tacit.data.inputs import names, parts, rebuild
from tacit.models.functional import FlatModel
from tacit.privacy.gradients.batches import BatchData, BatchEngine, BatchRunner, Shape, SumsAndNorms, largest_lot
from tacit.privacy.gradients.blocks import blocks_at_once, choose_size
from tacit.privacy.gradients.clipping import Lot, Quantum
from tacit.privacy.gradients.compilable import check_compilable
from tacit.privacy.gradients.general import filler_of
from tacit.privacy.gradients.rewrites import REWRITES
from tacit.privacy.gradients.stacked import StackedModel

# Memory of one batch per thread: more does not fit into the processor's cache, less wastes time between batches.
_BATCH_BYTES, _MOST_THREADS = 5 * 2**20, 8
_MOST_RECORDS = 4096
# Memory of a block's records: large models get smaller blocks, which cost hardly any time and halve the memory.
_BLOCK_BYTES = 80 * 2**20
# A lot is processed in parts of at most this many bytes of inputs.
_PART_BYTES = 256 * 2**20

# Products and sums may be fused: that is faster, and rounds less.
_OPTIONS: dict[str, str | int | bool | Callable[..., Any]] = {"cpp.enable_floating_point_contract_flag": "fast"}

Compiled = Callable[..., Any]
_COMPILED: dict[tuple[Any, ...], Compiled] = {}  # so that the same model in another session is not compiled again


class GhostEngine(BatchEngine):
    """Clips by norms that follow from layer inputs and output gradients; see `layers` and `stacked`.

    `example` holds public records of the same kind as private ones. `size` is the block size; by default it follows from the lots.
    Raises `Unsupported` if the model cannot be computed layer by layer.
    """

    def __init__(
        self,
        model: FlatModel,
        lot_sizes: Sequence[float],
        example: Lot,
        *,
        compiled: bool = False,
        size: int | None = None,
    ) -> None:
        self.compiled = compiled
        stacked = StackedModel(model, compiled=compiled)
        calls, tried = stacked.try_record(example)
        self.numbers_kept = stacked.numbers_kept(calls)
        self._bytes = 4 * self.numbers_kept, 12 * model.size  # of a record, and of a block
        threads = torch.get_num_threads()
        self._batch_bytes = _BATCH_BYTES * min(threads, _MOST_THREADS)
        size = size or choose_size(lot_sizes, most=_BLOCK_BYTES // max(1, self._bytes[0]))
        blocks = blocks_at_once(size, lot_sizes, self._most_blocks(size), threads)
        shape = Shape(size, blocks, threads, largest_lot(lot_sizes))
        stacked.leave_room(tried, size, shape.most_in_lot)
        kernel = CompiledKernel(stacked) if compiled else stacked
        super().__init__(model, BatchRunner(kernel, shape, model.dtype, filler_of(example, model.dtype)))
        self.most_records = max(size, _PART_BYTES // max(1, sum(table[0].nbytes for table in parts(example.inputs))))

    def working_bytes(self, records: float) -> float:
        """Return roughly how much memory one batch takes; activations are stored about three times."""
        of_record, of_block = self._bytes
        one = self.runner.shape.size * of_record + of_block
        return 3 * min(max(one, self._batch_bytes), max(records, 1) * (of_record + of_block))

    def _most_blocks(self, size: int) -> int:
        of_record, of_block = self._bytes
        return max(1, min(self._batch_bytes // (of_record * size + of_block), _MOST_RECORDS // size))


class CompiledKernel:
    """The batches of a stacked model, clipped or plain, each compiled once."""

    def __init__(self, stacked: StackedModel) -> None:
        self._stacked, self.exact, self.strange = stacked, stacked.exact, stacked.strange
        self.room = stacked.room
        self._compiled: dict[tuple[Any, ...], Compiled] = {}

    def clipped(self, data: BatchData, clip: Float[Tensor, " blocks"], quantum: Quantum) -> SumsAndNorms:
        """Return what the stacked model returns."""

        def batch(
            theta: Tensor, targets: Tensor, keep: Tensor, clip: Tensor, power: Tensor, *flat: Tensor
        ) -> tuple[Tensor, Tensor]:
            own = BatchData((theta,), rebuild(data.inputs, flat), targets, keep)
            return self._stacked.clipped(own, clip, Quantum(power, quantum.bits))

        given = (data.public[0], data.targets, data.keep, clip, quantum.power, *parts(data.inputs))
        sums, norms = self._run(("clipped", *names(data.inputs)), batch, given)
        return sums, norms

    def plain(self, data: BatchData) -> Float[Tensor, "blocks params"]:
        """Return what the stacked model returns."""

        def batch(theta: Tensor, targets: Tensor, keep: Tensor, *flat: Tensor) -> Tensor:
            return self._stacked.plain(BatchData((theta,), rebuild(data.inputs, flat), targets, keep))

        given = (data.public[0], data.targets, data.keep, *parts(data.inputs))
        sums: Tensor = self._run(("plain", *names(data.inputs)), batch, given)
        return sums

    def _run(self, name: tuple[str, ...], batch: Compiled, given: tuple[Tensor, ...]) -> Any:
        given = tuple(each.contiguous() for each in given)
        # Compiled code does not check shapes and types: it reads memory as it was compiled to.
        key = (*name, *((tuple(each.shape), each.dtype, each.device) for each in given))
        if key not in self._compiled:
            self._compiled[key] = _compile(batch, given)
        return self._compiled[key](*given)


def _compile(batch: Compiled, given: tuple[Tensor, ...]) -> Compiled:
    """Trace forward, backward, norms and sums as one graph, then compile that: compiling the code itself fails."""
    import torch._inductor  # half the time that `import tacit` would take

    zeros = tuple(torch.zeros_like(each) for each in given)  # no record's values can get into the graph
    graph = make_fx(batch, tracing_mode="real", decomposition_table=REWRITES)(*zeros)
    check_compilable(graph.graph)
    # The number of threads is part of the compiled code.
    known = (graph.code, torch.get_num_threads(), *((tuple(each.shape), each.dtype, each.device) for each in given))
    if known not in _COMPILED:
        _COMPILED[known] = torch._inductor.compile(graph, list(zeros), options=_OPTIONS)
    return _COMPILED[known]
