"""The distance between what is released and the ideal Gaussian mechanism: constants that noise and accounting share."""

LEVELS, LEVEL_BITS = 2**13, 256
"""How often `normals.nearest` reads more bits before it gives up, and how many each time."""

LOG2_UNDECIDED = -(LEVEL_BITS // 2 * LEVELS - 2)
"""log₂ of a bound on the probability that `normals.nearest` cannot decide: 2⁻¹⁰⁴⁸⁵⁷⁴.

After B further bits the interval that holds the value is wider than 2⁻⁽ᴮᐟ²⁺⁵³⁾ only if U lies within 2⁻ᴮᐟ² of 0 or 1, since the
radius moves by dU/(U·r); and a value whose density is below 1/2 lies that close to the middle between two integers with
a probability of less than twice that width. Together less than 4 · 2⁻ᴮᐟ². A number with masks is a sum of m normals: its interval is at most
m times as wide, and each of them may be the one near 0 or 1, so its probability is at most m times as large.
"""

_LOG2_MOST_NORMALS = 64
LOG2_DISTANCE = LOG2_UNDECIDED + _LOG2_MOST_NORMALS
"""log₂ of a bound on the total variation between what is released and the ideal mechanism, for 2⁶⁴ normals together."""
