"""Which engine a run uses: chosen from public facts alone, and tested on public records before the first query."""

import logging
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from tacit.data.inputs import names, parts
from tacit.errors import ModelError
from tacit.models.functional import FlatModel
from tacit.models.make import is_own, make_of
from tacit.privacy.gradients.batches import FAILS_ON_PUBLIC, Unsupported
from tacit.privacy.gradients.checking import anywhere, check_against, check_compiled, check_places
from tacit.privacy.gradients.clipping import Engine, Lot
from tacit.privacy.gradients.general import VmapEngine
from tacit.privacy.gradients.ghost import GhostEngine
from tacit.privacy.units import UnitModel

Compile = bool | Literal["auto"]
# Compiling takes about 20 seconds and saves three quarters of the time: worth it from about 75 seconds of work.
_WORTH_COMPILING = 6e11
_WORK_PER_PARAMETER, _WORK_PER_NUMBER = 6, 60

# Tried in turn if the best size lets a record's place matter.
_OTHER_SIZES = (32, 16, 8, 4)
_LONGEST = 150  # characters of an error message

log = logging.getLogger(__name__)


class Chosen(NamedTuple):
    """An engine, and why it was chosen, in words."""

    engine: Engine
    why: str

    @property
    def compiled(self) -> bool:
        """Whether its batches are compiled."""
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
    """Return the fastest engine that agrees with the general one on public records and keeps records apart to the bit.

    `compile="auto"` compiles if the run is long enough to save more time than compiling takes. A model of torch's own layers is
    tested once per process for each shape of its batches.
    """
    if isinstance(model, UnitModel):  # the norm of a unit's sum does not follow from its records' norms
        try:
            return _general(model, (anywhere(theta),), example, lot_sizes, f"{model.named} by {model.named}")
        except (RuntimeError, NotImplementedError) as error:
            raise ModelError(
                f"the summed gradients of a {model.named}'s records cannot be computed with this model: {_error_text(error)}"
            ) from error
    key = _key(model, example, lot_sizes)
    chosen = _recalled(key, model, example, lot_sizes)
    if chosen is None:
        chosen = _remembered(key, _uncompiled(model, theta, example, lot_sizes))
    if not isinstance(chosen.engine, GhostEngine):
        return chosen
    records = queries * sum(lot_sizes)
    work = records * (_WORK_PER_PARAMETER * model.size + _WORK_PER_NUMBER * chosen.engine.numbers_kept)
    if not (work > _WORTH_COMPILING if compile == "auto" else compile):
        return chosen
    key = None if key is None else (*key, "compiled", private)
    compiled = _recalled(key, model, example, lot_sizes)
    return compiled or _remembered(key, _compiled(chosen.engine, model, theta, example, lot_sizes, private=private))


class _Verdict(NamedTuple):
    """What was chosen, without a reference to the model."""

    layered: bool
    settings: dict[str, Any]
    why: str


_VERDICTS: dict[tuple[Any, ...], _Verdict] = {}


def _key(model: FlatModel, example: Lot, lot_sizes: Sequence[float]) -> tuple[Any, ...] | None:
    """Return everything that decides which engine is chosen, or None if a user's own code is involved."""
    known = code_and_records(model, example)
    return None if known is None else (*known, tuple(lot_sizes), torch.get_num_threads())


def code_and_records(model: FlatModel, example: Lot) -> tuple[Any, ...] | None:
    """Return what a model is made of and the public records that it is tried on, to compare; None if a user's own code is involved."""
    make = make_of(model.training_module)
    if make is None or not is_own(model.loss) or not is_own(example.prepare):
        return None
    records = tuple(
        (each.shape, each.dtype, each.device, hash(each.cpu().contiguous().view(torch.uint8).numpy().tobytes()))
        for each in (*parts(example.inputs), example.targets)  # a test on other records says nothing about these
    )
    return make, model.loss, example.prepare, tuple(names(example.inputs)), records


def _remembered(key: tuple[Any, ...] | None, chosen: Chosen) -> Chosen:
    if key is not None:
        engine = chosen.engine
        if isinstance(engine, GhostEngine):
            settings: dict[str, Any] = {"compiled": engine.compiled, "size": engine.runner.shape.size}
        else:
            assert isinstance(engine, VmapEngine)
            settings = {"one_by_one": engine.one_by_one}
        _VERDICTS[key] = _Verdict(isinstance(engine, GhostEngine), settings, chosen.why)
    return chosen


def _recalled(key: tuple[Any, ...] | None, model: FlatModel, example: Lot, lot_sizes: Sequence[float]) -> Chosen | None:
    if key is None or key not in _VERDICTS:
        return None
    layered, settings, why = _VERDICTS[key]
    engine = (GhostEngine if layered else VmapEngine)(model, lot_sizes, example, **settings)
    if settings.get("compiled"):  # traced by its first batch: on public records, so that an error is shown
        theta = torch.zeros(1, model.size, dtype=model.dtype, device=example.targets.device)
        lot = example._replace(offsets=example.offsets.new_tensor([0, example.size]))
        engine.runner.shows_errors = True
        engine.clipped_sums(theta, lot, torch.ones(1, dtype=torch.float64, device=theta.device))
        engine.runner.shows_errors = False
    return Chosen(engine, why)


def _uncompiled(model: FlatModel, theta: Tensor, example: Lot, lot_sizes: Sequence[float]) -> Chosen:
    """Return the best engine without a compiler."""
    row = (anywhere(theta),)
    try:
        check_against(model, theta, example, lot_sizes)
        return Chosen(_in_batches(model, row, example, lot_sizes), "layer by layer")
    except Unsupported as reason:
        return _general(model, row, example, lot_sizes, f"record by record: {reason}")
    except ModelError as error:
        if not str(error).startswith(FAILS_ON_PUBLIC):
            raise
        return _general(
            model, row, example, lot_sizes, f"record by record: layer by layer failed with {_error_text(error)}"
        )
    except Exception as error:  # a user's module may fail in any way when run layer by layer
        log.debug("layer by layer failed", exc_info=True)
        why = f"record by record: layer by layer failed with {_error_text(error)}"
        return _general(model, row, example, lot_sizes, why)


def _compiled(
    engine: GhostEngine, model: FlatModel, theta: Tensor, example: Lot, lot_sizes: Sequence[float], *, private: bool
) -> Chosen:
    """Return the same engine compiled, or as it is if compiling fails, gives other results or lets a place matter."""
    try:
        compiled = GhostEngine(model, lot_sizes, example, compiled=True, size=engine.runner.shape.size)
        check_compiled(compiled, engine, theta, example, private=private)
        if private:
            check_places(compiled.runner, (anywhere(theta),), example)
    except Unsupported as reason:
        return Chosen(engine, f"layer by layer; not compiled: {reason}")
    except Exception as error:  # no compiler, or one that cannot compile this
        log.debug("compiling failed", exc_info=True)
        log.warning("gradients are not compiled, which takes longer: %s", _error_text(error))
        return Chosen(engine, f"layer by layer; compiling failed with {_error_text(error)}")
    return Chosen(compiled, "layer by layer, compiled")


def _in_batches(model: FlatModel, row: tuple[Tensor], example: Lot, lot_sizes: Sequence[float]) -> GhostEngine:
    """Return the engine with the best size of blocks in which no record's place matters."""
    for size in (None, *_OTHER_SIZES):
        engine = GhostEngine(model, lot_sizes, example, size=size)
        try:
            check_places(engine.runner, row, example)
            return engine
        except Unsupported as reason:
            refused = reason
    raise refused


def _general(model: FlatModel, row: tuple[Tensor], example: Lot, lot_sizes: Sequence[float], why: str) -> Chosen:
    """Return the general engine: in batches if no record's place matters, otherwise one record at a time."""
    engine = VmapEngine(model, lot_sizes, example)
    try:
        check_places(engine.runner, row, example)
        return Chosen(engine, why)
    except Unsupported as reason:
        alone = VmapEngine(model, lot_sizes, example, one_by_one=True)
        check_places(alone.runner, row, example)
        return Chosen(alone, f"{why}; one at a time: {reason}")


def _error_text(error: Exception) -> str:
    """Return an error in one line. It comes from public records, so it may be shown."""
    text = str(error).strip()
    if isinstance(error, ModelError) and text.startswith(FAILS_ON_PUBLIC):
        return text.removeprefix(FAILS_ON_PUBLIC).splitlines()[0][:_LONGEST]
    first = next(iter(text.splitlines()), "")[:_LONGEST]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
