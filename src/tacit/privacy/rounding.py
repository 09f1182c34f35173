"""Every record's vector rounded to a public grid before the sum, and noise on that grid: what is settled beforehand.

A clipped vector has at most the length C. Rounded to a grid of step γ in d dimensions it may be longer: up to C + γ√d, and with stochastic
rounding rarely longer than √(C² + γ²d/4 + √(2 ln 1/β)·γ(C + γ√d/2)), in one case of 1/β (Kairouz, Liu & Steinke, *The Distributed
Discrete Gaussian Mechanism*, 2021). The bound is `room`·C. It does not rest on that theorem: a vector that would be longer is rounded
towards zero instead, which never makes it longer than C (`gradients.rounding`). So a record's contribution is at most room·C for any record,
model and rounding, and noise is σ·room·C.

Noise is discrete Gaussian: every coordinate of the sum, in steps, gets an integer k with probability proportional to exp(-k²/2s²), where s
is σ·room·C/γ. What it costs:

- Let P be the distribution of an answer without a record and Q with it, for one fixed rest of the lot: two discrete Gaussians whose
  centres differ by whole steps v of a length of at most 1/σ standard deviations. For a whole order j, completing the square gives
  E_P[(Q/P)^j] = exp(j(j-1)|v|²/2s²), exactly as for continuous noise, since j·v is a point of the grid and both sums run over all of it.
- With a record that is in the lot with probability q, the answer is (1-q)P + qQ, and E_P[((1-q) + q·Q/P)^α] is a sum of these moments for
  every whole order α: the formula for the sampled Gaussian mechanism (Mironov, Talwar & Zhang 2019). That is one direction.
- The other direction is no larger. Reflection at the middle between the two centres maps the grid to itself and swaps P and Q, so with
  r = Q/P both divergences are averages over P of terms for r and 1/r together: it is enough that for every r ≥ 1 and α ≥ 1
  a^α - a^(1-α) ≥ r^α b^(1-α) - r^(1-α) b^α, with a = 1 - q + qr, b = q + (1-q)r. With c = r/b and t = α - ½ this is
  √a·sinh(t ln a) ≥ √(rb)·sinh(t ln c). As a ≥ c ≥ 1, the ratio of the two hyperbolic sines grows with t, and at t = ½ both sides are
  equal: a - 1 = r - b = q(r - 1).
- Different rests of the lot mix P and Q with the same weights, which adds nothing (quasi-convexity).

So at whole orders the Rényi divergences of the continuous mechanism hold, and nothing else is claimed: ε is derived from these alone
(`accounting`), although lots amplify as usual. Privacy loss distributions of discrete noise in many dimensions are not known.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tacit.errors import PrivacyError, refuse_misspelt

MOST_BITS = 16
MOST_STEPS = 2.0**16
"""The largest standard deviation of discrete noise, in steps: a table of its distribution must fit into memory."""
_RARELY = 2.0**-20
_MOST_ROOM = 1e3


@refuse_misspelt
@dataclass(frozen=True)
class Discrete:
    """Discrete Gaussian noise on a grid to which every record's clipped vector is rounded, up or down at random, before the sum.

    bits: the step of the grid is 2^-bits times the largest power of two up to C. Fewer bits mean shorter messages and more noise.
    room: how many times as long as C a rounded vector may be; None chooses it for the number of parameters. Noise grows with it.
    """

    bits: int = 10
    room: float | None = None

    def __post_init__(self) -> None:
        if type(self.bits) is not int or not 0 <= self.bits <= MOST_BITS:
            raise PrivacyError(f"bits is {self.bits!r}; it must be a whole number from 0 to {MOST_BITS}")
        if self.room is not None and not (type(self.room) in (int, float) and 1 <= self.room <= _MOST_ROOM):
            raise PrivacyError(f"room is {self.room!r}; it must lie between 1 and {_MOST_ROOM:g}")

    def step(self, clip: float) -> float:
        """Return the step of the grid."""
        return math.ldexp(1.0, math.frexp(clip)[1] - 1 - self.bits)

    def bound(self, clip: float) -> float:
        """Return the length that no rounded vector exceeds."""
        if self.room is None:
            raise PrivacyError("how far rounding may lengthen a vector is not settled; give room")
        return self.room * clip

    def settle(self, width: int | None, clips: Sequence[float]) -> "Discrete":
        """Return it with `room` settled for vectors of this width: hardly any is then longer."""
        if self.room is not None:
            return self
        if width is None:
            raise PrivacyError("how far rounding may lengthen a vector depends on its number of parameters; give room")
        share = max(self.step(clip) / clip for clip in clips)
        spread = share * math.sqrt(width)
        likely = 1 + spread**2 / 4 + math.sqrt(-2 * math.log(_RARELY)) * share * (1 + spread / 2)
        room = min(1 + spread, math.sqrt(likely))
        if room > _MOST_ROOM:
            raise PrivacyError(
                f"{self.bits} bits round vectors of {width:,} parameters to nothing but noise; give more"
            )
        return replace(self, room=math.ceil(room * 1e4) / 1e4)
