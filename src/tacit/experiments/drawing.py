"""What all figures of the experiments share: panels, axes, colours and legends.

matplotlib is slow to import, so it is imported when something is drawn.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tacit.experiments.hyperparameters import NAMES
from tacit.experiments.statistics import Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as Figure
else:
    Axes = Axis = Figure = Any

SERIES = tuple(f"C{number}" for number in range(8))  # of the style
INK, GREY = "black", SERIES[7]
COLOURS = dict(zip(NAMES, SERIES, strict=False))
MARKERS = {"dsgd": "o", "dsgt": "s", "dinno": "^", "central": "D"}
DASHED: dict[str, Any] = {"ls": (0, (4, 3)), "lw": 1}
"""A thin line to compare with."""


@contextmanager
def panels(
    rows: int, columns: int, *, width: float = 3.1, height: float = 2.9, **options: Any
) -> Iterator[tuple[Figure, Any]]:
    """Yield a figure with rows and columns of panels, and the panels as a table, to draw on in the common style."""
    from matplotlib.figure import Figure

    from tacit.report import style

    with style():
        figure = Figure(figsize=(width * columns + 0.3, height * rows + 0.3))
        yield figure, figure.subplots(rows, columns, squeeze=False, **options)


def show_accuracy(ax: Axes, label: str = "accuracy on test records") -> None:
    """Show accuracies on y in percent, between 0 and 100; call it when everything is drawn."""
    from matplotlib.ticker import FuncFormatter

    ax.set_ylabel(label)
    low, high = ax.get_ylim()
    ax.set_ylim(max(low, 0.0), min(high, 1.0))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}%"))


def make_logarithmic(axis: Axis) -> None:
    """Scale an axis logarithmically and label powers of ten as plain numbers; the style reads no formulas."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    axis.axes.set(**{f"{axis.axis_name}scale": "log"})  # type: ignore[attr-defined]
    axis.set_major_locator(LogLocator(numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def draw_summaries(ax: Axes, x: Sequence[float], values: Sequence[Summary], **look: Any) -> None:
    """Draw means with their intervals as error bars."""
    means = [each.mean for each in values]
    spread = [0.0 if each.margin is None else each.margin for each in values]
    ax.errorbar(x, means, yerr=spread, markersize=4, elinewidth=1, **look)


def add_legend_below(figure: Figure, ax: Axes, title: str, ncols: int | None = None) -> None:
    """Put the legend of one panel, which holds for all, under the figure."""
    handles, labels = ax.get_legend_handles_labels()
    ncols = ncols or len(labels)
    figure.legend(handles, labels, loc="outside lower center", ncols=ncols, title=title, title_fontsize=8)
