"""Figures of several runs for a paper, laid over each other."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from tacit.report.figures.drawing import (
    Draw,
    distance_axis,
    draw_budgets,
    draw_distance,
    draw_spending,
    is_apart,
    rounds_axis,
    save,
    score_axis,
    shares_axis,
    terms_of,
)
from tacit.report.figures.palette import SERIES
from tacit.report.html.comparison import entries_of, measure_of
from tacit.report.html.overlays import Entry, Scale
from tacit.report.reading import Run

_LONGEST, _HALF = 48, 20  # letters of a name that fit the width of a figure, and half of it
_LINE = 0.17  # inches
_LINES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}


def save_comparison(runs: Sequence[Run], folder: Path | str) -> list[Path]:
    """Save figures that overlay several runs, each as PNG and as PDF, and return where they are."""
    entries = entries_of(runs)
    drawings: dict[str, Draw] = {}
    if any(run.scores for run in runs):
        drawings["compare-accuracy"] = lambda ax: _accuracies(ax, entries)
    if any(is_apart(run) for run in runs):
        drawings["compare-consensus"] = lambda ax: _distances(ax, entries)
    if any(entry.spent and entry.spent.snapshots for entry in entries):
        drawings["compare-epsilon"] = lambda ax: _spendings(ax, entries)
    return save(drawings, folder)


def _accuracies(ax: Axes, entries: Sequence[Entry]) -> None:
    measure = measure_of([entry.run for entry in entries])
    named, scale = {}, Scale.of(entries)
    for entry in entries:
        scores, look = entry.run.scores, _look(entry)
        if scores is not None and scores.measure == measure:
            x = scale.places(entry.run, scores.rounds)
            if entry.run.plan.agents > 1:
                ax.fill_between(x, scores.low, scores.high, color=look["color"], alpha=0.13, lw=0)
            named[entry.name] = ax.plot(x, scores.mean, **look)[0]
    _finish(ax, entries, named)
    score_axis(ax, measure)


def _distances(ax: Axes, entries: Sequence[Entry]) -> None:
    shown, scale = [entry for entry in entries if is_apart(entry.run)], Scale.of(entries)
    named = {e.name: draw_distance(ax, e.run, scale.length(e.run), **_look(e)) for e in shown}
    _finish(ax, entries, named)
    distance_axis(ax, [entry.run for entry in shown])


def _spendings(ax: Axes, entries: Sequence[Entry]) -> None:
    named, shown, scale = {}, [], Scale.of(entries)
    for entry in entries:
        if entry.spent is not None and entry.spent.snapshots:
            name = entry.name if entry.spent.guarantee.release else f"{entry.name}, not a release"
            named[name] = draw_spending(ax, entry.spent, scale.length(entry.run), **_look(entry))
            shown.append(entry.spent)
    draw_budgets(ax, sorted({each.budget for each in shown if each.budget is not None}), colour="#4d5a69")
    _finish(ax, entries, named)
    terms_of(ax, shown)


def _look(entry: Entry) -> dict[str, Any]:
    return {"color": SERIES[entry.place % len(SERIES)], "ls": _LINES[entry.dash]}


def _finish(ax: Axes, entries: Sequence[Entry], named: dict[str, Any]) -> None:
    """Settle the rounds' axis, and name the lines below the drawing, where they cover nothing."""
    scale = Scale.of(entries)
    if scale.by_share:
        shares_axis(ax)
    else:
        rounds_axis(ax, scale.longest)
    names = [name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…" for name in named]
    columns = 2 if max(map(len, names)) <= _HALF else 1
    figure = ax.get_figure(root=True)
    assert figure is not None
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + _LINE * -(-len(names) // columns))
    # Named one by one: matplotlib would take a name that begins with an underscore for a hidden one.
    legend = figure.legend(list(named.values()), [" "] * len(names), loc="outside lower left", ncols=columns)
    for shown, name in zip(legend.get_texts(), names, strict=True):
        shown.set_text(name)
