"""The page's charts of several runs, overlaid."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit.report.compared import ComparedRun, RoundsScale, scores_by
from tacit.report.html import charts
from tacit.report.html.charts import Chart, chart, numbers, title
from tacit.report.recorded import Measure, Scores
from tacit.report.wording import epsilon as format_epsilon
from tacit.report.wording import number, score

# On narrow screens, the page shows a key of its own in place of the legend.
_KEYED: Chart = {"showlegend": True, "meta": {"keyed": True}}


def _trace(each: ComparedRun, x: Sequence[float | None], y: Sequence[Any], hover: list[str], **fields: Any) -> Chart:
    """Return a line of a run; texts of `hover` follow on its name."""
    name = fields.setdefault("name", each.label)
    line = {"color": each.colour, "width": 2.5, "dash": each.dash} | fields.pop("line", {})
    texts = [f"<b>{name}</b><br>{words}" for words in hover]
    return charts.trace(x, y, texts, legendgroup=str(each.place), line=line, **fields)


def _axis(scale: RoundsScale) -> Chart:
    if not scale.by_share:
        return charts.rounds_axis(scale.longest)
    return charts.rounds_axis(1) | {"title": title("share of the run’s rounds"), "tickformat": ".0%"}


def accuracy(runs: Sequence[ComparedRun], measure: Measure) -> Chart | None:
    """Draw every run's mean over the rounds, with the band from its worst agent to its best."""
    data: list[Chart] = []
    scale = RoundsScale.of(runs)
    for each, scores in scores_by(runs, measure):
        x = scale.place(each.run, scores.rounds)
        if each.run.plan.agents > 1:
            edges = charts.band(x, scores, f"{each.colour}@0.13")
            data += [edge | {"legendgroup": str(each.place)} for edge in edges]
        hover = [f"round {round}: {words}" for round, words in zip(scores.rounds, charts.spans(scores), strict=True)]
        data.append(_trace(each, x, numbers(scores.mean), hover))
    return chart(data, x=_axis(scale), y=charts.score_axis(measure), **_KEYED) if data else None


def consensus(runs: Sequence[ComparedRun]) -> Chart | None:
    """Draw how far each run's models are apart."""
    axis = charts.distance_axis([value for each in runs for value in each.run.distances])
    if axis is None:
        return None
    data, scale = [], RoundsScale.of(runs)
    for each in runs:
        y = charts.positive(each.run.distances)
        if any(value is not None for value in y):
            x = scale.place(each.run, [snapshot.round for snapshot in each.run.history])
            hover = [f"round {s.round}: {number(s.consensus_distance)}" for s in each.run.history]
            mode = "lines+markers" if len(x) < 40 else "lines"  # one point alone makes no line
            data.append(_trace(each, x, y, hover, mode=mode))
    return chart(data, x=_axis(scale), y=axis, **_KEYED)


def epsilon(runs: Sequence[ComparedRun]) -> Chart | None:
    """Draw ε of each private run over the rounds, with all budgets."""
    data, scale = [], RoundsScale.of(runs)
    budgets = sorted({each.spent.budget for each in runs if each.spent and each.spent.budget is not None})
    for each in runs:
        if each.spent is not None and each.spent.snapshots:
            rounds, y = [snapshot.round for snapshot in each.spent.snapshots], each.spent.epsilons
            hover = [f"round {round}: ε = {format_epsilon(value)}" for round, value in zip(rounds, y, strict=True)]
            data.append(_trace(each, scale.place(each.run, rounds), y, hover, name=each.claim))
    if not data:
        return None
    axis = charts.epsilon_axis("ε", [*(value for line in data for value in line["y"]), *budgets])
    return chart(data, x=_axis(scale), y=axis, **_KEYED, **charts.budget_lines(budgets, "--soft"))


def accuracy_by_epsilon(runs: Sequence[ComparedRun]) -> Chart | None:
    """Draw accuracy against ε. Runs without privacy are horizontal lines; None if no run has both."""
    scored = scores_by(runs, "accuracy")
    ends = [each.spent.guarantee.epsilon for each, _ in scored if each.spent is not None]
    if not ends:
        return None
    data = [
        _reference(each, scores, max(ends)) if each.spent is None else _curve(each, scores) for each, scores in scored
    ]
    x = {"title": title("ε spent"), "rangemode": "tozero", "showgrid": False, "ticks": "outside"}
    return chart(data, x=x, y=charts.score_axis("accuracy") | {"title": title("mean accuracy")}, **_KEYED)


def _reference(each: ComparedRun, scores: Scores, end: float) -> Chart:
    mean = float(scores.mean[-1])
    hover = [f"without privacy: {score(mean, 'accuracy')}"] * 2
    return _trace(each, [0, end], numbers([mean, mean]), hover, line={"width": 1.5})


def _curve(each: ComparedRun, scores: Scores) -> Chart:
    assert each.spent is not None
    mean_of = dict(zip(scores.rounds, scores.mean, strict=True))
    pairs = zip(each.spent.snapshots, each.spent.epsilons, strict=True)
    points = [(value, mean_of[snapshot.round]) for snapshot, value in pairs if snapshot.round in mean_of]
    hover = [f"ε = {format_epsilon(value)}: {score(mean, 'accuracy')}" for value, mean in points]
    x, y = [value for value, _ in points], numbers(mean for _, mean in points)
    return _trace(each, x, y, hover, name=each.claim, mode="lines+markers")


def spread(runs: Sequence[ComparedRun], measure: Measure) -> Chart | None:
    """Draw every agent's last score as a dot, one row per run, and the mean as a line."""
    data: list[Chart] = []
    scored = scores_by(runs, measure)
    for row, (each, scores) in enumerate(scored):
        final, mean = scores.final, float(scores.mean[-1])
        # A fixed pattern of offsets keeps equal dots apart.
        offsets = 0.3 * (np.arange(len(final)) * 0.618034 % 1 - 0.5)
        size = 9 if len(final) <= 60 else 5
        dots = {"mode": "markers", "marker": {"size": size, "color": f"{each.colour}@0.55", "line": {"width": 0}}}
        hover = [f"agent {agent}: {score(value, measure)}" for agent, value in enumerate(final)]
        data.append(_trace(each, numbers(final), (row + offsets).tolist(), hover, **dots))
        hover, line = [f"mean {score(mean, measure)}"] * 2, {"width": 3, "dash": "solid"}
        data.append(_trace(each, numbers([mean, mean]), [row - 0.3, row + 0.3], hover, line=line))
    if not data:
        return None
    names = [each.label for each, _ in scored]
    rows = {
        "tickvals": list(range(len(names))),
        "ticktext": names,
        "range": [len(names) - 0.5, -0.5],
        "showgrid": False,
    }
    x = charts.score_axis(measure) | {"title": title(measure), "rangemode": "normal"}
    return chart(data, x=x, y=rows, showlegend=False)
