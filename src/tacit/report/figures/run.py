"""Figures of one run for a paper: PNG and PDF by matplotlib, one column wide."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.ticker import MaxNLocator

from tacit.privacy.mechanisms import EVERYBODY
from tacit.report.figures import axes
from tacit.report.figures.axes import ACCENT, WARN, Draw
from tacit.report.figures.layout import lay_out
from tacit.report.figures.palette import EDGE, HEAT, SCORE, SERIES, SOFT, readable_on
from tacit.report.recorded import RecordedRun, Scores
from tacit.report.spending import Spending, derive_spending
from tacit.report.wording import epsilon, opacity

_HEAT = LinearSegmentedColormap.from_list("heat", HEAT)
_SCORES = LinearSegmentedColormap.from_list("score", SCORE)


def save_figures(run: RecordedRun, folder: Path | str) -> list[Path]:
    """Save the figures of one run, each as PNG and as PDF, and return the paths. What a run does not have is not drawn."""
    spent, scores = derive_spending(run), run.scores
    drawings: dict[str, Draw] = {
        "partition": lambda ax: _draw_partition(ax, run),
        "graph": lambda ax: _draw_graph(ax, run),
    }
    if scores is not None:
        drawings["accuracy"] = lambda ax: _draw_accuracy(ax, run, scores)
    if axes.has_distance(run):
        drawings["consensus"] = lambda ax: _draw_consensus(ax, run)
    if spent is not None and spent.snapshots:
        drawings["epsilon"] = lambda ax: _draw_epsilon(ax, run, spent)
    if spent is not None and spent.masked:
        drawings["observers"] = lambda ax: _draw_observers(ax, spent)
    return axes.save_drawings(drawings, folder)


def _draw_accuracy(ax: Axes, run: RecordedRun, scores: Scores) -> None:
    rounds = scores.rounds
    if run.plan.agents > 1:
        ax.fill_between(rounds, scores.low, scores.high, color=ACCENT, alpha=0.15, lw=0, label="worst to best")
        ax.plot(rounds, scores.values, color=ACCENT, alpha=opacity(run.plan.agents), lw=0.5)
        ax.plot([], [], color=ACCENT, alpha=0.4, lw=0.5, label="each agent")
    ax.plot(rounds, scores.mean, color=ACCENT, label="mean")
    axes.set_rounds_axis(ax, run.plan.total_rounds)
    axes.set_score_axis(ax, scores.measure)
    if run.plan.agents > 1:
        ax.legend(loc="best", reverse=True)


def _draw_consensus(ax: Axes, run: RecordedRun) -> None:
    axes.draw_distance(ax, [snapshot.round for snapshot in run.history], run, color=ACCENT)
    axes.set_rounds_axis(ax, run.plan.total_rounds)
    axes.set_distance_axis(ax, [run])


def _draw_epsilon(ax: Axes, run: RecordedRun, spent: Spending) -> None:
    rounds = [snapshot.round for snapshot in spent.snapshots]
    ax.plot(rounds, spent.epsilons, color=ACCENT, label=f"against {spent.guarantee.observer}")
    ax.fill_between(rounds, spent.epsilons, color=ACCENT, alpha=0.1, lw=0)
    if spent.masked:
        ax.plot(rounds, spent.epsilons_everybody, color=SERIES[2], ls=":", label=f"against {EVERYBODY}")
    axes.draw_budgets(ax, [] if spent.budget is None else [spent.budget])
    axes.set_rounds_axis(ax, run.plan.total_rounds)
    axes.set_epsilon_axis(ax, [spent])
    if spent.masked:
        ax.legend(loc="upper left")
    if not spent.guarantee.release:
        ax.set_title("not a release", color=WARN, loc="right", fontsize=7)


def _draw_observers(ax: Axes, spent: Spending) -> None:
    places, values = range(len(spent.exposures)), [each.epsilon for each in spent.exposures]
    ax.plot(places, values, color=SOFT, ls=":", lw=1, zorder=1)
    colours = [ACCENT if each.observer == spent.guarantee.observer else SOFT for each in spent.exposures]
    ax.scatter(places, values, c=colours, s=22, zorder=2)
    for place, value in zip(places, values, strict=True):
        ax.annotate(
            epsilon(value), (place, value), xytext=(0, 4), textcoords="offset points", ha="center", fontsize=6.5
        )
    labels = ["all" if each.observer == EVERYBODY else str(each.observer.curious) for each in spent.exposures]
    ax.set_xticks(places, labels)
    ax.set(xlabel="curious agents who pool what they know", xlim=(-0.5, len(values) - 0.5))
    axes.draw_budgets(ax, [])
    axes.set_epsilon_axis(ax, [spent])
    if not spent.guarantee.release:
        ax.set_title("not a release", color=WARN, loc="right", fontsize=7)


def _draw_partition(ax: Axes, run: RecordedRun) -> None:
    counts = run.plan.counts
    if counts is None or not counts[0]:
        ax.bar(range(run.plan.agents), run.plan.sizes, color=ACCENT)
        ax.set(xlabel="agent", ylabel=f"{run.plan.protected}s")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        return
    cells = np.array(counts)
    rows, columns = cells.shape
    few = max(rows, columns) <= 12
    # White lines between cells if there are few; a mesh stays sharp in a PDF, and an image does not.
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


def _draw_graph(ax: Axes, run: RecordedRun) -> None:
    places, scores, agents = lay_out(run.graph), run.scores, run.plan.agents
    edges = list(run.graph.edges)
    for i, j in edges:
        ax.plot(*places[[i, j]].T, color=EDGE, lw=0.8 if len(edges) < 200 else 0.3, zorder=1)
    size = 150 if agents <= 20 else 70 if agents <= 60 else 25 if agents <= 200 else 8
    fill = np.array([mpl.colors.to_rgba(ACCENT)] * agents)
    if scores is not None and np.isfinite(scores.final).all():
        shades = mpl.cm.ScalarMappable(
            norm=Normalize(*scores.colour_range),
            cmap=_SCORES if scores.measure == "accuracy" else _SCORES.reversed(),
        )
        fill = np.asarray(shades.to_rgba(scores.final))
        labels = axes.format_percents() if scores.measure == "accuracy" else None
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
