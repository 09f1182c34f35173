"""The engine that makes no per-sample gradients where it can do without: layer by layer, in blocks of records.

Its work can be compiled: then every step has the same shape, blocks are filled up to it, and nothing is compiled twice.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from tacit.models.functional import FlatModel
from tacit.privacy.clipping import Clipped, Lot
from tacit.privacy.engines.blocks import Blocks, choose_sizes, cut
from tacit.privacy.engines.rewrites import REWRITES
from tacit.privacy.engines.stacked import StackedModel, Unsupported

# What one step may keep for each thread: more does not fit the processor's cache, less wastes time between steps.
_STEP_BYTES, _MOST_THREADS = 5 * 2**20, 8
_MOST_RECORDS = 4096
# What the records of a block may keep: large models have smaller blocks, which cost hardly any time and halve the memory.
_BLOCK_BYTES = 80 * 2**20
# A lot is handed over in parts of at most so many bytes of inputs.
_PART_BYTES = 256 * 2**20

# Products and sums may be fused: that is faster, and rounds less.
_OPTIONS: dict[str, str | int | bool | Callable[..., Any]] = {"cpp.enable_floating_point_contract_flag": "fast"}

Step = Callable[..., Any]
_COMPILED: dict[tuple[Any, ...], Step] = {}  # the same model in another session is not compiled again


class GhostEngine:
    """Clips by norms that follow from layer inputs and output gradients; see `layers` and `stacked`.

    `example` holds public records of the kind that will come. Raises `Unsupported` where the model cannot be taken
    layer by layer.
    """

    def __init__(self, model: FlatModel, lot_sizes: Sequence[float], example: Lot, *, compiled: bool = False) -> None:
        self.compiled = compiled
        self._stacked = StackedModel(model, compiled=compiled)
        self.numbers_kept = self._stacked.numbers_kept(example)
        self._bytes = 4 * self.numbers_kept, 12 * model.size  # of a record, and of a block
        self.sizes = choose_sizes(lot_sizes, most=_BLOCK_BYTES // max(1, self._bytes[0]))
        self.most_records = max(self.sizes[-1], _PART_BYTES // max(1, example.inputs[0].nbytes))
        self._step_bytes = _STEP_BYTES * min(torch.get_num_threads(), _MOST_THREADS)
        self._steps: dict[tuple[str, torch.Size], Step] = {}

    def clipped_sums(self, theta: Float[Tensor, "agents params"], lot: Lot, clip: Float[Tensor, " agents"]) -> Clipped:
        """Return every agent's sum of clipped per-sample gradients."""
        sums = torch.zeros(theta.shape, dtype=torch.float64, device=theta.device)
        norms = torch.zeros(lot.size, dtype=torch.float64, device=theta.device)
        for blocks, rows in self._blocks(lot):
            agents = blocks.agents
            part, lengths = self._step("clipped_sums", theta.index_select(0, agents), *blocks[1:], clip[agents])
            sums.index_add_(0, agents, part)
            norms[rows[blocks.keep[: len(rows)]]] = lengths[blocks.keep]
        return Clipped(sums, norms)

    def plain_sums(self, theta: Float[Tensor, "agents params"], lot: Lot) -> Float[Tensor, "agents params"]:
        """Return every agent's sum of gradients, unclipped."""
        sums = torch.zeros(theta.shape, dtype=torch.float64, device=theta.device)
        for blocks, _ in self._blocks(lot):
            sums.index_add_(
                0, blocks.agents, self._step("plain_sums", theta.index_select(0, blocks.agents), *blocks[1:])
            )
        return sums

    def blocks_at_once(self, size: int) -> int:
        """Return how many blocks of this size make a step."""
        of_record, of_block = self._bytes
        return max(1, min(self._step_bytes // (of_record * size + of_block), _MOST_RECORDS // size))

    def working_bytes(self, records: float) -> float:
        """Return about how much memory one step takes; activations are kept about three times over."""
        of_record, of_block = self._bytes
        one = self.sizes[-1] * of_record + of_block
        return 3 * min(max(one, self._step_bytes), max(records, 1) * (of_record + of_block))

    def _blocks(self, lot: Lot) -> Iterator[tuple[Blocks, Tensor]]:
        """Yield the work in steps, and the places in the lot of each step's records."""
        for part in cut(lot, self.sizes):
            at_once = self.blocks_at_once(part.rows.shape[1])
            for first in range(0, len(part.agents), at_once):
                yield part.take(first, at_once, full=self.compiled), part.rows[first : first + at_once]

    def _step(self, name: str, *given: Tensor) -> Any:
        if not self.compiled:
            with _exact_convolutions(given[0]):
                return getattr(self._stacked, name)(*given)
        known = name, given[3].shape  # blocks and records: their product may be the same for two sizes of blocks
        if known not in self._steps:
            self._steps[known] = _compile(getattr(self._stacked, name), given)
        with _exact_convolutions(given[0]):
            return self._steps[known](*given)


def _exact_convolutions(like: Tensor) -> AbstractContextManager[None]:
    """Let no GPU round the factors of a convolution to fewer bits than float32 has, as cuDNN does by default."""
    if not like.is_cuda:
        return nullcontext()
    now = torch.backends.cudnn
    return now.flags(enabled=now.enabled, benchmark=now.benchmark, deterministic=now.deterministic, allow_tf32=False)


def _compile(step: Step, given: tuple[Tensor, ...]) -> Step:
    """Trace forward, backward, norms and sums as one graph, then compile that: compiling the code itself fails."""
    import torch._inductor  # half the time that `import tacit` would take

    zeros = tuple(torch.zeros_like(each) for each in given)  # nothing of a record can get into the graph
    graph = make_fx(_with_places(step, len(given)), tracing_mode="real", decomposition_table=REWRITES)(*zeros)
    if any(node.op == "get_attr" for node in graph.graph.nodes):
        raise Unsupported("the model has frozen parameters or buffers, which are not compiled")
    # Threads are written into the code that the compiler makes.
    known = (graph.code, torch.get_num_threads(), *((tuple(each.shape), each.dtype, each.device) for each in given))
    if known not in _COMPILED:
        _COMPILED[known] = torch._inductor.compile(graph, list(zeros), options=_OPTIONS)
    return _COMPILED[known]


def _with_places(step: Step, count: int) -> Step:
    """Return the function with so many arguments by place, as the tracer wants it."""
    if count == 4:
        return lambda theta, inputs, targets, keep: step(theta, inputs, targets, keep)
    return lambda theta, inputs, targets, keep, clip: step(theta, inputs, targets, keep, clip)
