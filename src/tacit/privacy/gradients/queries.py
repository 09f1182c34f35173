"""Runners for `at.query`: any per-sample function of a rule, tested on public records before it sees private ones."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.models.functional import FlatModel
from tacit.privacy.gradients.batches import BatchRunner, Unsupported
from tacit.privacy.gradients.checking import check_places
from tacit.privacy.gradients.clipping import Lot, PerSample
from tacit.privacy.gradients.general import PerSampleKernel, filler_of, general_shape
from tacit.privacy.gradients.rounding import RoundingKernel
from tacit.privacy.rounding import Discrete
from tacit.privacy.units import UnitModel

_REMEMBERED = 64


class Queries:
    """Chooses runners for per-sample functions: many records at a time, or one by one where places would matter.

    `example` holds public records. Without any, nothing can be tested, and records are computed one by one. With `rounding`, every
    record's vector is rounded, and the last of the public tensors is the number of the query.
    """

    def __init__(
        self, model: FlatModel, lot_sizes: Sequence[float], example: Lot | None, rounding: Discrete | None = None
    ) -> None:
        self._model, self._lot_sizes, self._example, self._rounding = model, lot_sizes, example, rounding
        self._known: dict[object, BatchRunner] = {}

    def runner(self, per_sample: PerSample, public: tuple[Tensor, ...], width: int) -> BatchRunner:
        """Return the runner for this function; an error that it has with public records is raised as it is."""
        key = (
            per_sample,
            width,
            torch.get_num_threads(),
            *((tuple(each.shape[1:]), each.dtype, each.device) for each in public),
        )
        if key not in self._known:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[key] = self._checked(per_sample, public, width)
        return self._known[key]

    def _checked(self, per_sample: PerSample, public: tuple[Tensor, ...], width: int) -> BatchRunner:
        whole = self._model.whole(per_sample) if isinstance(self._model, UnitModel) else per_sample
        kernel = PerSampleKernel(self._model, whole, width)
        if self._rounding is not None:
            kernel = RoundingKernel(self._model, whole, width, self._rounding)
        if self._example is None:
            return self._runner(kernel, width, one_by_one=True)
        rows = tuple(each[:1] for each in public), tuple(_randomized(each[:1]) for each in public)
        for one_by_one in (False, True):
            runner = self._runner(kernel, width, one_by_one=one_by_one)
            try:
                for row in rows:
                    check_places(runner, row, self._example)
                break
            except Unsupported:
                continue
        return runner

    def _runner(self, kernel: PerSampleKernel, width: int, *, one_by_one: bool) -> BatchRunner:
        shape = general_shape(width, self._model.dtype, self._lot_sizes, one_by_one=one_by_one)
        return BatchRunner(kernel, shape, self._model.dtype, filler_of(self._example, self._model.dtype))


def _randomized(row: Tensor) -> Tensor:
    """Return random numbers of about the same size: zeros would hide how products are rounded."""
    if not row.is_floating_point():
        return row
    chance = torch.randn(row.shape, generator=torch.Generator().manual_seed(0)).to(row)
    return chance * max(float(row.abs().mean()), 0.02)
