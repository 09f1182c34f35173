"""How far what is released may be from the ideal Gaussian mechanism: numbers that noise and accounting share."""

LEVELS, LEVEL_BITS = 2**13, 256
"""How often `normals.nearest` reads further bits until it gives up, and how many each time."""

LOG2_UNDECIDED = -(LEVEL_BITS // 2 * LEVELS - 2)
"""log₂ of a bound on the chance that `normals.nearest` cannot decide: 2⁻¹⁰⁴⁸⁵⁷⁴.

After B further bits the interval that holds the value is wider than 2⁻⁽ᴮᐟ²⁺⁵³⁾ only if U lies within 2⁻ᴮᐟ² of 0 or 1, since the
radius moves by dU/(U·r); and a value whose density is below 1/2 lies that close to the middle between two integers with
a chance of less than twice as much. Together less than 4 · 2⁻ᴮᐟ². A number with masks is a sum of m normals: its interval is at most
m times as wide, and each of them may be the one near 0 or 1, so its chance is at most m times as large.
"""

_LOG2_MOST_NORMALS = 64
LOG2_DISTANCE = LOG2_UNDECIDED + _LOG2_MOST_NORMALS
"""log₂ of a bound on the total variation between what is released and the ideal mechanism, of 2⁶⁴ normals together."""
