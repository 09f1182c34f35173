"""Which engine a run uses. Chosen from public facts alone, and checked on public records before anything is asked."""

import logging
from collections.abc import Sequence
from typing import Literal, NamedTuple

from torch import Tensor

from tacit.models.functional import FlatModel
from tacit.privacy.clipping import Engine, Lot, VmapEngine
from tacit.privacy.engines.checking import check_against, check_compiled
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
        check_against(model, theta, example, lot_sizes)
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
        check_compiled(compiled, engine, theta, example, private=private)
    except Unsupported as reason:
        return Chosen(engine, f"layer by layer; not compiled: {reason}")
    except Exception as error:  # no compiler, or one that cannot do this
        log.debug("compiling failed", exc_info=True)
        return Chosen(engine, f"layer by layer; compiling failed with {type(error).__name__}")
    return Chosen(compiled, "layer by layer, compiled")
