"""Means, slopes and their intervals over the rows of an experiment, and how they are put into words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import stats

from tacit.experiments.experiment import ResultRow, Value
from tacit.ties import RELATIVE

CONFIDENCE = 0.95
ChangeVerdict = Literal["same", "different", "inconclusive"]
FallVerdict = Literal["falls", "does not", "inconclusive"]


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A mean over trials, with half of its 95 % interval (Student's t), which a single trial does not have."""

    mean: float
    margin: float | None
    trials: int

    @property
    def percent(self) -> str:
        """The mean in percent, with its interval."""
        spread = "" if self.margin is None else f" ± {100 * self.margin:.1f}"
        return f"{100 * self.mean:.1f}{spread} %"

    @property
    def points(self) -> str:
        """A difference of accuracies in percentage points, with its interval."""
        spread = "" if self.margin is None else f" ± {100 * self.margin:.1f}"
        return f"{100 * self.mean:+.1f}{spread} points"


@dataclass(frozen=True, kw_only=True)
class Slope:
    """A fitted slope with the ends of its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} (95 % interval {self.low:.3f} to {self.high:.3f})"


def select(rows: Sequence[ResultRow], **settings: Any) -> list[ResultRow]:
    """Return the rows with these settings."""
    return [row for row in rows if all(row.get(name) == value for name, value in settings.items())]


def list_levels(rows: Sequence[ResultRow], name: str) -> list[Value]:
    """List the values of a setting in ascending order, None last."""
    found = {row[name] for row in rows}
    return [*sorted(value for value in found if value is not None), *([None] if None in found else [])]


def accuracies(rows: Sequence[ResultRow], **settings: Any) -> list[float]:
    """Return the final accuracies of the trials of one point."""
    return [row["accuracy"] for row in select(rows, **settings)]


def summarise(values: Sequence[float]) -> Summary:
    """Return the mean of independent trials and its interval."""
    count, mean = len(values), float(np.mean(values))
    if count < 2:
        return Summary(mean=mean, margin=None, trials=count)
    error = float(np.std(values, ddof=1)) / math.sqrt(count)
    return Summary(mean=mean, margin=float(stats.t.ppf(0.5 + CONFIDENCE / 2, count - 1)) * error, trials=count)


def subtract(one: Sequence[float], other: Sequence[float]) -> Summary:
    """Return the mean difference with its interval, paired by trial: trials of one number share their seed."""
    return summarise([first - second for first, second in zip(one, other, strict=True)])


def fit_slope(x: Sequence[float], y: Sequence[float]) -> Slope | None:
    """Return the slope of a line through the points by least squares; two points have no interval, so no slope."""
    if len(x) < 3 or len(set(x)) < 2:
        return None
    line = stats.linregress(x, y)
    margin = float(stats.t.ppf(0.5 + CONFIDENCE / 2, len(x) - 2)) * float(line.stderr)
    return Slope(value=float(line.slope), low=float(line.slope) - margin, high=float(line.slope) + margin)


def judge_change(change: Summary, tolerance: float) -> ChangeVerdict:
    """Judge whether a change is surely within a tolerance, beyond it and not by chance, or neither."""
    if change.margin is None:
        return "inconclusive"
    if abs(change.mean) + change.margin <= tolerance:
        return "same"
    return "different" if abs(change.mean) > max(tolerance, change.margin) else "inconclusive"


def judge_fall(change: Summary, tolerance: float) -> FallVerdict:
    """Judge whether there is a fall, surely none of the tolerance or more, or neither."""
    if change.margin is None:
        return "inconclusive"
    if change.mean + change.margin < 0:
        return "falls"
    return "does not" if change.mean - change.margin > -tolerance else "inconclusive"


def judge_margin(change: Summary, points: float) -> str:
    """Say whether something is at most this much below what it is compared with, in percentage points."""
    margin, words = change.margin or 0.0, f"{100 * points:g} points"
    if change.mean - margin >= -points - RELATIVE:
        return f"within the {words}"
    return f"more than the {words}" if change.mean + margin < -points - RELATIVE else f"inconclusive about the {words}"


def state_change(
    change: Summary, tolerance: float, words: tuple[str, str], *, falls: bool = False, claimed: bool = True
) -> str:
    """Say that there is no change, or with `falls` that there is a fall, or the opposite, or that the trials are inconclusive.

    words: for what the paper claims, and for the opposite.
    claimed: whether it claims that for these rows.
    """
    verdict = judge_fall(change, tolerance) if falls else judge_change(change, tolerance)
    if verdict == "inconclusive":
        return state_doubt(change, tolerance)
    agrees = verdict in ("same", "falls")
    return words[not agrees] + (f", {'as claimed' if agrees else 'against the claim'}" if claimed else "")


def state_doubt(change: Summary, tolerance: float) -> str:
    """Say what is open after an inconclusive comparison."""
    if change.margin is None or abs(change.mean) <= change.margin:
        return "inconclusive: these trials cannot distinguish it from zero"
    return f"inconclusive: it may or may not be more than {100 * tolerance:.0f} points"
