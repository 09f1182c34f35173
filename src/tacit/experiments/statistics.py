"""Means, slopes and their intervals, and how they are put into words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
Verdict = Literal["same", "different", "undecided"]


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A mean over trials, with half of its 95 % interval (Student's t), which a single trial does not have."""

    mean: float
    margin: float | None
    trials: int

    @property
    def percent(self) -> str:
        """The mean as a share of a hundred, with its interval."""
        spread = "" if self.margin is None else f" ± {100 * self.margin:.1f}"
        return f"{100 * self.mean:.1f}{spread} %"


@dataclass(frozen=True, kw_only=True)
class Slope:
    """A fitted slope with the ends of its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} (95 % interval {self.low:.3f} to {self.high:.3f})"

    def holds(self, value: float) -> bool:
        """Whether the interval holds a value."""
        return self.low <= value <= self.high


def summarise(values: Sequence[float]) -> Summary:
    """Return the mean of independent trials and its interval."""
    count, mean = len(values), float(np.mean(values))
    if count < 2:
        return Summary(mean=mean, margin=None, trials=count)
    error = float(np.std(values, ddof=1)) / math.sqrt(count)
    return Summary(mean=mean, margin=float(stats.t.ppf(0.5 + CONFIDENCE / 2, count - 1)) * error, trials=count)


def difference(one: Sequence[float], other: Sequence[float]) -> Summary:
    """Return the mean of one minus that of the other with Welch's interval.

    It is that of independent trials. Ours share seeds, which tends to make differences vary less: the interval is rather a wide one.
    """
    first, second = summarise(one), summarise(other)
    mean, count = first.mean - second.mean, min(len(one), len(other))
    if count < 2:
        return Summary(mean=mean, margin=None, trials=count)
    parts = [float(np.var(values, ddof=1)) / len(values) for values in (one, other)]
    if sum(parts) == 0:
        return Summary(mean=mean, margin=0.0, trials=count)
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(values) - 1) for part, values in zip(parts, (one, other), strict=True)
    )
    margin = float(stats.t.ppf(0.5 + CONFIDENCE / 2, freedom)) * math.sqrt(sum(parts))
    return Summary(mean=mean, margin=margin, trials=count)


def fit_slope(x: Sequence[float], y: Sequence[float]) -> Slope | None:
    """Return the slope of a line through the points by least squares; two points have no interval, so no slope."""
    if len(x) < 3 or len(set(x)) < 2:
        return None
    line = stats.linregress(x, y)
    margin = float(stats.t.ppf(0.5 + CONFIDENCE / 2, len(x) - 2)) * float(line.stderr)
    return Slope(value=float(line.slope), low=float(line.slope) - margin, high=float(line.slope) + margin)


def verdict(change: Summary, tolerance: float) -> Verdict:
    """Say whether a change is within a tolerance, beyond it and its own interval, or not to be told by these trials."""
    if change.margin is None:
        return "undecided"
    if abs(change.mean) > max(tolerance, change.margin):
        return "different"
    return "same" if abs(change.mean) <= tolerance and change.margin <= 2 * tolerance else "undecided"


def change_in_points(change: Summary) -> str:
    """Write a difference of accuracies with its interval."""
    margin = "" if change.margin is None else f" ± {100 * change.margin:.1f}"
    return f"{100 * change.mean:+.1f}{margin} points"
