"""Discrete Gaussian noise: integers with probabilities proportional to exp(-k²/2s²), drawn exactly.

The size |k| follows from a real number U, uniform in [0, 1), of which a keystream gives 63 bits and, where these do not decide, as many
more as are needed: |k| is the least m with U < P(|k| ≤ m). A table has ⌊2⁶³·P(|k| ≤ m)⌋; 63 bits of U that equal an entry leave open on which
side U lies, and any others decide. The remaining bit of the word is the sign. So an integer is that of the ideal distribution, except
with probability less than 2^LOG2_UNDECIDED (`distances`), and neither its size nor the time it takes depends on the sum.

Only keystreams (`Secret`, `Seeded`) have more bits. With other sources an undecided number stays as the table has it; such a run is not
a release in any case.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import mpmath
import numpy as np
import torch
from jaxtyping import Float, Float64, Int64, UInt64
from torch import Tensor

from tacit.errors import PrivacyError
from tacit.privacy.distances import LEVEL_BITS, LEVELS
from tacit.privacy.mechanisms import Mechanism
from tacit.privacy.noise import FreshNoise
from tacit.privacy.noise_kinds import DiscreteGaussian
from tacit.privacy.randomness import BLOCK, ChaChaStream, Opener, Stream

_WORD_BITS = 63
_GUARD = 160
"""Bits of the table's arithmetic beyond those of its entries."""
_ERROR = 1 << 80
"""A bound on the error of a sum of up to 2²⁴ weights, in units of the last place: a weight m is off by less than 4m² of them, and what is
left out behind the last weight that is not zero is less than 2⁷⁰."""


class DiscreteNoise(FreshNoise):
    """Adds every agent's noise to its sum, both in whole steps of its grid, and divides by its expected lot."""

    def __init__(self, mechanisms: Sequence[Mechanism]) -> None:
        self._steps, self._deviations, self._lots = [], [], []
        for each in mechanisms:
            if not isinstance(each.noise, DiscreteGaussian):
                raise PrivacyError(f"noise of kind {each.noise.kind!r} cannot be made beside discrete noise")
            self._steps.append(each.noise.rounding.step(each.clip))
            self._deviations.append(each.noise.steps(each.clip))
            self._lots.append(each.lot)

    @torch.no_grad()
    def release(
        self,
        sums: Float64[Tensor, "rows width"],
        streams: Sequence[Stream],
        masks: Sequence[Opener],
        agents: slice,
        out: Float[Tensor, "rows width"],
    ) -> None:
        """Write (sums + γ·k)/L of these agents to `out`. `sums`, in whole steps γ, is overwritten."""
        places = range(agents.start, agents.stop)
        for row, (agent, stream) in enumerate(zip(places, streams, strict=True)):
            for first in range(0, sums.shape[1], BLOCK):
                part = sums[row, first : first + BLOCK].div_(self._steps[agent])
                noise = draw_integers(stream, self._deviations[agent], len(part))
                part.add_(torch.from_numpy(noise).to(part.device))
                out[row, first : first + BLOCK] = part.mul_(self._steps[agent]).div_(self._lots[agent])
        out.add_(0.0)  # -0 becomes 0: the sign of a zero would reveal more than the zero


def draw_integers(stream: Stream, deviation: float, count: int) -> Int64[np.ndarray, " count"]:
    """Return integers of the discrete Gaussian distribution with parameter s = `deviation`."""
    table, more = _table(deviation), None
    if isinstance(stream, ChaChaStream):
        place, words = stream.pairs((count + 1) // 2)
        words, more = words[:count], partial(_more, stream, place)
    else:
        words = stream.words(count)
    return _integers(words, table, deviation, more)


def _integers(
    words: UInt64[np.ndarray, " count"],
    table: UInt64[np.ndarray, " sizes"],
    deviation: float,
    more: Callable[[int, int], bytes] | None,
) -> Int64[np.ndarray, " count"]:
    uniform = words >> np.uint64(1)
    sizes = np.searchsorted(table, uniform, side="right")
    if more is not None:
        for place in np.flatnonzero(table[np.maximum(sizes, 1) - 1] == uniform):
            sizes[place] = _decide(int(uniform[place]), deviation, partial(more, int(place)))
    return np.where(words & np.uint64(1), -sizes, sizes)


def _more(stream: ChaChaStream, first: int, place: int, level: int) -> bytes:
    return stream.more(first + place, level)


def _decide(word: int, deviation: float, more: Callable[[int], bytes]) -> int:
    """Return the size that belongs to a uniform number whose first 63 bits are `word`, by as many more bits as it takes."""
    bits = _WORD_BITS
    for level in range(LEVELS):
        word = word << LEVEL_BITS | int.from_bytes(more(level)[: LEVEL_BITS // 8], "little")
        bits += LEVEL_BITS
        entries = _entries(deviation, bits)
        size = bisect_right(entries, word)
        if not size or entries[size - 1] != word:
            return size
    raise PrivacyError("two million random bits did not decide on a number; repeat the query")


@lru_cache(maxsize=32)
def _table(deviation: float) -> UInt64[np.ndarray, " sizes"]:
    return np.array(_entries(deviation, _WORD_BITS), dtype=np.uint64)


def _entries(deviation: float, bits: int) -> list[int]:
    """Return ⌊2^bits·P(|k| ≤ m)⌋ for m = 0, 1, …, up to the first that is as large as it can be, 2^bits - 1."""
    guard = _GUARD
    while True:
        totals = _totals(deviation, bits + guard)
        whole, most, entries = totals[-1], (1 << bits) - 1, []
        for total in totals:
            low = min(most, ((total - _ERROR) << bits) // (whole + _ERROR))
            if low != min(most, ((total + _ERROR) << bits) // (whole - _ERROR)):
                break
            entries.append(low)
            if low == most:
                return entries
        guard += _GUARD


def _totals(deviation: float, bits: int) -> list[int]:
    """Return Σ_{|k| ≤ m} exp(-k²/2s²), times 2^bits, for m = 0, 1, …, while there is anything to add."""
    context = mpmath.MPContext()
    context.prec = bits + 64
    square = context.mpf(deviation) ** 2
    ratio, shrink = (int(context.ldexp(context.exp(-scale / square), bits)) for scale in (context.mpf(0.5), 1))
    weight = 1 << bits
    totals = [weight]
    while True:
        weight, ratio = weight * ratio >> bits, ratio * shrink >> bits  # exp(-m²/2s²) and exp(-(2m + 1)/2s²)
        if not weight:
            return totals
        totals.append(totals[-1] + 2 * weight)
