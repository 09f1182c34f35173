"""Figures of several runs for a paper, laid over each other."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from tacit.report.comparison import entries_of, measure_of
from tacit.report.drawing import (
    Draw,
    distance_axis,
    draw_budgets,
    draw_distance,
    draw_spending,
    is_apart,
    rounds_axis,
    save,
    score_axis,
    terms_of,
)
from tacit.report.overlays import Entry
from tacit.report.palette import SERIES
from tacit.report.reading import Run

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
    named = {}
    for entry in entries:
        scores, look = entry.run.scores, _look(entry)
        if scores is not None and scores.measure == measure:
            if entry.run.plan.agents > 1:
                ax.fill_between(scores.rounds, scores.low, scores.high, color=look["color"], alpha=0.13, lw=0)
            named[entry.name] = ax.plot(scores.rounds, scores.mean, **look)[0]
    _finish(ax, entries, named)
    score_axis(ax, measure)


def _distances(ax: Axes, entries: Sequence[Entry]) -> None:
    shown = [entry for entry in entries if is_apart(entry.run)]
    named = {entry.name: draw_distance(ax, entry.run, **_look(entry)) for entry in shown}
    _finish(ax, entries, named)
    distance_axis(ax, [entry.run for entry in shown])


def _spendings(ax: Axes, entries: Sequence[Entry]) -> None:
    named, shown = {}, []
    for entry in entries:
        if entry.spent is not None and entry.spent.snapshots:
            name = entry.name if entry.spent.guarantee.release else f"{entry.name}, not a release"
            named[name] = draw_spending(ax, entry.spent, **_look(entry))
            shown.append(entry.spent)
    draw_budgets(ax, sorted({each.budget for each in shown if each.budget is not None}), colour="#4d5a69")
    _finish(ax, entries, named)
    terms_of(ax, shown)


def _look(entry: Entry) -> dict[str, Any]:
    return {"color": SERIES[entry.place % len(SERIES)], "ls": _LINES[entry.dash]}


def _finish(ax: Axes, entries: Sequence[Entry], named: dict[str, Any]) -> None:
    """Name the lines one by one: matplotlib would take a name that begins with an underscore for a hidden one."""
    rounds_axis(ax, max(entry.run.plan.rounds for entry in entries))
    legend = ax.legend(list(named.values()), [" "] * len(named), loc="best")
    for shown, name in zip(legend.get_texts(), named, strict=True):
        shown.set_text(name)
