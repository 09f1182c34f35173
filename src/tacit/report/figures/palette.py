"""Colours that the colour-blind can tell apart, for the figures; the page has its own copies for light and dark."""

SERIES = ("#0072b2", "#d55e00", "#009e73", "#aa4499", "#a67c00", "#332288", "#3d9fd6", "#6b7280")
"""One for each run, after Okabe and Ito, and Tol."""
DASHES = ("solid", "dash", "dot", "dashdot")
"""Lines differ by more than colour; these also tell runs apart once the colours are used up."""
SCORE = ("#440154", "#414487", "#2a788e", "#22a884", "#7ad151", "#fde725")
"""Viridis in six stops: from a poor score to a good one."""

HEAT = ("#f3f5f8", "#b9d3ea", "#6ea7d3", "#2a75b0", "#0b3c6b")
"""From no records to many."""


def mix(stops: tuple[str, ...], share: float) -> tuple[int, int, int]:
    """Return the colour at a share of the way along the stops."""
    place = min(max(share, 0.0), 1.0) * (len(stops) - 1)
    left = min(int(place), len(stops) - 2)
    one, other = _rgb(stops[left]), _rgb(stops[left + 1])
    red, green, blue = (round(a + (b - a) * (place - left)) for a, b in zip(one, other, strict=True))
    return red, green, blue


def readable_on(colour: tuple[int, int, int]) -> str:
    """Return black or white, whichever stands out more."""
    red, green, blue = ((c / 255) ** 2.2 for c in colour)
    return "#ffffff" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.25 else "#111111"


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
