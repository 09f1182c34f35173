"""Logarithmic scales, the same in pages and figures."""

import math
from collections.abc import Sequence


def log_ticks(values: Sequence[float]) -> list[float]:
    """Return ticks around all positive values: powers of ten or, if these are few, 1, 2 and 5 times them; none for no values."""
    shown = [value for value in values if 0 < value < math.inf]
    if not shown:
        return []
    low, high = math.floor(math.log10(min(shown))), math.ceil(math.log10(max(shown)) + 1e-9)
    steps = (1,) if high - low > 3 else (1, 2, 5)
    ticks = [step * 10.0**power for power in range(low - 1, high + 2) for step in steps]
    below = max(tick for tick in ticks if tick <= min(shown) / 1.02)
    above = min(tick for tick in ticks if tick >= max(shown) * 1.02)
    return [tick for tick in ticks if below <= tick <= above]


def label_tick(tick: float) -> str:
    """Write a tick as a plain number if that is short."""
    return f"{tick:.10g}" if 1e-4 <= tick < 1e6 else f"{tick:.0e}"
