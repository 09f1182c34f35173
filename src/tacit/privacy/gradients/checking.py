"""Whether an engine works correctly for a model on this machine: tested on public records before a run.

Two things are tested. First, that the layer-by-layer engine agrees with the general one, in float64. Second, that a record's
norm and vector are the same to the bit at every place of a batch and beside any other records, with the same shapes, threads
and compiled code as in the run: libraries differ in that, and so do processors.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from operator import itemgetter

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tacit.data.guards import chance_state
from tacit.data.inputs import Inputs, mapped, parts, rebuild
from tacit.errors import ModelError
from tacit.models.functional import FlatModel
from tacit.privacy.gradients.arithmetic import own_arithmetic
from tacit.privacy.gradients.batches import BatchData, BatchRunner, Public, Unsupported
from tacit.privacy.gradients.clipping import Lot, Quantum, factor_bits, power_below
from tacit.privacy.gradients.general import VmapEngine
from tacit.privacy.gradients.ghost import GhostEngine

_ODD = (float("nan"), 1e4, 0.0, 1e-40)
Odd = tuple[float, int | None]  # a number, and the index of the input it is written into; None for all inputs
_ROUNDING = 1e-3  # of compiled float32 batches, relative to the largest value
_CUT_OFF = 1e-3  # of clipped sums, relative to C: two engines truncate vectors in different ways
_UPPER_BOUND = 2e-2  # by how much a norm may exceed the gradient's
_REPEATED, _TWICE = 8, 3  # records that fill all places in turn, and how many of them are repeated


def check_against(model: FlatModel, theta: Tensor, example: Lot, lot_sizes: Sequence[float]) -> None:
    """Raise `Unsupported` unless the layer-by-layer engine agrees with the general one, in float64.

    `example` holds public records.
    """
    tried, records = model.double(), example.size
    offsets = example.offsets.new_tensor([0, records // 2, records // 2, records])
    lot = example._replace(offsets=offsets, rows=torch.arange(records, device=offsets.device))
    engine, general = GhostEngine(tried, lot_sizes, lot, size=1), VmapEngine(tried, (2.0,), lot)
    engine.runner.shows_errors = general.runner.shows_errors = True  # all records are public
    for thetas in _places(theta.to(tried.dtype)):
        _check_agreement(engine, general, thetas, lot, 1e-6)


def check_compiled(compiled: GhostEngine, engine: GhostEngine, theta: Tensor, example: Lot, *, private: bool) -> None:
    """Compile what a run will need, and raise `Unsupported` unless the results agree with uncompiled batches.

    Every batch is filled with blocks of agents with different parameters.
    """
    size, blocks, *_ = compiled.runner.shape
    compiled.runner.shows_errors = True  # all records are public until a run starts
    for thetas in _places(theta):
        whose = torch.arange(blocks, device=theta.device) % len(thetas)
        lot = _repeated(example, [size] * blocks)
        _check_agreement(compiled, engine, thetas[whose], lot, _ROUNDING, clipped=private, plain=not private)
    compiled.runner.shows_errors = False


def check_places(runner: BatchRunner, public: Public, example: Lot) -> None:
    """Raise `Unsupported` unless a record gives the same norm and vector, to the bit, at every place of a batch.

    `public` holds one agent's tensors, one row each. Ordinary records and odd ones fill all places in turn, so that each is
    tested at every place and beside every other. If sums are exact, a block's must equal the sum of its records alone.
    """
    before = chance_state()
    with torch.no_grad(), own_arithmetic(runner.dtype, runner.shape.threads):
        ordinary = _Places(runner, public, example, ())
        ordinary.check_repeats()
        if runner.kernel.strange and runner.shape.size * runner.shape.blocks > 1:
            raise Unsupported(f"{', '.join(sorted(runner.kernel.strange))} may not keep records apart")
        if runner.shape.blocks > 1:
            ordinary.check_blocks()
        if runner.shape.size * runner.shape.blocks > 1:
            _check_prepared(example, runner.shape.size * runner.shape.blocks)
            first = example.take(torch.zeros(1, dtype=torch.int64, device=example.targets.device))[0]
            odds = _odds(first)
            if not _is_apart(runner, public, example, odds):  # a model may fail on some odd records and not on others
                ordinary.check()
                for odd in odds:
                    _is_apart(runner, public, example, (odd,))
    if chance_state() != before:
        raise ModelError(
            "the model, its loss or a query draws random numbers, which depend on a record's place in its lot"
        )


def _check_prepared(example: Lot, places: int) -> None:
    """Raise `Unsupported` unless a record is prepared to the same bits at every place and beside any other records."""
    if example.prepare is None:
        return
    rows: Inputs = example.inputs
    if example.rows is not None:
        rows = mapped(itemgetter(example.rows[example.rows >= 0]), example.inputs)
        if example.rows.ndim == 2:
            places *= example.rows.shape[1]
    batches = [rows]
    for odd in _odds(rows):
        tables = parts(rows)
        for number, table in enumerate(tables):
            tables[number] = torch.cat([table, _with_odd(table[:1].clone(), number, odd)])
        batches.append(rebuild(rows, tables))
    slots = torch.arange(places, device=example.targets.device)
    for batch in batches:
        known: dict[tuple[int, int], Tensor] = {}
        kinds = len(parts(batch)[0])
        for shift in range(kinds):
            which = (slots + shift) % kinds
            try:
                prepared = example.prepare(mapped(itemgetter(which), batch))
            except KeyboardInterrupt:
                raise
            except BaseException:  # it may refuse an odd record, but then does so at every place
                break
            for kind in range(kinds):
                for number, table in enumerate(parts(prepared)):
                    own = table[which == kind].nan_to_num(nan=-1)
                    if len(own) and not bool((own == known.setdefault((kind, number), own[0])).all()):
                        raise Unsupported("the rounding of prepare depends on a record's place among others")


def _odds(inputs: Inputs) -> list[Odd]:
    """Return the kinds of odd records: odd in all inputs or, if there are several, in one of them."""
    floats = [number for number, table in enumerate(parts(inputs)) if table.is_floating_point()]
    of_one = [(value, number) for number in floats for value in _ODD] if isinstance(inputs, tuple | dict) else []
    return [*((value, None) for value in _ODD), *of_one]


def _with_odd(records: Tensor, number: int, odd: Odd) -> Tensor:
    """Fill one input of some records with an odd number, if it is this input's turn and its type is floating."""
    value, which = odd
    if records.is_floating_point() and which in (None, number):
        records[:] = value
    return records


def _is_apart(runner: BatchRunner, public: Public, example: Lot, odd: Sequence[Odd]) -> bool:
    """Test all places with odd records among the others; return False if the model fails on those."""
    try:
        _Places(runner, public, example, odd).check()
    except (Unsupported, KeyboardInterrupt):
        raise
    except BaseException:
        return False
    return True


class _Places:
    """A batch filled with a few records, repeated."""

    def __init__(self, runner: BatchRunner, public: Public, example: Lot, odd: Sequence[Odd]) -> None:
        device, (size, blocks, *_) = example.targets.device, runner.shape
        self._runner, self._example, self._shape = runner, example, (blocks, size)
        self._public = tuple(each.expand(blocks, *each.shape[1:]).contiguous() for each in public)
        self._slots = torch.arange(blocks * size, device=device)
        self._ordinary = min(2, example.size)
        self._odd, self._kinds = odd, self._ordinary + len(odd)
        self._all = torch.ones(self._shape, dtype=torch.bool, device=device)
        self._clip = torch.ones(blocks, dtype=torch.float64, device=device)

    def check_repeats(self) -> None:
        """Fill all places with one record, then with another, and so on; the first few twice.

        It is an error if a record gives another result the second time: only state or randomness can do that.
        """
        generator = torch.Generator().manual_seed(0)
        inputs, targets = self._example.take(torch.arange(self._example.size, device=self._example.targets.device))
        for number in range(_REPEATED):
            place = number % self._example.size
            one: Inputs = mapped(itemgetter(slice(place, place + 1)), inputs)
            if number >= self._example.size:
                one = mapped(lambda table: _varied(table, generator), one)
            rows: Inputs = mapped(lambda table: table.repeat_interleave(len(self._slots), 0), one)
            labels = targets[place : place + 1].repeat_interleave(len(self._slots), 0)
            first, *again = (
                self._compute(mapped(Tensor.clone, rows), labels.clone(), self._all)
                for _ in range(1 + (number < _TWICE))
            )
            for before, after in zip(first * len(again), chain.from_iterable(again), strict=True):
                if not torch.equal(before.nan_to_num(nan=-1.0), after.nan_to_num(nan=-1.0)):
                    raise ModelError(
                        "the model or its loss returns another gradient for the same record the second time: it holds state"
                    )
            sums, norms = (each.nan_to_num(nan=-1.0) for each in first)
            if not bool((norms == norms[0, 0]).all()) or not bool((sums == sums[0]).all()):
                raise Unsupported("the rounding of a record's gradient depends on its place")

    def check_blocks(self) -> None:
        """Give every block its own tensors: its result must be the same as when all blocks have these."""
        generator, together = torch.Generator().manual_seed(1), self._public
        own = []
        for each in together:
            chance = torch.randn(each.shape, generator=generator).to(each.device)
            own.append(each * (1 + chance).to(each.dtype) if each.is_floating_point() else each)
        which = self._slots % self._ordinary
        self._public = tuple(own)
        mixed = self._run(which, self._all)
        for block in sorted({0, self._shape[0] // 2, self._shape[0] - 1}):
            self._public = tuple(each[block].expand_as(each).contiguous() for each in own)
            for ours, theirs in zip(mixed, self._run(which, self._all), strict=True):
                if not torch.equal(ours[block].nan_to_num(nan=-1.0), theirs[block].nan_to_num(nan=-1.0)):
                    raise Unsupported("a block's gradients change with the parameters of others")
        self._public = together

    def check(self) -> None:
        """Fill all places with each kind of record in turn."""
        norms: dict[int, Tensor] = {}
        first = self._run(self._slots % self._kinds, self._all)[1]
        self._clip *= (
            min(first[first.isfinite() & (first > 0)].tolist(), default=2.0) / 2
        )  # so that clipping has an effect
        vectors = self._vectors()
        if not bool((vectors.norm(dim=1) <= self._clip[0] * self._runner.kernel.room).all()):
            raise Unsupported("a record's vector is longer than clipping allows")
        for shift in range(self._kinds):
            which = ((self._slots + shift) % self._kinds).reshape(self._shape)
            sums, lengths = self._run(which.flatten(), self._all)
            for kind in range(self._kinds):
                own = lengths[which == kind].nan_to_num(nan=-1.0)  # with any NaN, the record counts as zero
                if len(own) and not bool((own == norms.setdefault(kind, own[0])).all()):
                    raise Unsupported("the rounding of a record's gradient depends on its place")
            self._compare(sums, which, vectors)

    def _vectors(self) -> Float[Tensor, "kinds width"]:
        """Return the vector of each kind of record alone, at one place, beside ordinary records that do not count."""
        rows = []
        for kind in range(self._kinds):
            keep, which = torch.zeros_like(self._all), torch.zeros_like(self._slots)
            keep[0, 0], which[0] = True, kind
            rows.append(self._run(which, keep)[0][0])
        return torch.stack(rows)

    def _compare(self, sums: Tensor, which: Tensor, vectors: Tensor) -> None:
        """Compare blocks with the same records bit by bit, and all of them with their records' own vectors."""
        counts = torch.stack([(which == kind).sum(1) for kind in range(self._kinds)], dim=1).double()
        expected = counts @ vectors
        if self._runner.kernel.exact:
            if not torch.equal(sums, expected):
                raise Unsupported("the rounding of a record's vector depends on its place")
            return
        first: dict[tuple[int, ...], Tensor] = {}
        if not all(
            torch.equal(row, first.setdefault(tuple(key), row)) for key, row in zip(which.tolist(), sums, strict=True)
        ):
            raise Unsupported("the rounding of a block's sum depends on its place")
        if not torch.allclose(sums, expected, rtol=1e-6, atol=1e-6 * float(self._clip.max())):
            raise Unsupported("a block's sum is not that of its records")

    def _run(self, which: Int[Tensor, " slots"], keep: Tensor) -> tuple[Tensor, Tensor]:
        inputs, targets = self._example.take(which % self._ordinary)
        for place, odd in enumerate(self._odd):
            own = which == self._ordinary + place
            for number, table in enumerate(parts(inputs)):
                table[own] = _with_odd(table[own], number, odd)
            if odd[1] is None:
                targets[own] = _with_odd(targets[own], 0, odd)
        return self._compute(inputs, targets, keep)

    def _compute(self, inputs: Inputs, targets: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        quantum = Quantum(power_below(self._clip), factor_bits(self._runner.shape.most_in_lot))
        return self._runner.kernel.clipped(BatchData(self._public, inputs, targets, keep), self._clip, quantum)


def _varied(record: Tensor, generator: torch.Generator) -> Tensor:
    """Return a random record like this one; integers stay as they are."""
    if not record.is_floating_point():
        return record
    return record * (1 + torch.randn(record.shape, generator=generator).to(record))


def _check_agreement(
    engine: GhostEngine,
    other: GhostEngine | VmapEngine,
    thetas: Tensor,
    lot: Lot,
    tolerance: float,
    *,
    clipped: bool = True,
    plain: bool = True,
) -> None:
    """Compare norms, clipped sums with and without an effect of clipping, and plain sums."""
    with torch.no_grad():
        if clipped:
            clip = torch.ones(len(thetas), dtype=torch.float64, device=thetas.device)
            known = engine.clipped_sums(thetas, lot, clip).norms
            finite = known[known.isfinite() & (known > 0)]
            top, median = (float(finite.max()), float(finite.median())) if len(finite) else (1.0, 1.0)
            # Ghost norms over several positions are upper bounds.
            above, off = (tolerance, _CUT_OFF) if engine.runner.kernel.exact else (_UPPER_BOUND, _UPPER_BOUND)
            for each in (2 * top, median):
                ours, theirs = (one.clipped_sums(thetas, lot, clip * each) for one in (engine, other))
                _agree(ours.norms, theirs.norms, "norms", above)
                _agree(ours.norms.maximum(theirs.norms), ours.norms, "norms", tolerance)
                _agree(ours.sums, theirs.sums, "clipped gradients", tolerance, off * each)
                del ours, theirs  # they are large
        if plain:
            _agree(engine.plain_sums(thetas, lot), other.plain_sums(thetas, lot).double(), "gradients", tolerance)


def _places(theta: Tensor) -> Iterator[Tensor]:
    """Yield three agents' parameters, twice: near the start, and random. A start of all zeros would hide errors."""
    generator = torch.Generator().manual_seed(0)
    width = max(float(theta.abs().mean()), 0.02)
    chance = torch.randn(len(theta), generator=generator).to(theta)
    yield torch.stack([theta, theta, theta + 0.1 * width * chance])
    yield width * torch.randn((3, len(theta)), generator=generator).to(theta)


def anywhere(theta: Float[Tensor, " params"]) -> Float[Tensor, "1 params"]:
    """Return random parameters of about the same size as these."""
    return list(_places(theta))[1][:1]


def _repeated(lot: Lot, counts: list[int]) -> Lot:
    """Return a lot with `counts` records per agent, repeating the lot's own."""
    rows = torch.arange(sum(counts), device=lot.offsets.device) % lot.size
    return lot._replace(
        rows=rows if lot.rows is None else lot.rows[rows], offsets=lot.offsets.new_tensor([0, *counts]).cumsum(0)
    )


def _agree(ours: Tensor, theirs: Tensor, what: str, tolerance: float, apart: float = 0.0) -> None:
    """Compare row by row: gradients of a large model are large, and a comparison makes copies."""
    finite = theirs[theirs.isfinite()] if theirs.ndim == 1 else theirs
    largest = max(-float(finite.min()), float(finite.max())) if finite.numel() else 0.0
    rows = zip(ours, theirs, strict=True) if ours.ndim > 1 else ((ours, theirs),)  # norms are short
    for our, their in rows:
        if not torch.allclose(our, their, rtol=tolerance, atol=tolerance * largest + apart + 1e-300, equal_nan=True):
            raise Unsupported(f"the layer-by-layer engine gives different {what}")
