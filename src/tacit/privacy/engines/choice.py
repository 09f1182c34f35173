"""Which engine a run uses. Chosen from public facts alone, and checked on public records before anything is asked."""

import logging
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from tacit.models.functional import FlatModel
from tacit.privacy.clipping import Engine, Lot, VmapEngine
from tacit.privacy.engines.ghost import GhostEngine
from tacit.privacy.engines.stacked import Unsupported

Compile = bool | Literal["auto"]
# Compiling takes about a minute of one core; it is worth while for gradients that would take about two without.
_WORTH_COMPILING = 5e11
_WORK_PER_PARAMETER, _WORK_PER_NUMBER = 6, 60

log = logging.getLogger(__name__)


class Chosen(NamedTuple):
    """An engine, and in words why it is this one."""

    engine: Engine
    why: str

    @property
    def compiled(self) -> bool:
        """Whether its steps are compiled."""
        return isinstance(self.engine, GhostEngine) and self.engine.compiled


def choose_engine(
    model: FlatModel,
    theta: Tensor,
    example: Lot,
    *,
    lot_sizes: Sequence[float],
    queries: int,
    private: bool,
    compile: Compile,
) -> Chosen:
    """Return the fastest engine that gives on public records what the general one gives.

    `compile="auto"` compiles where the run is long enough to win back the time that it takes.
    """
    general = VmapEngine(model)
    try:
        engine = GhostEngine(model, lot_sizes, example)
        _check(engine, general, theta, example, private)
    except Unsupported as reason:
        return Chosen(general, f"record by record: {reason}")
    except Exception as error:  # whatever a user's module does when it is run in another way
        log.debug("layer by layer failed", exc_info=True)
        return Chosen(general, f"record by record: layer by layer failed with {type(error).__name__}")
    records = queries * sum(lot_sizes)
    work = records * (_WORK_PER_PARAMETER * model.size + _WORK_PER_NUMBER * engine.numbers_kept)
    if not (work > _WORTH_COMPILING if compile == "auto" else compile):
        return Chosen(engine, "layer by layer")
    try:
        compiled = GhostEngine(model, lot_sizes, example, compiled=True)
        with torch.no_grad():
            compiled.warm(theta, example, private=private)
        _check(compiled, general, theta, example, private)
    except Exception as error:  # no compiler, or one that cannot do this
        log.debug("compiling failed", exc_info=True)
        return Chosen(engine, f"layer by layer; compiling failed with {type(error).__name__}")
    return Chosen(compiled, "layer by layer, compiled")


def _check(engine: GhostEngine, general: VmapEngine, theta: Tensor, example: Lot, private: bool) -> None:
    """Raise `Unsupported` unless both engines agree, for two agents with different parameters and clipping at work."""
    generator = torch.Generator().manual_seed(0)
    moved = theta + 0.1 * theta.abs().mean() * torch.randn(theta.shape, generator=generator).to(theta)
    both = torch.stack([theta, moved])
    records = len(example.targets)
    offsets = example.offsets.new_tensor([0, records // 2, records])
    lot = Lot(example.inputs, example.targets, offsets)
    with torch.no_grad():
        if private:
            free = torch.full((2,), 1e30, dtype=torch.float64, device=theta.device)
            ours, theirs = engine.clipped_sums(both, lot, free), general.clipped_sums(both, lot, free)
            if not ((ours.norms >= 0.9999 * theirs.norms) & (ours.norms <= 1.05 * theirs.norms + 1e-12)).all():
                raise Unsupported("layer by layer gives other norms")
            _compare(ours.sums, theirs.sums, 1e-4)
            clip = free.new_full((2,), float(theirs.norms.median()))
            _compare(engine.clipped_sums(both, lot, clip).sums, general.clipped_sums(both, lot, clip).sums, 5e-2)
        else:
            _compare(engine.plain_sums(both, lot), general.plain_sums(both, lot).double(), 1e-4)


def _compare(ours: Tensor, theirs: Tensor, tolerance: float) -> None:
    if not torch.allclose(ours, theirs, rtol=1e-3, atol=tolerance * float(theirs.abs().max())):
        raise Unsupported("layer by layer gives another gradient")
