"""Which engine a run uses. Chosen from public facts alone, and checked on public records before anything is asked."""

import logging
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from tacit.errors import ModelError
from tacit.models.functional import FlatModel
from tacit.models.make import is_own, make_of
from tacit.privacy.clipping import Engine, Lot
from tacit.privacy.engines.checking import anywhere, check_against, check_compiled, check_places
from tacit.privacy.engines.general import VmapEngine
from tacit.privacy.engines.ghost import GhostEngine
from tacit.privacy.engines.steps import FAILS_ON_PUBLIC, Unsupported

Compile = bool | Literal["auto"]
# Compiling takes some 20 seconds, and saves three quarters of the time: about 75 seconds of work.
_WORTH_COMPILING = 6e11
_WORK_PER_PARAMETER, _WORK_PER_NUMBER = 6, 60

# Tried one after another where a record's place matters in the best ones.
_OTHER_SIZES = (32, 16, 8, 4)
_LONGEST = 150  # letters of an error

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
    """Return the fastest engine that gives on public records what the general one gives, each record apart to the bit.

    `compile="auto"` compiles where the run is long enough to win back the time that it takes. A model that is made of torch's
    own layers is tried once in a process for each shape of its steps.
    """
    given = (model, example, lot_sizes)
    key = _key(*given, queries if compile == "auto" else 0, private, compile)
    if key in _TRIED:
        return _TRIED[key].again(*given)
    chosen = _choose(model, theta, example, lot_sizes=lot_sizes, queries=queries, private=private, compile=compile)
    if key is not None:
        _TRIED[key] = _Tried.of(chosen)
    return chosen


class _Tried(NamedTuple):
    """What was chosen, without the model."""

    layered: bool
    settings: dict[str, Any]
    why: str

    @classmethod
    def of(cls, chosen: Chosen) -> "_Tried":
        if isinstance(chosen.engine, GhostEngine):
            settings = {"compiled": chosen.engine.compiled, "size": chosen.engine.steps.shape.size}
            return cls(True, settings, chosen.why)
        assert isinstance(chosen.engine, VmapEngine)
        return cls(False, {"one_by_one": chosen.engine.one_by_one}, chosen.why)

    def again(self, model: FlatModel, example: Lot, lot_sizes: Sequence[float]) -> Chosen:
        make = GhostEngine if self.layered else VmapEngine
        engine = make(model, lot_sizes, example, **self.settings)
        if self.settings.get("compiled"):  # on public records, where an error is shown
            rows = torch.zeros(1, model.size, dtype=model.dtype, device=example.inputs.device)
            one = example._replace(offsets=example.offsets.new_tensor([0, example.size]))
            engine.steps.tells = True
            engine.clipped_sums(rows, one, torch.ones(1, dtype=torch.float64, device=rows.device))
            engine.steps.tells = False
        return Chosen(engine, self.why)


_TRIED: dict[tuple[Any, ...] | None, _Tried] = {}


def _key(
    model: FlatModel, example: Lot, lot_sizes: Sequence[float], queries: int, private: bool, compile: Compile
) -> tuple[Any, ...] | None:
    """Return all that decides which engine is chosen, or None where code of a user's own has a say."""
    make = make_of(model.training_module)
    if make is None or not is_own(model.loss) or not is_own(example.prepare):
        return None
    records = tuple((each.shape[1:], each.dtype, each.device) for each in (example.inputs, example.targets))
    return (
        make,
        model.loss,
        example.prepare,
        records,
        tuple(lot_sizes),
        torch.get_num_threads(),
        queries,
        private,
        compile,
    )


def _choose(
    model: FlatModel,
    theta: Tensor,
    example: Lot,
    *,
    lot_sizes: Sequence[float],
    queries: int,
    private: bool,
    compile: Compile,
) -> Chosen:
    row = (anywhere(theta),)
    try:
        check_against(model, theta, example, lot_sizes)
        engine = _in_steps(model, row, example, lot_sizes)
    except Unsupported as reason:
        return _general(model, row, example, lot_sizes, f"record by record: {reason}")
    except ModelError as error:
        if not str(error).startswith(FAILS_ON_PUBLIC):
            raise
        return _general(model, row, example, lot_sizes, f"record by record: layer by layer failed with {_said(error)}")
    except Exception as error:  # whatever a user's module does when it is run in another way
        log.debug("layer by layer failed", exc_info=True)
        why = f"record by record: layer by layer failed with {_said(error)}"
        return _general(model, row, example, lot_sizes, why)
    records = queries * sum(lot_sizes)
    work = records * (_WORK_PER_PARAMETER * model.size + _WORK_PER_NUMBER * engine.numbers_kept)
    if not (work > _WORTH_COMPILING if compile == "auto" else compile):
        return Chosen(engine, "layer by layer")
    try:
        compiled = GhostEngine(model, lot_sizes, example, compiled=True, size=engine.steps.shape.size)
        check_compiled(compiled, engine, theta, example, private=private)
        if private:
            check_places(compiled.steps, row, example)
    except Unsupported as reason:
        return Chosen(engine, f"layer by layer; not compiled: {reason}")
    except Exception as error:  # no compiler, or one that cannot do this
        log.debug("compiling failed", exc_info=True)
        log.warning("gradients are not compiled, which takes longer: %s", _said(error))
        return Chosen(engine, f"layer by layer; compiling failed with {_said(error)}")
    return Chosen(compiled, "layer by layer, compiled")


def _in_steps(model: FlatModel, row: tuple[Tensor], example: Lot, lot_sizes: Sequence[float]) -> GhostEngine:
    """Return the engine with the best size of blocks in which no record's place matters."""
    for size in (None, *_OTHER_SIZES):
        engine = GhostEngine(model, lot_sizes, example, size=size)
        try:
            check_places(engine.steps, row, example)
            return engine
        except Unsupported as reason:
            refused = reason
    raise refused


def _general(model: FlatModel, row: tuple[Tensor], example: Lot, lot_sizes: Sequence[float], why: str) -> Chosen:
    """Return the general engine: in steps if no record's place matters in them, one record after another if it does."""
    engine = VmapEngine(model, lot_sizes, example)
    try:
        check_places(engine.steps, row, example)
        return Chosen(engine, why)
    except Unsupported as reason:
        alone = VmapEngine(model, lot_sizes, example, one_by_one=True)
        check_places(alone.steps, row, example)
        return Chosen(alone, f"{why}; one at a time: {reason}")


def _said(error: Exception) -> str:
    """Return an error in one line. It comes of public records, and may be told."""
    text = str(error).strip()
    if isinstance(error, ModelError) and text.startswith(FAILS_ON_PUBLIC):
        return text.removeprefix(FAILS_ON_PUBLIC).splitlines()[0][:_LONGEST]
    first = next(iter(text.splitlines()), "")[:_LONGEST]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
