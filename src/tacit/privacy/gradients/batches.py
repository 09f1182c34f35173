"""How an engine runs: lots are cut into batches of one shape, and a record that fails counts as zero.

A kernel computes one batch. Nothing it is given depends on how many records the lots have or on a record's place, and
the sum of the records' vectors is exact (see `clipping`), so a record's contribution is the same to the bit whatever
else is in the lots; `checking` tests that on public records before a kernel is used.
"""

import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tacit.data.inputs import Inputs, kinds, mapped, parts
from tacit.errors import ModelError, PrivacyError
from tacit.models.functional import FlatModel
from tacit.privacy.gradients.arithmetic import own_arithmetic, refuse_flushing_threads
from tacit.privacy.gradients.blocks import Batch, batches_of
from tacit.privacy.gradients.clipping import Clipped, Lot, Quantum, WidthError, factor_bits, power_below

FAILS_ON_PUBLIC = "the model fails on public records: "

Public = tuple[Float[Tensor, "blocks ..."], ...]


SumsAndNorms = tuple[Float[Tensor, "blocks width"], Float[Tensor, "blocks records"]]


class BatchData(NamedTuple):
    """What a kernel computes on: public tensors of every block, a flat batch of records, and which of them count."""

    public: Public
    inputs: Inputs
    targets: Tensor
    keep: Bool[Tensor, "blocks records"]


class Kernel(Protocol):
    """Computes one batch: blocks of records, each block with public tensors of its own, such as θ.

    `exact` says whether its sums are free of rounding; otherwise it clips to less than C to leave room for rounding. `room` is how many
    times as long as C a vector may be: 1, unless vectors are rounded to a grid. `strange` names operations it met that are not known to
    keep records apart.
    """

    exact: bool
    room: float
    strange: set[str]

    def clipped(self, data: BatchData, clip: Float[Tensor, " blocks"], quantum: Quantum) -> SumsAndNorms:
        """Return every block's sum of clipped vectors in whole quanta, and every record's norm, in float64."""

    def plain(self, data: BatchData) -> Float[Tensor, "blocks width"]:
        """Return every block's sum of vectors, unclipped, in float64."""


class Unsupported(Exception):
    """This engine cannot handle this model; another one can."""


class Shape(NamedTuple):
    """What is fixed before a run: records per block, blocks per batch, threads, and the largest lot of an agent."""

    size: int
    blocks: int
    threads: int
    most_in_lot: int


def largest_lot(lot_sizes: Sequence[float]) -> int:
    """Return a number of records that no Poisson lot reaches: the probability is below e⁻⁷⁰⁰.

    It holds for agents with up to twice the records that they declare and 1000 more: lots then have a mean of up to 2L + 1000.
    """
    return int(4 * max(lot_sizes)) + 4000


class BatchRunner:
    """Runs a kernel over lots. `filler` is a public record, ready for the model, that fills empty places.

    Without one, zeros fill them, and a record that cannot be computed is an error: the cause may be the zeros.
    """

    def __init__(self, kernel: Kernel, shape: Shape, dtype: torch.dtype, filler: tuple[Inputs, Tensor] | None) -> None:
        with own_arithmetic(dtype, shape.threads):
            refuse_flushing_threads(shape.threads)
        self.kernel, self.shape = kernel, shape
        # Whether to raise an error that the filler has as well. Off for private records: whether it is raised depends on them.
        self.shows_errors = False
        self.dtype, self._filler = dtype, filler
        self._bits = factor_bits(shape.most_in_lot)
        self._lock = threading.Lock()  # a kernel keeps its layers' inputs while it computes

    def clipped(self, public: Public, lot: Lot, clip: Float[Tensor, " agents"], width: int) -> Clipped:
        """Return every agent's sum of clipped vectors, and every record's norm; NaN for one that cannot be computed."""
        agents = len(lot.offsets) - 1
        if agents and int(lot.counts.max()) > self.shape.most_in_lot:
            raise PrivacyError(f"an agent's lot is larger than {self.shape.most_in_lot}, the largest planned for")
        with self._lock, own_arithmetic(self.dtype, self.shape.threads):
            sums = torch.zeros(agents, width, dtype=torch.float64, device=clip.device)
            norms = torch.full((lot.size,), torch.nan, dtype=torch.float64, device=clip.device)
            clip = clip.double()
            quantum = Quantum(power_below(clip), self._bits)
            for batch in batches_of(lot, self.shape.size, self.shape.blocks):
                for done, part, lengths in self._tried(public, lot, batch, clip, quantum):
                    sums.index_add_(0, done.agents, part)
                    norms[done.rows[done.keep]] = lengths[done.keep]
        return Clipped(sums, norms)

    def plain(self, public: Public, lot: Lot, width: int) -> Float[Tensor, "agents width"]:
        """Return every agent's sum of vectors, unclipped; an error of the model is raised as it is."""
        with self._lock, own_arithmetic(self.dtype, self.shape.threads):
            sums = torch.zeros(len(lot.offsets) - 1, width, dtype=torch.float64, device=lot.offsets.device)
            for batch in batches_of(lot, self.shape.size, self.shape.blocks):
                sums.index_add_(0, batch.agents, self.kernel.plain(self._data(public, batch, *self._take(lot, batch))))
        return sums

    def _tried(
        self, public: Public, lot: Lot, batch: Batch, clip: Tensor, quantum: Quantum
    ) -> Iterator[tuple[Batch, Tensor, Tensor]]:
        """Yield the results of a batch. If it fails, each record is tried alone, and one that fails counts as zero.

        A record that is tried alone keeps its place in the batch, so its contribution is the same.
        """
        failed = False
        try:
            found = self._run(public, lot, batch, clip, quantum)
        except KeyboardInterrupt:
            raise
        except BaseException:  # nothing of the error is kept: it may reveal records
            if self._filler is None:
                raise
            failed = True
        if not failed:
            yield batch, *found
            return
        if self.shows_errors:
            self._try_filler(public, batch, clip, quantum)
        for block, record in batch.keep.nonzero().tolist():
            alone = batch.alone(block, record)
            try:
                found = self._run(public, lot, alone, clip, quantum, filled=False)
            except KeyboardInterrupt:
                raise
            except BaseException:
                continue
            yield alone, *found

    def _try_filler(self, public: Public, batch: Batch, clip: Tensor, quantum: Quantum) -> None:
        """Raise if public records fail as well: then private ones are not the cause, and the error may be shown."""
        assert self._filler is not None
        inputs, targets = (
            mapped(lambda one: one.expand(batch.keep.numel(), *one.shape).contiguous(), part) for part in self._filler
        )
        said = ""
        try:
            self._compute(public, batch, inputs, targets, clip, quantum)
        except (WidthError, Unsupported):
            raise
        except Exception as error:
            said = f"{FAILS_ON_PUBLIC}{type(error).__name__}: {error}"
        if said:  # no reference leads from this error to the batch, which reveals the number of records
            raise ModelError(said)

    def _run(
        self, public: Public, lot: Lot, batch: Batch, clip: Tensor, quantum: Quantum, *, filled: bool = True
    ) -> SumsAndNorms:
        return self._compute(public, batch, *self._take(lot, batch, filled=filled), clip, quantum)

    def _compute(
        self, public: Public, batch: Batch, inputs: Inputs, targets: Tensor, clip: Tensor, quantum: Quantum
    ) -> SumsAndNorms:
        data = self._data(public, batch, inputs, targets)
        return self.kernel.clipped(data, clip[batch.agents], quantum.of(batch.agents))

    def _data(self, public: Public, batch: Batch, inputs: Inputs, targets: Tensor) -> BatchData:
        own = tuple(one.index_select(0, batch.agents) for one in public)
        return BatchData(own, inputs, targets, batch.keep)

    def _take(self, lot: Lot, batch: Batch, *, filled: bool = True) -> tuple[Inputs, Tensor]:
        """Return inputs and targets as flat batches, with the filler in empty places unless `filled` is False."""
        inputs, targets = lot.take(batch.rows.flatten())
        if self._filler is not None and kinds(inputs) != mapped(
            lambda one: (tuple(one.shape), one.dtype), self._filler[0]
        ):
            raise WidthError("a record is prepared to another shape or type than public ones")
        empty = (~batch.keep).flatten().nonzero()[:, 0]
        if filled and len(empty):
            zeros = mapped(lambda table: table.new_zeros(()), inputs), targets.new_zeros(())
            input, target = zeros if self._filler is None else self._filler
            for table, one in zip((*parts(inputs), targets), (*parts(input), target), strict=True):
                table[empty] = one.to(table.dtype)
        return inputs, targets


class BatchEngine:
    """An engine whose gradients come from a kernel, run in batches."""

    def __init__(self, model: FlatModel, runner: BatchRunner) -> None:
        self._model, self.runner = model, runner

    def clipped_sums(self, theta: Float[Tensor, "agents params"], lot: Lot, clip: Float[Tensor, " agents"]) -> Clipped:
        """Return every agent's sum of clipped per-sample gradients."""
        return self.runner.clipped((theta,), lot, clip, self._model.size)

    def plain_sums(self, theta: Float[Tensor, "agents params"], lot: Lot) -> Float[Tensor, "agents params"]:
        """Return every agent's sum of gradients, unclipped."""
        return self.runner.plain((theta,), lot, self._model.size)
