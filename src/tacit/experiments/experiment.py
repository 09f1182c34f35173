"""An experiment: its points, how one point is measured, and the figure and finding made from all of them.

A point is one unit of work, kept once it is done. Its settings say what varies and how large the run is. Published steps and
clipping norms follow from these settings by `hyperparameters`, and the finding reports them.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from tacit.errors import InvalidInput, choose

if TYPE_CHECKING:  # matplotlib is slow to import
    from matplotlib.figure import Figure

Profile = Literal["smoke", "laptop", "paper"]
PROFILES: tuple[Profile, ...] = get_args(Profile)
Value = str | int | float | None
ResultRow = dict[str, Any]
"""The settings of a point and what was measured there: one line of the table of results."""

NONE = "none"  # how None is written on the command line and in figures, as in epsilon=none


@dataclass(frozen=True)
class Point:
    """The settings of one unit of work, by name."""

    settings: tuple[tuple[str, Value], ...]

    @staticmethod
    def of(**settings: Value) -> "Point":
        """Return the point with these settings."""
        return Point(tuple(settings.items()))

    @property
    def named(self) -> dict[str, Any]:
        """The settings as a table."""
        return dict(self.settings)

    @property
    def key(self) -> str:
        """A text that identifies the point."""
        return json.dumps(self.named, sort_keys=True)

    def __getitem__(self, name: str) -> Any:
        return self.named[name]

    def describe(self, names: Sequence[str]) -> str:
        """Name the point by the settings that vary."""
        return ", ".join(f"{name} {write(self[name])}" for name in names if name in self.named)


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Where points run: the folder of the data sets (TACIT_DATA if None), and the device.

    progress: whether a point shows a progress bar on the terminal.
    """

    data: Path | None = None
    device: str = "cpu"
    progress: bool = False


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One figure or table of the paper.

    claim: what the paper says, in words.
    varies: the settings that distinguish points.
    points: all points of a profile.
    run: measures one point.
    draw: makes the figure of all rows.
    finding: compares the rows with the claim, in words.
    reduced: the profiles that are smaller than the paper's; of those, smoke shows no trend.
    seconds: roughly how long a point takes on one core, for estimates of the time left.
    needs_gpu: whether a point is too large for a CPU. Such points were never timed on a GPU, so their `seconds` only compare them
        with each other.
    """

    name: str
    title: str
    claim: str
    varies: tuple[str, ...]
    points: Callable[[Profile], list[Point]]
    run: Callable[[Point, Environment], list[ResultRow]]
    draw: Callable[[list[ResultRow]], "Figure"]
    finding: Callable[[list[ResultRow]], str]
    seconds: Callable[[Point], float]
    reduced: tuple[Profile, ...] = ("smoke", "laptop")
    needs_gpu: Callable[[Point], bool] = lambda point: False

    def total_seconds(self, points: Sequence[Point]) -> float | None:
        """Estimate how long some points take on one core; None if some of them need a GPU and were never timed."""
        return None if any(map(self.needs_gpu, points)) else sum(map(self.seconds, points))


def write(value: Any) -> str:
    """Write a setting as on the command line and in figures."""
    if value is None:
        return NONE
    return f"{value:g}" if isinstance(value, float) else str(value)


def write_budget(epsilon: Value) -> str:
    """Write ε for a legend or a sentence."""
    return "without privacy" if epsilon is None else f"ε = {epsilon:g}"


def write_list(begin: str, lines: Iterable[str]) -> str:
    """Write a sentence with a list below it."""
    return "\n".join([begin, "", *(f"- {line}" for line in lines)])


def parse_only(texts: Sequence[str]) -> dict[str, str]:
    """Read `KEY=VALUE` texts."""
    wanted: dict[str, str] = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not (key and equals and value):
            raise InvalidInput(f"only is {text!r}; write KEY=VALUE, such as algorithm=dsgt")
        if key in wanted:
            raise InvalidInput(f"only names {key!r} twice; give it once")
        wanted[key] = value
    return wanted


def restrict(points: Sequence[Point], only: Mapping[str, str]) -> list[Point]:
    """Return the points whose settings have these values."""
    left = list(points)
    for key, text in only.items():
        choose("setting", key, {name for point in points for name, _ in point.settings})
        kept = [point for point in left if key in point.named and _same(point[key], text)]
        if not kept:
            values = dict.fromkeys(write(point[key]) for point in left if key in point.named)
            known = ", ".join(values) or "none that match the rest"
            raise InvalidInput(f"no point has {key}={text}; there are {known}")
        left = kept
    return left


def _same(value: Value, text: str) -> bool:
    if value is None or isinstance(value, str):
        return write(value) == text.lower()
    try:
        return float(value) == float(text)
    except ValueError:
        return False
