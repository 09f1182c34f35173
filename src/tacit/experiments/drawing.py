"""What all figures of the experiments share: their style, their colours, and how they reach the disk."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from tacit.experiments.hyperparameters import NAMES
from tacit.experiments.statistics import Summary
from tacit.report.figures.axes import format_percents
from tacit.report.figures.palette import GREY, SERIES
from tacit.report.figures.style import save_figure as save
from tacit.report.figures.style import style

__all__ = [
    "COLOURS",
    "GREY",
    "MARKERS",
    "accuracy_axis",
    "draw_summaries",
    "legend_below",
    "log_axis",
    "panels",
    "save",
    "style",
]
COLOURS = dict(zip(NAMES, SERIES, strict=False))
MARKERS = {"dsgd": "o", "dsgt": "s", "dinno": "^", "central": "D"}


def panels(rows: int, columns: int, *, width: float = 3.1, height: float = 2.9, **options: Any) -> tuple[Figure, Any]:
    """Return a figure with so many panels, and the panels as a table."""
    figure = Figure(figsize=(width * columns + 0.3, height * rows + 0.3))
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def accuracy_axis(ax: Axes, label: str = "accuracy on test records") -> None:
    """Let y show accuracies in percent, and nothing that none can be; call it when all else is drawn."""
    ax.set_ylabel(label)
    low, high = ax.get_ylim()
    ax.set_ylim(max(low, 0.0), min(high, 1.0))
    ax.yaxis.set_major_formatter(format_percents())


def log_axis(axis: Axis) -> None:
    """Label powers of ten as numbers; the style reads no formulas."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})  # type: ignore[attr-defined]
    axis.set_major_locator(LogLocator(numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def draw_summaries(ax: Axes, x: Sequence[float], values: Sequence[Summary], **look: Any) -> Any:
    """Draw means with their intervals as error bars, and return the line."""
    means = [each.mean for each in values]
    spread = [0.0 if each.margin is None else each.margin for each in values]
    return ax.errorbar(x, means, yerr=spread, markersize=4, elinewidth=1, **look)


def legend_below(figure: Figure, ax: Axes, title: str, ncols: int | None = None) -> None:
    """Put the legend of one panel, which is that of all, under the figure."""
    handles, labels = ax.get_legend_handles_labels()
    ncols = ncols or len(labels)
    figure.legend(handles, labels, loc="outside lower center", ncols=ncols, title=title, title_fontsize=8)
