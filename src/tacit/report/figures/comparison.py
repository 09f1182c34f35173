"""Figures of several runs for a paper, overlaid."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from tacit.report.compared import ComparedRun, RoundsScale, choose_measure, name_runs, scores_by
from tacit.report.figures import axes
from tacit.report.figures.palette import SERIES, SOFT
from tacit.report.recorded import RecordedRun

_LONGEST, _HALF = 48, 20  # letters of a name that fit the width of a figure, and half of it
_LINE = 0.17  # inches
_LINES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}


def save_comparison(runs: Sequence[RecordedRun], folder: Path | str) -> list[Path]:
    """Save figures that overlay several runs, each as PNG and as PDF, and return the paths."""
    compared = name_runs(runs)
    drawings: dict[str, axes.Draw] = {}
    if any(run.scores for run in runs):
        drawings["compare-accuracy"] = lambda ax: _draw_accuracies(ax, compared)
    if any(axes.has_distance(run) for run in runs):
        drawings["compare-consensus"] = lambda ax: _draw_distances(ax, compared)
    if any(each.spent and each.spent.snapshots for each in compared):
        drawings["compare-epsilon"] = lambda ax: _draw_epsilons(ax, compared)
    return axes.save_drawings(drawings, folder)


def _draw_accuracies(ax: Axes, compared: Sequence[ComparedRun]) -> None:
    measure, named, scale = choose_measure(compared), {}, RoundsScale.of(compared)
    for each, scores in scores_by(compared, measure):
        line, x = _line(each), scale.place(each.run, scores.rounds)
        if each.run.plan.agents > 1:
            ax.fill_between(x, scores.low, scores.high, color=line["color"], alpha=0.13, lw=0)
        named[each.name] = ax.plot(x, scores.mean, **line)[0]
    _finish(ax, scale, named)
    axes.set_score_axis(ax, measure)


def _draw_distances(ax: Axes, compared: Sequence[ComparedRun]) -> None:
    shown, named, scale = [each for each in compared if axes.has_distance(each.run)], {}, RoundsScale.of(compared)
    for each in shown:
        x = scale.place(each.run, [snapshot.round for snapshot in each.run.history])
        named[each.name] = axes.draw_distance(ax, x, each.run, **_line(each))
    _finish(ax, scale, named)
    axes.set_distance_axis(ax, [each.run for each in shown])


def _draw_epsilons(ax: Axes, compared: Sequence[ComparedRun]) -> None:
    named, shown, scale = {}, [], RoundsScale.of(compared)
    for each in compared:
        if each.spent is not None and each.spent.snapshots:
            name = each.name if each.spent.guarantee.release else f"{each.name}, not a release"
            x = scale.place(each.run, [snapshot.round for snapshot in each.spent.snapshots])
            named[name] = ax.plot(x, each.spent.epsilons, **_line(each))[0]
            shown.append(each.spent)
    axes.draw_budgets(ax, sorted({each.budget for each in shown if each.budget is not None}), colour=SOFT)
    _finish(ax, scale, named)
    axes.set_epsilon_axis(ax, shown)


def _line(each: ComparedRun) -> dict[str, Any]:
    return {"color": SERIES[each.series], "ls": _LINES[each.dash]}


def _finish(ax: Axes, scale: RoundsScale, named: dict[str, Any]) -> None:
    """Set the axis of rounds, and name the lines below the drawing, where the names cover nothing."""
    if scale.by_share:
        axes.set_shares_axis(ax)
    else:
        axes.set_rounds_axis(ax, scale.longest)
    names = [name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…" for name in named]
    columns = 2 if max(map(len, names)) <= _HALF else 1
    figure = ax.get_figure(root=True)
    assert figure is not None
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + _LINE * -(-len(names) // columns))
    # Set one by one, since matplotlib hides a name that begins with an underscore.
    legend = figure.legend(list(named.values()), [" "] * len(names), loc="outside lower left", ncols=columns)
    for shown, name in zip(legend.get_texts(), names, strict=True):
        shown.set_text(name)
