"""Gaussian noise on a public grid: what an answer is rounded to, and that it is rounded right.

With S an agent's sum and s = σC, what leaves is z·γ/L for the integer z nearest to (S + s·ξ)/γ, where γ is the largest power of two
of at most s/1024 and ξ is an ideal, real standard normal. z is made of the ideal Gaussian mechanism's answer and nothing else, and so it is
as private as that: neither the low bits of S nor those of noise are in it.

z is computed as n + round(f + (s/γ)·ξ), where n is the integer nearest to S/γ and f = S/γ - n; both are exact, as γ is a power of
two. ξ comes from `normals.box_muller` in float64. Where f + (s/γ)·ξ lies so close to the middle between two integers that
this could round the wrong way (Ziv's test), or where its pair is one that float64 does badly, the number is decided
again by `normals.nearest`, with further secret bits of its own. So z is that of the ideal mechanism, up to a chance
of 2^LOG2_DISTANCE (`distances`); and it does not depend on how the work was cut up, on threads or on the kind of processor.

Only keystreams (`Secret`, `Seeded`) have further bits. Normals of other sources are rounded to the same grid, once; they are
not a release in any case.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
import torch
from jaxtyping import Float, Float64, UInt64
from torch import Tensor

from tacit.errors import PrivacyError
from tacit.privacy.mechanisms import Gaussian, Mechanism
from tacit.privacy.normals import RADII, box_muller, nearest
from tacit.privacy.randomness import BLOCK, ChaChaStream, Stream

_STEPS_BITS = 11  # s/γ lies between 2^10 and 2^11
# normals.ERROR times s/γ is 2^-29, and rounding of product and sum, which stay below 2^14, adds 2^-38.
BAND = 2.0**-25
"""A number this close to the middle between two integers is decided again: over eight times what float64 can be wrong by."""

# Noise outside of these would leave the range of float64 on its way to the grid and back.
_SCALES = (2.0**-500, 2.0**500)


class _Rows(NamedTuple):
    """What rounding takes for each of some agents, each [agents, 1]."""

    per_unit: Tensor  # 1/γ
    steps: Tensor  # s/γ
    back: Tensor  # γ/L

    def some(self, rows: slice) -> "_Rows":
        return _Rows(*(column[rows] for column in self))


class _Pairs(NamedTuple):
    """The words of some rows' normals, and where each row's began."""

    streams: Sequence[ChaChaStream]
    places: list[int]
    words: UInt64[np.ndarray, "rows words"]
    radius: Float[Tensor, "rows pairs"]


def grid(scale: float) -> float:
    """Return the grid of noise with this standard deviation: the largest power of two of at most scale/1024."""
    if not _SCALES[0] <= scale <= _SCALES[1]:
        raise PrivacyError(
            f"noise multiplier times clip is {scale:g}; it must lie between {_SCALES[0]:.0g} and {_SCALES[1]:.0g}"
        )
    return math.ldexp(1.0, math.frexp(scale)[1] - _STEPS_BITS)


class Noise(Protocol):
    """Covers sums. One is made for the agents of an oracle and lives as long as it, so that it may keep something between queries.

    Whoever has what it keeps can take noise off the answers, so it is no part of a session's state, which is written to disk in the
    clear.
    """

    def release(
        self,
        sums: Float64[Tensor, "rows width"],
        streams: Sequence[Stream],
        agents: slice,
        out: Float[Tensor, "rows width"],
    ) -> None:
        """Write the answers of these agents to `out`, with noise from their streams of this query. `sums` is used up."""


def noise_of(mechanisms: Sequence[Mechanism], device: torch.device) -> Noise:
    """Return what makes the noise of these agents' mechanisms; all of one kind, which must be known."""
    kinds = {type(each.noise) for each in mechanisms}
    if kinds != {Gaussian}:
        raise PrivacyError(
            f"noise of kind {', '.join(sorted(kind.kind for kind in kinds))} cannot be made for all agents here"
        )
    return GridNoise(
        clips=[each.clip for each in mechanisms],
        noise_multipliers=[each.noise_multiplier for each in mechanisms],
        lot_sizes=[each.lot for each in mechanisms],
        device=device,
    )


class GridNoise:
    """Adds every agent's noise to its sums, rounds to its grid, and divides by its expected lot."""

    def __init__(
        self,
        *,
        clips: Sequence[float],
        noise_multipliers: Sequence[float],
        lot_sizes: Sequence[float],
        device: torch.device,
    ) -> None:
        # Rounded up: what is charged is σ, and noise must not be less than σC.
        products = [sigma * clip for sigma, clip in zip(noise_multipliers, clips, strict=True)]
        scales = [math.nextafter(product, math.inf) for product in products]
        grids = [grid(scale) for scale in scales]
        columns = (
            [1 / step for step in grids],
            [scale / step for scale, step in zip(scales, grids, strict=True)],
            [step / lot for step, lot in zip(grids, lot_sizes, strict=True)],
        )
        self._rows = _Rows(*(torch.tensor(column, dtype=torch.float64, device=device)[:, None] for column in columns))

    @torch.no_grad()
    def release(
        self,
        sums: Float64[Tensor, "rows width"],
        streams: Sequence[Stream],
        agents: slice,
        out: Float[Tensor, "rows width"],
    ) -> None:
        """Write (sums + σC ξ)/L, on the grid, of these agents to `out`, with noise from their streams. `sums` is used up."""
        rows, width = self._rows.some(agents), sums.shape[1]
        alike = len({isinstance(stream, ChaChaStream) for stream in streams}) == 1
        at_once = max(1, BLOCK // max(1, width)) if alike else 1
        for first in range(0, len(streams), at_once):
            part = slice(first, first + at_once)
            keyed = [stream for stream in streams[part] if isinstance(stream, ChaChaStream)]
            if len(keyed) < len(streams[part]):
                noise = torch.from_numpy(np.stack([stream.normals(width) for stream in streams[part]]))
                _round(sums[part], noise.to(sums.device), rows.some(part), None, out[part])
                continue
            for start in range(0, width, BLOCK):
                columns = slice(start, min(start + BLOCK, width))
                noise, pairs = _draw(keyed, columns.stop - start)
                _round(sums[part, columns], noise.to(sums.device), rows.some(part), pairs, out[part, columns])


def _draw(streams: Sequence[ChaChaStream], count: int) -> tuple[Float[Tensor, "rows normals"], _Pairs]:
    drawn = [stream.pairs((count + 1) // 2) for stream in streams]
    words = np.stack([words for _, words in drawn]) if len(drawn) > 1 else drawn[0][1][None]
    values, radius = box_muller(words)
    return values[:, :count], _Pairs(streams, [place for place, _ in drawn], words, radius)


def _round(sums: Tensor, noise: Tensor, rows: _Rows, pairs: _Pairs | None, out: Tensor) -> None:
    scaled = sums.mul_(rows.per_unit)
    whole = scaled.round()
    rest = scaled.sub_(whole)
    value = torch.addcmul(rest, noise, rows.steps, out=noise)
    rounded = value.round()
    left = value.sub_(rounded)
    if pairs is not None:
        _decide_again(left, rest, rows, pairs, rounded)
    out.copy_(rounded.add_(whole).mul_(rows.back))
    out.add_(0.0)  # -0 becomes 0: the sign of a zero would tell more than the zero


def _decide_again(left: Tensor, rest: Tensor, rows: _Rows, pairs: _Pairs, rounded: Tensor) -> None:
    """Find what `left` of rounding shows to be close, and what has an odd radius; round it as the ideal normal would be."""
    close = 0.5 - BAND
    shortest, longest = torch.stack(pairs.radius.aminmax()).tolist()
    lowest, highest = torch.stack(left.aminmax()).tolist()  # the one wait for another device, once a block
    if -close <= lowest and highest <= close and RADII[0] <= shortest and longest <= RADII[1]:
        return
    half, width = pairs.radius.shape[1], left.shape[1]
    odd = (pairs.radius < RADII[0]) | (pairs.radius > RADII[1])
    doubtful = (left.abs() > close).cpu() | torch.cat([odd, odd], dim=1)[:, :width]
    for row, column in doubtful.nonzero().tolist():
        pair = column % half
        rounded[row, column] = nearest(
            float(rest[row, column]),
            float(rows.steps[row]),
            (int(pairs.words[row, pair]), int(pairs.words[row, half + pair])),
            partial(pairs.streams[row].more, pairs.places[row] + pair),
            sine=column >= half,
        )
