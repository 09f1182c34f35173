"""Standard normals as functions of random bits: fast with a known error, or exactly rounded to the nearest integer.

The ideal pair has a radius √(-2 ln U) and an angle 2πV with U = |x|·2⁻⁶³ and V = y·2⁻⁶⁴, where x and y are real numbers
that are uniform in [-2⁶³, 2⁶³): a signed word each, followed by infinitely many bits after the binary point. ξ = radius times
cosine and radius times sine are then exactly normal and independent. `box_muller` works in float64 and uses the words only;
`nearest` reads as many additional bits as it needs to decide which integer is nearest. A result must not reveal which of the two
made it, so a caller of the first must use the second wherever the first may be wrong.

The error of `box_muller` for radii in RADII (others are flagged, one pair in 11 million). Logarithm and square root are assumed to be
within 8 ulps (relative error 2⁻⁴⁹), sine and cosine within 2⁻⁴⁹; libraries claim one ulp or less, and a test measures it.

- U: rounded to 53 bits, and cut off behind the point: a relative error of 2⁻⁵³ + 2⁻⁶³/U. ln U: that, and 2⁻⁴⁹|ln U|.
- radius r: (2⁻⁵³ + 2⁻⁶³/U)/r + 2⁻⁵⁰r + 2⁻⁴⁹r. The first part is largest at both ends of RADII: 2⁻⁴¹ at r = 2⁻¹², where U is near 1,
  and 2⁻⁴¹·⁵ at U = 2⁻²⁴; the others stay below 2⁻⁴⁵·⁸.
- angle: rounded word, constant and product, 3π·2⁻⁵³, and what was cut off, 2π·2⁻⁶⁴: below 2⁻⁴⁸·⁷. Sine and cosine with it: 2⁻⁴⁷·⁸,
  times r: 2⁻⁴⁵·²; their product with r is rounded by less than 2⁻⁵⁰.

Together less than 2⁻⁴⁰·⁷. `ERROR` is set to 2⁻⁴⁰.
"""

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import mpmath
import numpy as np
import torch
from jaxtyping import Float, UInt64
from torch import Tensor

from tacit.errors import PrivacyError
from tacit.privacy.distances import LEVEL_BITS, LEVELS

RADII = (2.0**-12, math.sqrt(48 * math.log(2)))
"""Radii between which the error of `box_muller` is at most ERROR. The largest is that of U = 2⁻²⁴."""
ERROR = 2.0**-40
"""The largest distance between a normal by `box_muller` and the ideal one."""

_LOCAL = threading.local()


class Draw(NamedTuple):
    """Normals by Box and Muller's transform, and the radius that a cosine and a sine share."""

    values: Float[Tensor, "rows normals"]
    radius: Float[Tensor, "rows pairs"]


def box_muller(words: UInt64[np.ndarray, "rows words"]) -> Draw:
    """Turn rows of an even number of words into the same number of normals: cosines, then sines. The first half of the words are radii."""
    half = words.shape[1] // 2
    # torch's logarithm and circular functions are several times faster than numpy's.
    values = torch.from_numpy(words.view("<i8")).double()
    radius = values[:, :half].abs().mul_(2.0**-63).log_().mul_(-2.0).sqrt_()
    angle = values[:, half:] * (2.0**-64 * 2.0 * math.pi)
    torch.cos(angle, out=values[:, :half]).mul_(radius)
    torch.sin(angle, out=values[:, half:]).mul_(radius)
    return Draw(values, radius)


class Normal(NamedTuple):
    """An ideal normal, one of a pair, times a scale: the unsigned words of the pair's radius and angle, and the bits after them.

    `more(level)` returns 64 additional random bytes, the first half for the radius and the second for the angle, the same on
    every call.
    """

    scale: float
    words: tuple[int, int]
    more: Callable[[int], bytes]
    sine: bool


def nearest(shift: float, normals: Sequence[Normal]) -> int:
    """Return the integer nearest to the sum of the shift and the ideal scaled normals."""
    context = _context()
    known = [
        [word - (word >> 63 << 64) for word in each.words] for each in normals
    ]  # signed, and with more bits at each level
    for level in range(LEVELS):
        bits = LEVEL_BITS * (level + 1)
        context.prec = bits + 192
        value, error = context.mpf(shift), context.mpf(0)
        for each, pair in zip(normals, known, strict=True):
            extra = each.more(level)
            pair[0] = pair[0] << LEVEL_BITS | int.from_bytes(extra[:32], "little")
            pair[1] = pair[1] << LEVEL_BITS | int.from_bytes(extra[32:], "little")
            middle, off = _enclosed(context, pair[0], pair[1], bits, sine=each.sine)
            value, error = value + each.scale * middle, error + abs(each.scale) * off
        if not context.isfinite(error):
            continue
        below, above = (int(context.floor(end + 0.5)) for end in (value - error, value + error))
        if below == above:
            return below
    raise PrivacyError("two million random bits did not decide how to round a number; repeat the query")


def _enclosed(context: Any, radius: int, angle: int, bits: int, *, sine: bool) -> tuple[Any, Any]:
    """Return an ideal normal of which `bits` additional bits are known, and a bound on its error, possibly infinite."""
    low, high = sorted((abs(radius), abs(radius + 1)))
    if low == 0:
        return context.mpf(0), context.inf
    outer, inner = (context.sqrt(-2 * context.log(context.ldexp(context.mpf(end), -63 - bits))) for end in (low, high))
    turn = 2 * context.pi * context.ldexp(context.mpf(angle), -64 - bits)
    # The second part covers the angle's bits not yet known, and rounding.
    off = outer - inner + context.ldexp(outer + 1, -60 - bits)
    return outer * (context.sin(turn) if sine else context.cos(turn)), off


def _context() -> Any:
    """Return this thread's own context. In mpmath's default one, precision is a setting of the whole process."""
    if not hasattr(_LOCAL, "context"):
        _LOCAL.context = mpmath.MPContext()
    return _LOCAL.context
