"""Faults to plant in a sound system. Each breaks the promise in a way that real code has been seen to break it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import tacit.training.oracles
import tacit.training.planning
from tacit.models import FlatModel
from tacit.privacy import Fast, Sources, VmapEngine, noise_kinds
from tacit.privacy.banded_noise import BandedNoise
from tacit.privacy.gradients.batches import BatchRunner
from tacit.privacy.gradients.clipping import Clipped, Lot, Sample
from tacit.privacy.gradients.general import PerSampleKernel
from tacit.privacy.lots import LotDrawer
from tacit.privacy.noise import End
from tacit.privacy.oracle import PrivateOracle
from tacit.privacy.randomness import Source, Stream
from tacit.training.counting import Cost


@dataclass(frozen=True)
class TwoSources:
    """Lots from one place, noise from another, which may be spoilt: `scale` times, or always that of the first query."""

    lots: Sources
    noise: Sources
    scale: float = 1.0
    stuck: bool = False
    forgetful: tuple[int, ...] = ()
    secret = True

    def make(self, agents: int, trial: int = 0) -> Sequence[Source]:
        pairs = zip(self.lots.make(agents, trial), self.noise.make(agents, trial), strict=True)
        scales = [0.0 if agent in self.forgetful else self.scale for agent in range(agents)]
        return [_PairedSource(a, b, scale, self.stuck) for (a, b), scale in zip(pairs, scales, strict=True)]


class _PairedSource:
    def __init__(self, lots: Source, noise: Source, scale: float, stuck: bool) -> None:
        self._lots, self._noise, self._scale = lots, noise, scale
        self._first = noise.next().normals(4096) if stuck else None
        self.position = 0

    def next(self) -> "_PairedStream":
        return _PairedStream(self._lots.next(), self._noise.next(), self._scale, self._first)


class _PairedStream:
    def __init__(self, lots: Stream, noise: Stream, scale: float, first: np.ndarray | None) -> None:
        self._lots, self._noise, self._scale, self._first = lots, noise, scale, first

    def words(self, count: int) -> np.ndarray:
        return self._lots.words(count)

    def normals(self, count: int) -> np.ndarray:
        return self._scale * (self._noise.normals(count) if self._first is None else self._first[:count])


@dataclass(frozen=True)
class SharedNoise:
    """Lots from one place; noise that all agents share, moved along the axes by `shift` numbers from one agent to the next."""

    lots: Sources
    noise: Sources
    shift: int
    secret = True

    def make(self, agents: int, trial: int = 0) -> Sequence[Source]:
        lots = self.lots.make(agents, trial)
        return [_MovedSource(own, self.noise.make(1, trial)[0], agent * self.shift) for agent, own in enumerate(lots)]


class _MovedSource(_PairedSource):
    def __init__(self, lots: Source, noise: Source, places: int) -> None:
        super().__init__(lots, noise, scale=1.0, stuck=False)
        self._places = places

    def next(self) -> "_PairedStream":
        return _MovedStream(self._lots.next(), self._noise.next(), self._places)


class _MovedStream(_PairedStream):
    def __init__(self, lots: Stream, noise: Stream, places: int) -> None:
        super().__init__(lots, noise, scale=1.0, first=None)
        self._places = places

    def normals(self, count: int) -> np.ndarray:
        return np.roll(super().normals(count), self._places)


# Seeded, so that what is caught once is caught always. The attacker knows of seed 0 alone.
UNKNOWN = TwoSources(Fast(1), Fast(2))
HALVED = replace(UNKNOWN, scale=0.5)
SAME_EVERY_ROUND = replace(UNKNOWN, stuck=True)
FORGOTTEN = replace(UNKNOWN, forgetful=(0,))
KNOWN_NOISE = replace(UNKNOWN, noise=Fast(0))
KNOWN_LOTS = replace(UNKNOWN, lots=Fast(0))
SHIFTED = SharedNoise(Fast(1), Fast(2), shift=1)


def leave_clipping_out(patch: pytest.MonkeyPatch) -> None:
    sound = VmapEngine.clipped_sums

    def unclipped(self: VmapEngine, theta: Any, lot: Lot, clip: Any) -> Clipped:
        return sound(self, theta, lot, clip * 1e6)

    _only_vmap(patch, unclipped)


def clip_after_summing(patch: pytest.MonkeyPatch) -> None:
    sound = VmapEngine.clipped_sums

    def late(self: VmapEngine, theta: Any, lot: Lot, clip: Any) -> Clipped:
        sums, norms = sound(self, theta, lot, clip * 1e6)
        return Clipped(sums * (clip[:, None] / sums.norm(dim=1, keepdim=True).clamp(min=1e-12)).clamp(max=1), norms)

    _only_vmap(patch, late)


def clip_by_the_largest_coordinate(patch: pytest.MonkeyPatch) -> None:
    """At width 8 a vector may then be √8 times as long as it should."""

    def bounded(record: Sample, theta: Any, clip: Any) -> Any:
        gradient = record.gradient(theta)
        return gradient * (clip / gradient.abs().max().clamp(min=1e-30)).clamp(max=1)

    def by_coordinate(self: VmapEngine, theta: Any, lot: Lot, clip: Any) -> Clipped:
        kernel = PerSampleKernel(self._model, bounded, self._model.size)
        steps = BatchRunner(kernel, self.runner.shape, theta.dtype, None)
        return steps.clipped((theta, clip), lot, clip * 1e6, self._model.size)

    _only_vmap(patch, by_coordinate)


def _only_vmap(patch: pytest.MonkeyPatch, clipped_sums: Any) -> None:
    """Use the general engine, spoilt, and skip the check that would find it out before anything is asked."""
    from tacit.privacy.gradients.choice import Chosen

    def choose(model: FlatModel, *args: Any, lot_sizes: Sequence[float], **others: Any) -> Chosen:
        return Chosen(VmapEngine(model, lot_sizes), "planted")  # in steps as large as a sound one's

    patch.setattr(VmapEngine, "clipped_sums", clipped_sums)
    patch.setattr(tacit.training.oracles, "choose_engine", choose)


def draw_at(factor: float, patch: pytest.MonkeyPatch) -> None:
    """Draw lots at another rate than is stated."""
    sound = LotDrawer.__init__

    def init(self: LotDrawer, *args: Any) -> None:
        sound(self, *args)
        self._rates = tuple(factor * rate for rate in self._rates)

    patch.setattr(LotDrawer, "__init__", init)


def five_lots_under_one_noise(patch: pytest.MonkeyPatch) -> None:
    """ERRATA row 3: sub-lots drawn one by one and added up, with noise for one of them."""
    sound = LotDrawer.draw

    def draw(self: LotDrawer, query: int = 0) -> Any:
        streams, lots = sound(self, query)
        for _ in range(4):
            more = sound(self, query)[1]
            lots = [np.concatenate(pair) for pair in zip(lots, more, strict=True)]
        return streams, lots

    patch.setattr(LotDrawer, "draw", draw)


def charge_only_every(steps: int, patch: pytest.MonkeyPatch) -> None:
    """ERRATA row 2: noise is settled, and the ledger charged, as if one round were one query."""
    count, spend, asked = tacit.training.planning.count, PrivateOracle._spend, [0]

    def too_few(*args: Any, **settings: Any) -> Cost:
        cost = count(*args, **settings)
        return replace(cost, asked=tuple(queries // steps for queries in cost.asked))

    def rarely(self: PrivateOracle) -> None:
        asked[0] += 1
        if asked[0] % steps == 0:
            spend(self)

    patch.setattr(tacit.training.planning, "count", too_few)
    patch.setattr(PrivateOracle, "_spend", rarely)
    patch.setattr("tacit.privacy.ledger.Account.check", lambda self: None)


def raise_on_huge_inputs(patch: pytest.MonkeyPatch) -> None:
    """Let an error about a record leave the oracle."""
    sound, gradient = VmapEngine.clipped_sums, PrivateOracle.gradient

    def raising(self: VmapEngine, theta: Any, lot: Lot, clip: Any) -> Clipped:
        inputs = lot.inputs if lot.rows is None else lot.inputs[lot.rows]
        if float(inputs.nan_to_num().abs().max()) > 1e29:
            raise ValueError("a record is huge")
        return sound(self, theta, lot, clip)

    def unguarded(self: PrivateOracle, theta: Any) -> Any:
        if float(self._drawer._inputs.nan_to_num().abs().max()) > 1e29:
            raise ValueError("a record is huge")
        return gradient(self, theta)

    _only_vmap(patch, raising)
    patch.setattr(PrivateOracle, "gradient", unguarded)


def use_each_lot_twice(patch: pytest.MonkeyPatch) -> None:
    """Draw a lot in every other round only."""
    _redraw(patch, lambda drawer, lots, number, kept: kept if number % 2 else lots)


def use_one_lot_throughout(patch: pytest.MonkeyPatch) -> None:
    """Draw a lot in the first round only."""
    _redraw(patch, lambda drawer, lots, number, kept: kept or lots)


def alternate_even_and_odd_records(patch: pytest.MonkeyPatch) -> None:
    """Draw from half of the records at twice the rate, in turn."""
    draw_at(2.0, patch)

    def half(drawer: LotDrawer, lots: list[np.ndarray], number: int, kept: Any) -> list[np.ndarray]:
        held = drawer._indices
        return [lot[np.searchsorted(held[agent % len(held)], lot) % 2 == number % 2] for agent, lot in enumerate(lots)]

    _redraw(patch, half)


def draw_lots_of_one_size(patch: pytest.MonkeyPatch) -> None:
    """Draw as many records in every round as are expected."""
    chance = np.random.default_rng(0)

    def exactly(drawer: LotDrawer, lots: list[np.ndarray], number: int, kept: Any) -> list[np.ndarray]:
        held, rates = drawer._indices, drawer._rates
        return [
            np.sort(chance.choice(own, round(rates[agent] * len(own)), replace=False))
            for agent in range(len(lots))
            for own in [held[agent % len(held)]]
        ]

    _redraw(patch, exactly)


def _redraw(patch: pytest.MonkeyPatch, choose: Any) -> None:
    """Let `choose(drawer, lots, number of the query, lots of the query before)` say what is drawn."""
    sound = LotDrawer.draw

    def draw(self: LotDrawer, query: int = 0) -> Any:
        streams, lots = sound(self, query)
        number, kept = getattr(self, "_planted", (0, None))
        lots = choose(self, lots, number, kept)
        self._planted = number + 1, lots  # type: ignore[attr-defined]
        return streams, lots

    patch.setattr(LotDrawer, "draw", draw)


def divide_by_the_drawn_lot(patch: pytest.MonkeyPatch) -> None:
    """Scale the answer, and its noise, by the lot as it was drawn."""
    sound, drawn = LotDrawer.draw, dict[int, list[int]]()

    def draw(self: LotDrawer, query: int = 0) -> Any:
        streams, lots = sound(self, query)
        drawn[id(self)] = [len(lot) for lot in lots]
        return streams, lots

    compute = PrivateOracle._compute

    def scaled(self: PrivateOracle, *args: Any) -> Any:
        released = compute(self, *args)
        sizes = released.new_tensor(drawn[id(self._drawer)]).clamp(min=1)
        return released * (released.new_tensor(self._plan.lot_sizes) / sizes)[:, None]

    patch.setattr(LotDrawer, "draw", draw)
    patch.setattr(PrivateOracle, "_compute", scaled)


@dataclass(frozen=True)
class MaskFaults:
    """Sound lots and own noise, and masks with one fault.

    forgetful: agents without noise of their own.
    mask_scale: how large masks are beside what is stated.
    period: after so many queries, masks are repeated.
    """

    sources: Sources
    forgetful: tuple[int, ...] = ()
    mask_scale: float = 1.0
    period: int | None = None
    secret = True

    def make(self, agents: int, trial: int = 0) -> Sequence[Source]:
        return TwoSources(self.sources, self.sources, forgetful=self.forgetful).make(agents, trial)

    def make_masks(self, pairs: Sequence[tuple[int, int]], run: str, trial: int = 0) -> Sequence[Any]:
        return [_FaultyMasks(self, pair, trial) for pair in pairs]


class _FaultyMasks:
    def __init__(self, how: MaskFaults, pair: tuple[int, int], trial: int) -> None:
        self._how, self._pair, self._trial, self.position = how, pair, trial, 0

    def next(self) -> Any:
        query = self.position if self._how.period is None else self.position % self._how.period
        self.position += 1
        return lambda: _FaultyMask([3, self._trial, *self._pair, query], self._how.mask_scale)


class _FaultyMask:
    def __init__(self, key: list[int], scale: float) -> None:
        self._generator, self._scale = np.random.default_rng(key), scale

    def normals(self, count: int) -> np.ndarray:
        return self._scale * self._generator.standard_normal(count)


def add_masks_at_both_ends(patch: pytest.MonkeyPatch) -> None:
    """Let both ends of a key add its mask, so that it does not cancel, and skip the check that would refuse it."""
    from tacit.privacy import masks, oracle

    patch.setattr(masks, "End", lambda mask, sign: End(mask, 1))
    patch.setattr(oracle, "check_masks", lambda shared, plan: None)


def keep_the_curious_in_the_graph(patch: pytest.MonkeyPatch) -> None:
    """Compute the noise that protects an agent as if the curious did not know their own masks."""
    from tacit.privacy import cancelling, coalitions

    sound = coalitions.protection

    def ignorant(own: Any, mask: float, keys: Any, curious: int, **how: Any) -> Any:
        return sound(own, mask, keys, 0, **how)

    patch.setattr(coalitions, "protection", ignorant)
    patch.setattr(cancelling, "protection", ignorant)
    noise_kinds._deviations.cache_clear()


def scale_bands(factor: float, patch: pytest.MonkeyPatch) -> None:
    """Mix sums over queries with columns that are longer than the ledger says."""
    sound = BandedNoise.__init__

    def init(self: BandedNoise, noise: Any, column: Sequence[float]) -> None:
        sound(self, noise, [factor * weight for weight in column])

    patch.setattr(BandedNoise, "__init__", init)


def draw_from_all_groups(patch: pytest.MonkeyPatch) -> None:
    """Draw every lot from all records, at the rate of the group whose turn it is."""
    sound = LotDrawer.__init__

    def init(self: LotDrawer, *args: Any) -> None:
        sound(self, *args)
        self._groups = None

    patch.setattr(LotDrawer, "__init__", init)
