"""Means, slopes and their intervals, and how they are put into words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
Verdict = Literal["same", "different", "undecided"]
Falling = Literal["falls", "does not", "undecided"]


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
    """Return the mean of one minus the other with its interval, trial by trial: those of one number share their seed."""
    return summarise([first - second for first, second in zip(one, other, strict=True)])


def fit_slope(x: Sequence[float], y: Sequence[float]) -> Slope | None:
    """Return the slope of a line through the points by least squares; two points have no interval, so no slope."""
    if len(x) < 3 or len(set(x)) < 2:
        return None
    line = stats.linregress(x, y)
    margin = float(stats.t.ppf(0.5 + CONFIDENCE / 2, len(x) - 2)) * float(line.stderr)
    return Slope(value=float(line.slope), low=float(line.slope) - margin, high=float(line.slope) + margin)


def verdict(change: Summary, tolerance: float) -> Verdict:
    """Say whether a change is surely within a tolerance, is beyond it and no chance, or is not to be told by these trials."""
    if change.margin is None:
        return "undecided"
    if abs(change.mean) + change.margin <= tolerance:
        return "same"
    return "different" if abs(change.mean) > max(tolerance, change.margin) else "undecided"


def falling(change: Summary, tolerance: float) -> Falling:
    """Say whether there is a fall, surely none of a tolerance or more, or whether these trials do not tell."""
    if change.margin is None:
        return "undecided"
    if change.mean + change.margin < 0:
        return "falls"
    return "does not" if change.mean - change.margin > -tolerance else "undecided"


def within(change: Summary, points: float) -> str:
    """Say whether something is at most so far below what it is compared with, in points of a hundred."""
    margin, words = change.margin or 0.0, f"{100 * points:.0f} points"
    if change.mean - margin >= -points:
        return f"within the {words}"
    return f"more than the {words}" if change.mean + margin < -points else f"not to be told from the {words}"


def doubt(change: Summary, tolerance: float) -> str:
    """Say what trials do not tell that leave a change undecided."""
    if change.margin is None or abs(change.mean) <= change.margin:
        return "which these trials do not tell from none"
    return f"and these trials do not tell whether it is more than {100 * tolerance:.0f} points"


def change_in_points(change: Summary) -> str:
    """Write a difference of accuracies with its interval."""
    margin = "" if change.margin is None else f" ± {100 * change.margin:.1f}"
    return f"{100 * change.mean:+.1f}{margin} points"
