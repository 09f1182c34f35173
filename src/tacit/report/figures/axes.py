"""Plots as figures for a paper, by matplotlib: PNG and PDF, one column wide."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis as DrawnAxis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from tacit.report.compared import name_runs, shorten
from tacit.report.figures.maps import SCORES, draw_graph, draw_partition
from tacit.report.figures.palette import SERIES, SOFT
from tacit.report.figures.style import save_figure, style
from tacit.report.plots import Axis, Plot, PlotLine, plot_distances, plot_epsilons, plot_observers, plot_scores
from tacit.report.recorded import RecordedRun
from tacit.report.wording import number, opacity

_SIZE, _POINTS = (3.5, 2.5), 8  # inches: one column; and the size of text
_LONGEST, _HALF = 48, 20  # letters of a name that fit the width of a figure, and half of it
_WIDEST = 54  # letters of a line above the drawing
_LINE = 0.17  # inches
_LINES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}


def save_figures(run: RecordedRun, folder: Path | str) -> list[Path]:
    """Save the figures of one run, each as PNG and as PDF, and return the paths. What a run does not have is not drawn."""
    (each,) = name_runs([run])
    plots = {
        "accuracy": plot_scores([each]),
        "consensus": plot_distances([each]),
        "epsilon": plot_epsilons([each]),
        "observers": plot_observers(each.spent) if each.spent is not None and each.spent.masked else None,
    }
    maps = {"partition": partial(_draw_holdings, run=run), "graph": partial(_draw_scored_graph, run=run)}
    return _save(maps | _drawings(plots), folder)


def save_comparison(runs: Sequence[RecordedRun], folder: Path | str) -> list[Path]:
    """Save figures that overlay several runs, each as PNG and as PDF, and return the paths."""
    compared = name_runs(runs)
    plots = {"accuracy": plot_scores, "consensus": plot_distances, "epsilon": plot_epsilons}
    return _save(_drawings({f"compare-{name}": plot(compared) for name, plot in plots.items()}), folder)


def _drawings(plots: Mapping[str, Plot | None]) -> dict[str, Callable[[Axes], None]]:
    return {name: partial(draw, plot=plot) for name, plot in plots.items() if plot is not None}


def _save(drawings: Mapping[str, Callable[[Axes], None]], folder: Path | str) -> list[Path]:
    """Draw each on a figure of its own, save that as PNG and PDF, and return the paths."""
    saved = []
    with style(_POINTS):
        for name, draw_on in drawings.items():
            figure = Figure(figsize=_SIZE)
            draw_on(figure.add_subplot())
            saved += [save_figure(figure, Path(folder) / f"{name}.{ending}", dpi=300) for ending in ("png", "pdf")]
    return saved


def draw(ax: Axes, plot: Plot) -> None:
    """Draw a plot; the names of several runs stand below the drawing, where they cover nothing."""
    drawn = [_draw_line(ax, line) for line in plot.lines]
    for budget in plot.budgets:
        ax.axhline(budget, color=SOFT, ls=(0, (4, 2)), lw=1)
        place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
        ax.annotate(f"planned ε = {number(budget)}", (0, budget), xytext=(2, 2), color=SOFT, fontsize=7.5, **place)
    ax.set(xlabel=plot.x.title, ylabel=plot.y.title, yscale="log" if plot.y.log else "linear")
    _set_axis(ax.xaxis, plot.x, ax.set_xlim)
    _set_axis(ax.yaxis, plot.y, ax.set_ylim)
    if plot.y.percent and plot.y.ends is None:
        ax.set_ylim(top=min(1.0, ax.get_ylim()[1]))
    ax.set_title(fill(plot.terms, _WIDEST), loc="left", fontsize=7)
    if plot.several:
        _name_below(ax, [shorten(line.name + line.remark, _LONGEST) for line in plot.lines], drawn)
    elif plot.legend:
        ax.legend(loc="best", reverse=True)


def format_percents() -> FuncFormatter:
    """Return a formatter of shares as percentages, with as many digits as needed: 0.825 is 82.5%, not 82%."""
    return FuncFormatter(lambda value, _: f"{100 * value:g}%")


def _draw_line(ax: Axes, line: PlotLine) -> Any:
    colour = SOFT if line.series is None else SERIES[line.series]
    if line.band is not None:
        ax.fill_between(line.x, *line.band, color=colour, alpha=0.15, lw=0, label="worst to best")
    if line.agents is not None:
        ax.plot(line.x, line.agents, color=colour, alpha=opacity(line.agents.shape[1]), lw=0.5)
        ax.plot([], [], color=colour, alpha=0.4, lw=0.5, label="each agent")
    if line.filled:
        ax.fill_between(line.x, line.y, color=colour, alpha=0.1, lw=0)
    if line.labels:
        colours = [SERIES[0] if place == line.main else colour for place in range(len(line.labels))]
        ax.scatter(line.x, line.y, c=colours, s=22, zorder=2)
        for label, x, y in zip(line.labels, line.x, line.y, strict=True):
            ax.annotate(label, (x, y), xytext=(0, 4), textcoords="offset points", ha="center", fontsize=6.5)
    marker = "." if np.isfinite(line.y).sum() == 1 else None  # one point alone makes no line
    look: dict[str, Any] = {"color": colour, "ls": _LINES[line.dash], "lw": 0.64 * line.width, "marker": marker}
    return ax.plot(line.x, line.y, label=line.name, zorder=1.5 if line.labels else 2, **look)[0]


def _set_axis(drawn: DrawnAxis, axis: Axis, set_ends: Callable[..., Any]) -> None:
    set_ends(0, None) if axis.ends is None else set_ends(axis.ends)
    if axis.log:
        drawn.set_minor_locator(NullLocator())
    if axis.ticks:
        drawn.set_major_locator(FixedLocator(list(axis.ticks)))
        drawn.set_major_formatter(FuncFormatter(lambda value, _: axis.ticks.get(value, "")))
    elif axis.percent:
        drawn.set_major_formatter(format_percents())
    elif axis.title == "round":
        drawn.set_major_locator(MaxNLocator(nbins=6, integer=True))


def _name_below(ax: Axes, names: Sequence[str], drawn: Sequence[Any]) -> None:
    """Make the figure higher, and name the lines below the drawing."""
    columns = 2 if max(map(len, names)) <= _HALF else 1
    figure = ax.get_figure(root=True)
    assert figure is not None
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + _LINE * -(-len(names) // columns))
    # Set one by one, since matplotlib hides a name that begins with an underscore.
    legend = figure.legend(drawn, [" "] * len(names), loc="outside lower left", ncols=columns)
    for shown, name in zip(legend.get_texts(), names, strict=True):
        shown.set_text(name)


def _draw_holdings(ax: Axes, run: RecordedRun) -> None:
    """Draw who holds how many records of which class, or how many in all if classes are not known."""
    if run.plan.counts is not None and run.plan.counts[0]:
        draw_partition(ax, np.array(run.plan.counts))
        return
    ax.bar(range(run.plan.agents), run.plan.sizes, color=SERIES[0])
    ax.set(xlabel="agent", ylabel=f"{run.plan.protected}s")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def _draw_scored_graph(ax: Axes, run: RecordedRun) -> None:
    scores = run.scores
    if scores is None or not np.isfinite(scores.final).all():
        draw_graph(ax, run.graph, None)
        return
    accuracy = scores.measure == "accuracy"
    look: dict[str, Any] = {
        "colours": SCORES if accuracy else SCORES.reversed(),
        "formatter": format_percents() if accuracy else None,
    }
    draw_graph(ax, run.graph, scores.final.tolist(), label=scores.measure, ends=scores.colour_range, **look)
