"""Whether the layer-by-layer engine may be trusted with a model: tried on public records, in float64, before a run.

The general engine runs every record by itself, so no record can touch another. Here all records of a step go through
the user's code together, and code that mixes them only for odd values would break the bound. So besides agreement with
the general engine, one record at a time is poisoned, and all others must not notice.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from tacit.models.functional import FlatModel
from tacit.privacy.clipping import Lot, VmapEngine
from tacit.privacy.engines.ghost import GhostEngine
from tacit.privacy.engines.stacked import Unsupported

_POISONS = (float("nan"), float("inf"), -float("inf"), 1e4, -1e4, 1e30, -1e30)
_ROUNDING = 1e-3  # of compiled float32 steps, relative to the largest value
_LARGE_MODEL = 10**6  # parameters; per-sample gradients of more than a few records would not fit


def check_against(model: FlatModel, theta: Tensor, example: Lot, lot_sizes: Sequence[float]) -> None:
    """Raise `Unsupported` unless the engine gives what the general one gives, and keeps records apart.

    `example` holds public records. A large model is tried on few of them and in its own precision: it is slow.
    """
    large = model.size > _LARGE_MODEL
    tried, records = (model, 3) if large else (model.double(), len(example.targets))
    tolerance = 3e-2 if large else 1e-6
    offsets = example.offsets.new_tensor([0, records // 2, records // 2, records])
    lot = Lot(example.inputs[:records], example.targets[:records], offsets)
    engine, general = GhostEngine(tried, lot_sizes, lot), VmapEngine(tried)

    for thetas in _places(theta.to(tried.dtype)):
        with torch.no_grad():
            clip = _check_agreement(engine, general, thetas, lot, tolerance)
            _check_apart(engine, thetas, lot, clip, _POISONS[:4:3] if large else _POISONS, tolerance)
            if large:
                return
            _check_sizes(engine, thetas, lot)


def check_compiled(
    compiled: GhostEngine, engine: GhostEngine, model: FlatModel, theta: Tensor, example: Lot, *, private: bool
) -> None:
    """Compile what a run will need, and raise `Unsupported` unless it gives what the same steps give uncompiled.

    Every step is filled with blocks of agents whose parameters differ, and one record at a time is poisoned. Few records
    also go through the general engine, unless the model is large.
    """
    needed = {"clipped": private, "plain": not private}
    few = _repeated(example, [min(compiled.sizes[-1], 2), 0, 1])
    for thetas in _places(theta):
        with torch.no_grad():
            for size in compiled.sizes:
                counts = [size] * compiled.blocks_at_once(size)
                whose = torch.arange(len(counts), device=theta.device) % len(thetas)
                _check_agreement(compiled, engine, thetas[whose], _repeated(example, counts), _ROUNDING, **needed)
            if model.size > _LARGE_MODEL:
                return
            clip = _check_agreement(compiled, VmapEngine(model), thetas, few, _ROUNDING, **needed)
            if private:
                _check_apart(compiled, thetas, few, clip, _POISONS, _ROUNDING)


def _check_agreement(
    engine: GhostEngine,
    other: GhostEngine | VmapEngine,
    thetas: Tensor,
    lot: Lot,
    tolerance: float,
    *,
    clipped: bool = True,
    plain: bool = True,
) -> Tensor:
    """Compare clipped sums, plain ones or both; return clipping norms, which half of the records pass where any is asked for."""
    clip = torch.full((len(thetas),), 1e30, dtype=torch.float64, device=thetas.device)  # nothing is clipped at first
    for what in ("gradients", "clipping") if clipped else ():
        ours, theirs = (each.clipped_sums(thetas, lot, clip) for each in (engine, other))
        _agree(ours.norms, theirs.norms, "norms", tolerance)
        _agree(ours.sums, theirs.sums, what, tolerance)
        median = float(theirs.norms.median())
        clip = torch.full_like(clip, median if 0 < median < float("inf") else 1.0)  # clipped to 0, nothing shows
        del ours, theirs  # they are long
    if plain:
        _agree(engine.plain_sums(thetas, lot), other.plain_sums(thetas, lot).double(), "gradients", tolerance)
    return clip


def _places(theta: Tensor) -> Iterator[Tensor]:
    """Yield three agents' parameters, twice: about the start, and anywhere. A start of all zeros hides much."""
    generator = torch.Generator().manual_seed(0)
    width = max(float(theta.abs().mean()), 0.02)
    chance = torch.randn(len(theta), generator=generator).to(theta)
    yield torch.stack([theta, theta, theta + 0.1 * width * chance])
    yield width * torch.randn((3, len(theta)), generator=generator).to(theta)


def _check_sizes(engine: GhostEngine, thetas: Tensor, lot: Lot) -> None:
    """Blocks of every size, and a whole step of each, must give every record the norm that it has among few."""
    for size in engine.sizes:
        at_once = engine.blocks_at_once(size)
        counts = [size] * min(at_once, 4 * len(thetas)) if size < engine.sizes[-1] else [size * at_once + 1, 0, 1]
        many = _repeated(lot, counts)
        whose = torch.arange(len(counts), device=thetas.device) % len(thetas)
        free = torch.full((len(counts),), 1e30, dtype=torch.float64, device=thetas.device)
        found = engine.clipped_sums(thetas[whose], many, free).norms
        owner = whose.repeat_interleave(torch.tensor(counts, device=thetas.device))
        place = _place_in(lot, counts)
        known = _norms_of_all(engine, thetas, lot)
        _agree(found, known[owner, place], "norms in large batches")


def _check_apart(
    engine: GhostEngine, thetas: Tensor, lot: Lot, clip: Tensor, poisons: Sequence[float], tolerance: float
) -> None:
    """Poison one record at a time: no other record's norm and no other agent's sum may change."""
    before = engine.clipped_sums(thetas, lot, clip)
    for place in (0, len(lot.targets) - 1):
        owner = int(torch.searchsorted(lot.offsets, place, right=True)) - 1
        for poison in poisons:
            poisoned = _poison(lot, place, poison)
            if poisoned is None:
                continue
            after = engine.clipped_sums(thetas, poisoned, clip)
            others = torch.arange(len(lot.targets), device=thetas.device) != place
            _agree(after.norms[others], before.norms[others], "norms beside an odd record", tolerance)
            for agent in range(len(thetas)):
                if agent != owner:
                    one = slice(agent, agent + 1)
                    _agree(after.sums[one], before.sums[one], "gradients beside an odd record", tolerance)
            moved = (after.sums[owner] - before.sums[owner]).norm()
            if not float(moved) <= 2.0001 * float(clip[owner]):
                raise Unsupported("an odd record moves a sum by more than clipping allows")


def _poison(lot: Lot, place: int, poison: float) -> Lot | None:
    """Return the lot with one record made odd; None where this poison does not exist for such records."""
    inputs, targets = lot.inputs.clone(), lot.targets.clone()
    if inputs.is_floating_point():
        inputs[place] = poison
    elif abs(poison) == 1e4:
        inputs[place] = int(poison) if inputs.dtype.is_signed else 10**4 % 256
    else:
        return None
    if targets.is_floating_point() and poison == poison:
        targets[place] = poison
    return Lot(inputs, targets, lot.offsets)


def _repeated(lot: Lot, counts: list[int]) -> Lot:
    """Return so many records for each agent, the lot's own over and over."""
    places = _place_in(lot, counts)
    return Lot(lot.inputs[places], lot.targets[places], lot.offsets.new_tensor([0, *counts]).cumsum(0))


def _place_in(lot: Lot, counts: list[int]) -> Tensor:
    return torch.arange(sum(counts), device=lot.offsets.device) % len(lot.targets)


def _norms_of_all(engine: GhostEngine, thetas: Tensor, lot: Lot) -> Tensor:
    """Return every record's norm at every agent's parameters, few at a time."""
    free = torch.full((1,), 1e30, dtype=torch.float64, device=thetas.device)
    alone = Lot(lot.inputs, lot.targets, lot.offsets.new_tensor([0, len(lot.targets)]))
    return torch.stack([engine.clipped_sums(theta[None], alone, free).norms for theta in thetas])


def _agree(ours: Tensor, theirs: Tensor, what: str, tolerance: float = 1e-6) -> None:
    """Compare row by row: gradients of a large model are long, and comparing them makes copies."""
    largest = max(-float(theirs.min()), float(theirs.max()))
    rows = zip(ours, theirs, strict=True) if ours.ndim > 1 else ((ours, theirs),)  # norms are short
    for our, their in rows:
        if not torch.allclose(our, their, rtol=tolerance, atol=tolerance * largest + 1e-300):
            raise Unsupported(f"layer by layer gives other {what}")
