"""Axes and lines that figures of one run and of several share."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from tacit.report.figures.palette import SERIES
from tacit.report.figures.scales import label_tick, log_ticks
from tacit.report.figures.style import save_figure, style
from tacit.report.recorded import RecordedRun
from tacit.report.spending import Spending
from tacit.report.wording import ADJACENCIES, number

ACCENT, WARN = SERIES[0], SERIES[1]
Draw = Callable[[Axes], None]

_SIZE = (3.5, 2.5)  # inches: one column
_POINTS = 8


def save_drawings(drawings: dict[str, Draw], folder: Path | str) -> list[Path]:
    """Draw each on a figure of its own, save that as PNG and PDF, and return the paths."""
    saved = []
    with style(_POINTS):
        for name, draw in drawings.items():
            figure = Figure(figsize=_SIZE)
            draw(figure.add_subplot())
            saved += [save_figure(figure, Path(folder) / f"{name}.{ending}", dpi=300) for ending in ("png", "pdf")]
    return saved


def format_percents() -> FuncFormatter:
    """Return a formatter of shares as percentages, with as many digits as needed: 0.825 is 82.5%, not 82%."""
    return FuncFormatter(lambda value, _: f"{100 * value:g}%")


def set_rounds_axis(ax: Axes, rounds: int) -> None:
    """Make x span all planned rounds."""
    ax.set(xlabel="round", xlim=(0, rounds))
    ax.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))


def set_shares_axis(ax: Axes) -> None:
    """Make x span the share of each run's rounds."""
    ax.set(xlabel="share of the run’s rounds", xlim=(0, 1))
    ax.xaxis.set_major_formatter(format_percents())


def set_score_axis(ax: Axes, measure: str) -> None:
    """Make y show accuracies, from zero to at most one, or losses."""
    ax.set_ylabel(f"{measure} on validation")
    ax.set_ylim(bottom=0)
    if measure == "accuracy":
        ax.set_ylim(top=min(1.0, ax.get_ylim()[1]))
        ax.yaxis.set_major_formatter(format_percents())


def set_distance_axis(ax: Axes, runs: Sequence[RecordedRun]) -> None:
    """Make y show distances on a logarithmic axis, with the same labels as the page."""
    ticks = log_ticks([value for run in runs for value in run.distances])
    ax.set(ylabel="consensus distance", yscale="log", ylim=(ticks[0], ticks[-1]))
    ax.yaxis.set_major_locator(FixedLocator(ticks))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: label_tick(value)))
    ax.yaxis.set_minor_locator(NullLocator())


def set_epsilon_axis(ax: Axes, spent: Sequence[Spending]) -> None:
    """Make y show ε, and state above the drawing what ε is stated with."""
    ax.set_ylabel("ε")
    kept = [each.guarantee for each in spent]
    terms = {(each.delta, each.adjacency, each.accountant) for each in kept}
    delta, adjacency, accountant = next(iter(terms))
    words = f"δ = {delta:g}, {ADJACENCIES[adjacency]}, {accountant}"
    if len(terms) > 1:
        words = "different δ, adjacency or accountant: not comparable"
    elif len({each.observer for each in kept}) > 1:
        words = "against different observers: not comparable"
    ax.set_title(words, loc="left", fontsize=7)


def draw_distance(ax: Axes, x: Sequence[float], run: RecordedRun, **line: Any) -> Any:
    """Draw how far a run's models are apart, and return the line."""
    shown = [value if 0 < value < math.inf else np.nan for value in run.distances]
    marker = "." if np.isfinite(shown).sum() == 1 else None  # one point alone makes no line
    return ax.plot(x, shown, marker=marker, **line)[0]


def draw_budgets(ax: Axes, budgets: Sequence[float], colour: str = WARN) -> None:
    """Draw a line at each budget; call it when everything else is drawn."""
    for budget in budgets:
        ax.axhline(budget, color=colour, ls=(0, (4, 2)), lw=1)
        place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
        text = f"budget ε = {number(budget)}"
        ax.annotate(text, (0, budget), xytext=(2, 2), color=colour, fontsize=7.5, **place)
    ax.set_ylim(0, 1.15 * max([*budgets, ax.dataLim.y1, 1e-9]))


def has_distance(run: RecordedRun) -> bool:
    """Say whether there is a distance to draw."""
    return any(0 < value < math.inf for value in run.distances)
