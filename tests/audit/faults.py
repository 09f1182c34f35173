"""Faults to plant in a sound system. Each breaks the promise in a way that real code has been seen to break it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import tacit.session
from tacit.counting import Cost
from tacit.privacy import Fast, Sources, VmapEngine
from tacit.privacy.clipping import Clipped, Lot
from tacit.privacy.oracle import LotDrawer, PrivateOracle
from tacit.privacy.sources import Source, Stream


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


# Seeded, so that what is caught once is caught always. The attacker knows of seed 0 alone.
UNKNOWN = TwoSources(Fast(1), Fast(2))
HALVED = replace(UNKNOWN, scale=0.5)
SAME_EVERY_ROUND = replace(UNKNOWN, stuck=True)
FORGOTTEN = replace(UNKNOWN, forgetful=(0,))
KNOWN_NOISE = replace(UNKNOWN, noise=Fast(0))
KNOWN_LOTS = replace(UNKNOWN, lots=Fast(0))


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


def _only_vmap(patch: pytest.MonkeyPatch, clipped_sums: Any) -> None:
    """Use the general engine, spoilt, and skip the check that would find it out before anything is asked."""
    from tacit.privacy.engines.choice import Chosen

    patch.setattr(VmapEngine, "clipped_sums", clipped_sums)
    patch.setattr(tacit.session, "choose_engine", lambda model, *a, **k: Chosen(VmapEngine(model), "planted"))


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

    def draw(self: LotDrawer) -> Any:
        streams, lots = sound(self)
        for _ in range(4):
            more = sound(self)[1]
            lots = [np.concatenate(pair) for pair in zip(lots, more, strict=True)]
        return streams, lots

    patch.setattr(LotDrawer, "draw", draw)


def charge_only_every(steps: int, patch: pytest.MonkeyPatch) -> None:
    """ERRATA row 2: noise is settled, and the ledger charged, as if one round were one query."""
    count, spend, asked = tacit.session.count, PrivateOracle._spend, [0]

    def too_few(*args: Any) -> Cost:
        cost = count(*args)
        return replace(cost, queries=cost.queries // steps)

    def rarely(self: PrivateOracle) -> None:
        asked[0] += 1
        if asked[0] % steps == 0:
            spend(self)

    patch.setattr(tacit.session, "count", too_few)
    patch.setattr(PrivateOracle, "_spend", rarely)
    patch.setattr("tacit.privacy.ledger.Account.check", lambda self: None)
