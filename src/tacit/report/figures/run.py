"""Figures of one run for a paper: PNG and PDF by matplotlib, sized for one column."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.ticker import MaxNLocator

from tacit.report.figures.drawing import (
    ACCENT,
    WARN,
    Draw,
    distance_axis,
    draw_budgets,
    draw_distance,
    draw_spending,
    is_apart,
    percents,
    rounds_axis,
    save,
    score_axis,
    terms_of,
)
from tacit.report.figures.layout import positions
from tacit.report.figures.palette import HEAT, SCORE, readable_on
from tacit.report.html.maps import colour_range
from tacit.report.reading import Run, Scores
from tacit.report.spent import Spending, spending
from tacit.report.wording import thin

_HEAT = LinearSegmentedColormap.from_list("heat", HEAT)
_SCORES = LinearSegmentedColormap.from_list("score", SCORE)


def save_figures(run: Run, folder: Path | str) -> list[Path]:
    """Save the figures of one run that can be drawn, each as PNG and as PDF, and return where they are."""
    spent, scores = spending(run), run.scores
    drawings: dict[str, Draw] = {"partition": lambda ax: _partition(ax, run), "graph": lambda ax: _graph(ax, run)}
    if scores is not None:
        drawings["accuracy"] = lambda ax: _accuracy(ax, run, scores)
    if is_apart(run):
        drawings["consensus"] = lambda ax: _consensus(ax, run)
    if spent is not None and spent.snapshots:
        drawings["epsilon"] = lambda ax: _epsilon(ax, run, spent)
    return save(drawings, folder)


def _accuracy(ax: Axes, run: Run, scores: Scores) -> None:
    rounds = scores.rounds
    if run.plan.agents > 1:
        ax.fill_between(rounds, scores.low, scores.high, color=ACCENT, alpha=0.15, lw=0, label="worst to best")
        ax.plot(rounds, scores.values, color=ACCENT, alpha=thin(run.plan.agents), lw=0.5)
        ax.plot([], [], color=ACCENT, alpha=0.4, lw=0.5, label="each agent")
    ax.plot(rounds, scores.mean, color=ACCENT, label="mean")
    rounds_axis(ax, run.plan.rounds)
    score_axis(ax, scores.measure)
    if run.plan.agents > 1:
        ax.legend(loc="best", reverse=True)


def _consensus(ax: Axes, run: Run) -> None:
    draw_distance(ax, run, color=ACCENT)
    rounds_axis(ax, run.plan.rounds)
    distance_axis(ax, [run])


def _epsilon(ax: Axes, run: Run, spent: Spending) -> None:
    draw_spending(ax, spent, color=ACCENT)
    ax.fill_between([s.round for s in spent.snapshots], spent.epsilons, color=ACCENT, alpha=0.1, lw=0)
    draw_budgets(ax, [] if spent.budget is None else [spent.budget])
    rounds_axis(ax, run.plan.rounds)
    terms_of(ax, [spent])
    if not spent.guarantee.release:
        ax.set_title("not a release", color=WARN, loc="right")


def _partition(ax: Axes, run: Run) -> None:
    counts = run.plan.counts
    if counts is None or not counts[0]:
        ax.bar(range(run.plan.agents), run.plan.sizes, color=ACCENT)
        ax.set(xlabel="agent", ylabel=f"{run.plan.protected}s")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        return
    cells = np.array(counts)
    rows, columns = cells.shape
    few = max(rows, columns) <= 12
    # White lines between the cells where they are few; a mesh stays sharp in a PDF, an image does not.
    mesh = ax.pcolormesh(
        cells, cmap=_HEAT, vmin=0, edgecolors="w" if few else "face", linewidth=0.8 if few else 0, rasterized=not few
    )
    ax.grid(False)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    ax.set(xlabel="class", ylabel="agent", xlim=(0, columns), ylim=(rows, 0))
    for length, set_ticks in ((columns, ax.set_xticks), (rows, ax.set_yticks)):
        shown = np.arange(0, length, 1 if length <= 20 else max(1, 10 ** int(np.log10(length / 2))))
        set_ticks(shown + 0.5, [str(tick) for tick in shown])
    if few:
        for (row, column), count in np.ndenumerate(cells):
            red, green, blue, _ = (round(255 * part) for part in mesh.to_rgba(count))
            colour = readable_on((red, green, blue))
            if count:
                ax.text(column + 0.5, row + 0.5, str(count), ha="center", va="center", fontsize=5.5, color=colour)
    else:
        ax.figure.colorbar(mesh, ax=ax, label="records", pad=0.02).outline.set_visible(False)


def _graph(ax: Axes, run: Run) -> None:
    places, scores, agents = positions(run.graph), run.scores, run.plan.agents
    edges = list(run.graph.edges)
    for i, j in edges:
        ax.plot(*places[[i, j]].T, color="#aab4c0", lw=0.8 if len(edges) < 200 else 0.3, zorder=1)
    size = 150 if agents <= 20 else 70 if agents <= 60 else 25 if agents <= 200 else 8
    fill = np.array([mpl.colors.to_rgba(ACCENT)] * agents)
    if scores is not None and np.isfinite(scores.final).all():
        shades = mpl.cm.ScalarMappable(
            norm=Normalize(*colour_range(scores)),
            cmap=_SCORES if scores.measure == "accuracy" else _SCORES.reversed(),
        )
        fill = np.asarray(shades.to_rgba(scores.final))
        labels = percents() if scores.measure == "accuracy" else None
        bar = ax.figure.colorbar(shades, ax=ax, label=scores.measure, format=labels, shrink=0.8, pad=0.02)
        bar.outline.set_visible(False)
    ax.scatter(places[:, 0], places[:, 1], s=size, c=fill, zorder=2, edgecolors="w", linewidths=0.8)
    if agents <= 60:
        for agent, (x, y) in enumerate(places):
            red, green, blue = (round(255 * part) for part in fill[agent, :3])
            colour, points = readable_on((red, green, blue)), 6.5 if agents <= 20 else 4.5
            ax.text(x, y, str(agent), ha="center", va="center_baseline", color=colour, fontsize=points)
    ax.set(xlim=(-1.15, 1.15), ylim=(-1.15, 1.15), aspect="equal")
    ax.axis("off")
