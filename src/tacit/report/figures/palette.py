"""The one palette, for figures and for pages in light and dark. People with colour blindness can distinguish its series."""

SERIES = ("#0072b2", "#d55e00", "#009e73", "#aa4499", "#a67c00", "#332288", "#3d9fd6", "#6b7280")
"""One for each run, after Okabe and Ito, and Tol."""
DASHES = ("solid", "dash", "dot", "dashdot")
"""Lines differ by more than colour; these also distinguish runs when there are more runs than colours."""
SCORE = ("#440154", "#414487", "#2a788e", "#22a884", "#7ad151", "#fde725")
"""Viridis in six stops, from a poor score to a good one."""
HEAT = ("#f3f5f8", "#b9d3ea", "#6ea7d3", "#2a75b0", "#0b3c6b")
"""From no records to many."""
INK, SOFT, EDGE, GRID, GREY = "#17202b", "#4d5a69", "#aab4c0", "#e3e7ec", SERIES[7]
"""Text, labels, links of a graph, grid lines, and lines to compare with."""

_NAMES = ("page", "card", "ink", "soft", "line", "grid", "edge", "accent", "warn", "good", "warn-wash", "good-wash")
_LIGHT = ("#f5f6f8", "#ffffff", INK, SOFT, "#d5dae1", GRID, EDGE, "#0068a8", "#b34a00", "#00664c", "#fdf0e6", "#e5f4ef")
_DARK = (
    *("#0e1319", "#171e27", "#e8ecf1", "#a5b1bf", "#38434f", "#27303b", "#566373"),
    *("#5eb3f0", "#ff9d5c", "#4fd1a5", "#33231a", "#15302a"),
)
_DARK_SERIES = ("#4aa8e8", "#ff8a3d", "#2cc79b", "#dd7fce", "#e3b93c", "#9c8ff0", "#9fd8f7", "#a3adb9")
_DARK_HEAT = ("#1d2631", "#1c4a73", "#2b77b3", "#6bb2e4", "#d3ebfb")


def style_variables() -> str:
    """Return the colours as variables of a style sheet: `--ink`, `--series-1`, `--heat-0` and so on, for light and dark."""
    light, dark = _variables(_LIGHT, SERIES, HEAT), _variables(_DARK, _DARK_SERIES, _DARK_HEAT)
    return f":root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"


def _variables(named: tuple[str, ...], series: tuple[str, ...], heat: tuple[str, ...]) -> str:
    pairs = [
        *zip(_NAMES, named, strict=True),
        *((f"series-{place}", colour) for place, colour in enumerate(series, 1)),
        *((f"heat-{place}", colour) for place, colour in enumerate(heat)),
    ]
    return " ".join(f"--{name}: {colour};" for name, colour in pairs)


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
