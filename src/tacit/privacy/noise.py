"""Gaussian noise on a public grid: what an answer is rounded to, and why the rounding is correct.

With S an agent's sum and s = σC, what leaves is z·γ/L for the integer z nearest to (S + s·ξ)/γ, where γ is the largest power of two
of at most s/1024 and ξ is an ideal, real standard normal. z follows from the ideal Gaussian mechanism's answer and nothing else, so it is
as private as that answer: it contains neither the low bits of S nor those of the noise.

z is computed as n + round(f + (s/γ)·ξ), where n is the integer nearest to S/γ and f = S/γ - n; both are exact, as γ is a power of
two. ξ comes from `normals.box_muller` in float64. Where f + (s/γ)·ξ is so close to the middle between two integers that
float64 could round it the wrong way (Ziv's test), or where float64 is inaccurate for its pair, `normals.nearest` decides
again, with additional secret bits. So z is that of the ideal mechanism, except with probability 2^LOG2_DISTANCE
(`distances`), and it does not depend on block sizes, threads or the kind of processor.

Masks that cancel between agents are further normals under the same rounding: z is the integer nearest to (S + s·ξ + Σ ±bL·ξ_ij)/γ, with b the
size of a mask in units of the answer. Both ends of a key have the same real ξ_ij, to any number of bits. They are added before
rounding, so that z follows from the ideal sum of all noise and nothing else. In the sum of both ends, rounding leaves less
than γ/L of a mask.

Only keystreams (`Secret`, `Seeded`) have additional bits. A sum with normals of other sources, own or shared, is simply rounded to the
same grid; such a run is not a release in any case.
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
from tacit.privacy.mechanisms import Mechanism
from tacit.privacy.noise_kinds import Gaussian, Masked
from tacit.privacy.normals import RADII, Normal, box_muller, nearest
from tacit.privacy.randomness import BLOCK, ChaChaStream, Opener, Stream

_STEPS_BITS = 11  # s/γ lies between 2^10 and 2^11
# A normal is off by normals.ERROR = 2^-40 at most. Products and sums of up to 2^9 normals below 2^3.1 are rounded by less than 2^-40
# of all their scales.
BAND = 2.0**-36
"""A number this close to the middle between two integers, times the scales of all its normals in grid steps, is decided again: more
than eight times the error of float64."""
_MOST_STEPS = 2.0**30
"""The largest sum of the scales of an agent's normals, in grid steps."""
_MOST_NORMALS = 2**9
MASK_BLOCK = 2**13
"""Columns for which masks are drawn at once: those of all pairs are in memory together."""

# Noise outside this range would overflow or underflow float64 on its way to the grid and back.
_SCALES = (2.0**-500, 2.0**500)


class End(NamedTuple):
    """One end of a key: the index of its mask, and the sign with which this end adds it."""

    mask: int
    sign: int


class _Rows(NamedTuple):
    """The constants of rounding, each [agents, 1]."""

    per_unit: Tensor  # 1/γ
    steps: Tensor  # s/γ
    mask_steps: Tensor  # bL/γ
    band: Tensor
    back: Tensor  # γ/L

    def some(self, rows: slice) -> "_Rows":
        return _Rows(*(column[rows] for column in self))


class _Keyed(NamedTuple):
    """The random words behind normals, and where they begin in each keystream."""

    streams: Sequence[ChaChaStream]
    places: list[int]
    words: UInt64[np.ndarray, "rows words"]
    radius: Float[Tensor, "rows pairs"]

    def odd(self) -> Tensor | None:
        """Return for which normals float64 is inaccurate, [rows, normals]; None if for none, which is nearly always so."""
        shortest, longest = torch.stack(self.radius.aminmax()).tolist()
        if RADII[0] <= shortest and longest <= RADII[1]:
            return None
        odd = (self.radius < RADII[0]) | (self.radius > RADII[1])
        return torch.cat([odd, odd], dim=1)

    def ideal(self, row: int, column: int, scale: float) -> Normal:
        """Return one of the normals, times a scale, to any number of bits."""
        half = self.radius.shape[1]
        pair = column % half
        words = int(self.words[row, pair]), int(self.words[row, half + pair])
        return Normal(scale, words, partial(self.streams[row].more, self.places[row] + pair), column >= half)


class _Drawn(NamedTuple):
    """Normals, a row from each stream; `keyed` is what their exact values follow from."""

    values: Float[Tensor, "rows normals"]
    keyed: _Keyed | None


def grid(scale: float) -> float:
    """Return the grid of noise with this standard deviation: the largest power of two of at most scale/1024."""
    if not _SCALES[0] <= scale <= _SCALES[1]:
        raise PrivacyError(
            f"noise multiplier times clip is {scale:g}; it must lie between {_SCALES[0]:.0g} and {_SCALES[1]:.0g}"
        )
    return math.ldexp(1.0, math.frexp(scale)[1] - _STEPS_BITS)


class Noise(Protocol):
    """Adds noise to sums. It is made for the agents of one oracle and lives as long, so it may keep state between queries.

    With that state one could subtract noise from the answers, so it is not part of a session's state, which is written to disk
    unencrypted.
    """

    def begin(self, query: int) -> None:
        """Start a query; `query` is the number of queries charged before."""

    def forget(self) -> None:
        """Erase everything that is remembered of earlier queries."""

    def release(
        self,
        sums: Float64[Tensor, "rows width"],
        streams: Sequence[Stream],
        masks: Sequence[Opener],
        agents: slice,
        out: Float[Tensor, "rows width"],
    ) -> None:
        """Write the answers of these agents to `out`, with noise from their streams and this query's masks. `sums` is overwritten."""


def make_noise(mechanisms: Sequence[Mechanism], ends: Sequence[Sequence[End]], device: torch.device) -> "GridNoise":
    """Return the noise of these agents' mechanisms, fresh for every query. They must all be of one known kind.

    `ends` are the agents' ends of keys.
    """
    kinds = {type(each.noise) for each in mechanisms}
    if kinds not in ({Gaussian}, {Masked}):
        raise PrivacyError(
            f"noise of kind {', '.join(sorted(kind.kind for kind in kinds))} cannot be made for all agents here"
        )
    return GridNoise(
        clips=[each.clip for each in mechanisms],
        noise_multipliers=[each.noise_multiplier for each in mechanisms],
        lot_sizes=[each.lot for each in mechanisms],
        masks=[each.noise.masks.size if isinstance(each.noise, Masked) else 0.0 for each in mechanisms],
        ends=ends,
        device=device,
    )


class FreshNoise:
    """Noise that is fresh for every query, so that nothing is kept between them."""

    def begin(self, query: int) -> None:
        """Do nothing: no query depends on another."""

    def forget(self) -> None:
        """Do nothing: there is nothing to remember."""


class GridNoise(FreshNoise):
    """Adds every agent's noise and masks to its sums, rounds to its grid, and divides by its expected lot.

    `masks` are the standard deviations of the agents' masks, in units of the answer, and `ends` their ends of keys.
    """

    def __init__(
        self,
        *,
        clips: Sequence[float],
        noise_multipliers: Sequence[float],
        lot_sizes: Sequence[float],
        device: torch.device,
        masks: Sequence[float] | None = None,
        ends: Sequence[Sequence[End]] | None = None,
    ) -> None:
        self._ends = [()] * len(clips) if ends is None else list(ends)
        # Rounded up: what is charged is σ, and noise must not be less than σC.
        products = [sigma * clip for sigma, clip in zip(noise_multipliers, clips, strict=True)]
        scales = [math.nextafter(product, math.inf) for product in products]
        grids = [grid(scale) for scale in scales]
        steps = [scale / step for scale, step in zip(scales, grids, strict=True)]
        sizes = [0.0] * len(clips) if masks is None else masks
        mask_steps = [size * lot / step for size, lot, step in zip(sizes, lot_sizes, grids, strict=True)]
        together = [own + len(of) * mask for own, of, mask in zip(steps, self._ends, mask_steps, strict=True)]
        if max(together) > _MOST_STEPS or max(map(len, self._ends)) >= _MOST_NORMALS:
            raise PrivacyError(
                f"an agent's masks add up to {max(together) / min(steps):.2g} times its own noise, with up to "
                f"{max(map(len, self._ends))} keys; that is too much to be rounded correctly: use fewer keys or a smaller ratio"
            )
        columns = (
            [1 / step for step in grids],
            steps,
            mask_steps,
            [BAND * each for each in together],
            [step / lot for step, lot in zip(grids, lot_sizes, strict=True)],
        )
        self._rows = _Rows(*(torch.tensor(column, dtype=torch.float64, device=device)[:, None] for column in columns))
        self._close = 0.5 - BAND * max(together)

    @torch.no_grad()
    def release(
        self,
        sums: Float64[Tensor, "rows width"],
        streams: Sequence[Stream],
        masks: Sequence[Opener],
        agents: slice,
        out: Float[Tensor, "rows width"],
    ) -> None:
        """Write (sums + σC ξ)/L + Σ ±b ξ_ij, on the grid, of these agents to `out`. `sums` is overwritten."""
        rows, width = self._rows.some(agents), sums.shape[1]
        used = sorted({end.mask for ends in self._ends[agents] for end in ends})
        position = {mask: number for number, mask in enumerate(used)}
        ends = [[End(position[mask], sign) for mask, sign in each] for each in self._ends[agents]]
        opened = [masks[number]() for number in used]
        alike = len({isinstance(stream, ChaChaStream) for stream in (*streams, *opened)}) == 1
        block = MASK_BLOCK if used else BLOCK
        for start in range(0, width, block):
            columns = slice(start, min(start + block, width))
            count = columns.stop - start
            shared = _draw(opened, count, sums.device) if used else None
            at_once = max(1, BLOCK // count) if alike else 1
            for first in range(0, len(streams), at_once):
                part = slice(first, first + at_once)
                own = _draw(streams[part], count, sums.device)
                self._round(sums[part, columns], own, shared, ends[part], rows.some(part), out[part, columns])

    def _round(
        self, sums: Tensor, own: _Drawn, shared: _Drawn | None, ends: Sequence[Sequence[End]], rows: _Rows, out: Tensor
    ) -> None:
        scaled = sums.mul_(rows.per_unit)
        whole = scaled.round()
        rest = scaled.sub_(whole)
        value = torch.addcmul(rest, own.values, rows.steps, out=own.values)
        if shared is not None:
            for row, each in enumerate(ends):  # one order on every runtime: by the other end's number
                for mask, sign in each:
                    value[row].addcmul_(shared.values[mask], rows.mask_steps[row], value=sign)
        rounded = value.round()
        keyed = None if shared is None else shared.keyed
        if own.keyed is not None and (shared is None or keyed is not None):
            left = value.sub_(rounded)
            odd, odd_masks = own.keyed.odd(), None if keyed is None else keyed.odd()
            lowest, highest = torch.stack(
                left.aminmax()
            ).tolist()  # the only synchronisation with the device, once a block
            if odd is not None or odd_masks is not None or max(-lowest, highest) > self._close:
                _decide_again(left, rest, own.keyed, keyed, (odd, odd_masks), ends, rows, rounded)
        out.copy_(rounded.add_(whole).mul_(rows.back))
        out.add_(0.0)  # -0 becomes 0: the sign of a zero would reveal more than the zero


def _draw(streams: Sequence[Stream], count: int, device: torch.device) -> _Drawn:
    keyed = [stream for stream in streams if isinstance(stream, ChaChaStream)]
    if len(keyed) < len(streams):
        return _Drawn(torch.from_numpy(np.stack([stream.normals(count) for stream in streams])).to(device), None)
    drawn = [stream.pairs((count + 1) // 2) for stream in keyed]
    words = np.stack([words for _, words in drawn]) if len(drawn) > 1 else drawn[0][1][None]
    values, radius = box_muller(words)
    return _Drawn(values[:, :count].to(device), _Keyed(keyed, [place for place, _ in drawn], words, radius))


def _decide_again(
    left: Tensor,
    rest: Tensor,
    own: _Keyed,
    shared: _Keyed | None,
    odd: tuple[Tensor | None, Tensor | None],
    ends: Sequence[Sequence[End]],
    rows: _Rows,
    rounded: Tensor,
) -> None:
    """Round again, from ideal normals, where the remainder `left` is close to one half or a radius is out of range."""
    doubtful, width = (left.abs() > 0.5 - rows.band).cpu(), left.shape[1]
    odd_own, odd_masks = odd
    if odd_own is not None:
        doubtful |= odd_own[:, :width]
    if odd_masks is not None:
        for row, each in enumerate(ends):
            for mask, _ in each:
                doubtful[row] |= odd_masks[mask, :width]
    for row, column in doubtful.nonzero().tolist():
        normals = [own.ideal(row, column, float(rows.steps[row]))]
        if shared is not None:
            scale = float(rows.mask_steps[row])
            normals += [shared.ideal(mask, column, sign * scale) for mask, sign in ends[row]]
        rounded[row, column] = nearest(float(rest[row, column]), normals)
