"""The page's charts of one run over its rounds, as plain data that plotly.js draws.

A colour such as `--ink` or `--series-1@0.2` is a variable of the page's style sheet (with an opacity). It is looked up when a
chart is drawn, so that only the style sheet knows about light and dark.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from tacit.privacy.mechanisms import EVERYBODY, Observer
from tacit.report.figures.scales import label_tick, log_ticks
from tacit.report.recorded import RecordedRun, Scores
from tacit.report.spending import Spending
from tacit.report.wording import epsilon as format_epsilon
from tacit.report.wording import number, opacity, score

Chart = dict[str, Any]
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
_CLEAR = "rgba(0,0,0,0)"


def chart(data: list[Chart], *, x: Chart | None = None, y: Chart | None = None, **layout: Any) -> Chart:
    """Return a chart in the page's style."""
    axis = {"gridcolor": "--grid", "linecolor": "--line", "tickcolor": "--line", "zeroline": False, "automargin": True}
    base: Chart = {
        "font": {"family": _FONT, "size": 13, "color": "--soft"},
        "paper_bgcolor": _CLEAR,
        "plot_bgcolor": _CLEAR,
        "margin": {"l": 8, "r": 12, "t": 12, "b": 8},
        "hovermode": "closest",
        "hoverlabel": {"bgcolor": "--card", "bordercolor": "--line", "font": {"color": "--ink"}, "align": "left"},
        "modebar": {"bgcolor": _CLEAR, "color": "--soft", "activecolor": "--ink"},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 12}},
        "xaxis": axis | (x or {}),
        "yaxis": axis | (y or {}),
    }
    return {"data": data, "layout": base | layout}


def trace(x: Iterable[Any], y: Iterable[Any], hover: list[str], **fields: Any) -> Chart:
    """Return a line whose points show the texts of `hover` under the pointer."""
    place: Chart = {"type": "scatter", "mode": "lines", "x": list(x), "y": list(y)}
    return place | {"text": hover, "hovertemplate": "%{text}<extra></extra>"} | fields


def title(text: str) -> Chart:
    """Return the title of an axis."""
    return {"text": text, "standoff": 8, "font": {"size": 13}}


def rounds_axis(rounds: int) -> Chart:
    """Return an axis from the first round to the last planned one."""
    pad = 0.015 * rounds
    return {"title": title("round"), "range": [-pad, rounds + pad], "showgrid": False, "ticks": "outside"}


def score_axis(measure: str) -> Chart:
    """Return an axis of accuracies or losses, from zero."""
    axis: Chart = {"title": title(f"{measure} on validation"), "rangemode": "tozero"}
    return axis | {"tickformat": ".0%"} if measure == "accuracy" else axis


def distance_axis(values: Sequence[float]) -> Chart | None:
    """Return a logarithmic axis around all positive values; None if there are none."""
    ticks = log_ticks(values)
    if not ticks:
        return None
    ends = [math.log10(ticks[0]), math.log10(ticks[-1])]
    labels = {"tickvals": ticks, "ticktext": [label_tick(tick) for tick in ticks]}
    return {"type": "log", "title": title("consensus distance"), "range": ends} | labels


def accuracy(run: RecordedRun, scores: Scores) -> Chart:
    """Draw every agent over the rounds, their mean, and the band from the worst to the best."""
    measure, several = scores.measure, run.plan.agents > 1
    data = [*band(scores.rounds, scores, "--accent@0.16", "worst to best"), _agents(scores)] if several else []
    hover = [f"<b>round {round}</b><br>{words}" for round, words in zip(scores.rounds, spans(scores), strict=True)]
    name = "mean" if several else measure
    data.append(trace(scores.rounds, numbers(scores.mean), hover, name=name, **_line(len(hover), 3)))
    return chart(data, x=rounds_axis(run.plan.total_rounds), y=score_axis(measure), showlegend=several)


def band(x: Sequence[float], scores: Scores, colour: str, name: str = "") -> list[Chart]:
    """Return two traces with the space between the worst agent and the best filled."""
    edge: Chart = {"type": "scatter", "mode": "lines", "x": list(x), "line": {"width": 0}, "hoverinfo": "skip"}
    filled: Chart = {"fill": "tonexty", "fillcolor": colour, "name": name, "showlegend": bool(name)}
    return [edge | {"y": numbers(scores.low), "showlegend": False}, edge | {"y": numbers(scores.high)} | filled]


def spans(scores: Scores) -> list[str]:
    """Return the mean, the lowest and the highest score at each snapshot as texts."""
    rows = ([score(value, scores.measure) for value in values] for values in (scores.mean, scores.low, scores.high))
    return [f"mean {mean}<br>from {low} to {high}" for mean, low, high in zip(*rows, strict=True)]


def _agents(scores: Scores) -> Chart:
    """Return all agents' lines in one trace with gaps between them: a thousand agents draw as fast as ten."""
    x: list[int | None] = []
    y: list[float | None] = []
    text: list[str] = []
    for agent, values in enumerate(scores.values.T):
        x += [*scores.rounds, None]
        y += [*numbers(values), None]
        text += [str(agent)] * (len(values) + 1)
    value = "%{y:.1%}" if scores.measure == "accuracy" else "%{y:.4g}"
    hover = f"<b>agent %{{text}}</b><br>round %{{x}}: {value}<extra></extra>"
    line = {"color": f"--accent@{opacity(scores.values.shape[1]):.2f}", "width": 1}
    return trace(x, y, text, hovertemplate=hover, name="each agent", line=line)


def consensus(run: RecordedRun) -> Chart | None:
    """Draw how far the models are apart, on a logarithmic axis; None if they never are."""
    rounds, axis = [snapshot.round for snapshot in run.history], distance_axis(run.distances)
    if axis is None:
        return None
    pairs = zip(rounds, run.distances, strict=True)
    hover = [f"<b>round {round}</b><br>consensus distance {number(value)}" for round, value in pairs]
    line = trace(rounds, positive(run.distances), hover, **_line(len(rounds)))
    return chart([line], x=rounds_axis(run.plan.total_rounds), y=axis, showlegend=False)


def epsilon(run: RecordedRun, spent: Spending) -> Chart | None:
    """Draw ε over the rounds, and the budget; with masks, also ε against everybody else together. None before the first snapshot."""
    if not spent.snapshots:
        return None
    rounds, fill = [each.round for each in spent.snapshots], {"fill": "tozeroy", "fillcolor": "--accent@0.10"}
    name = f"against {spent.guarantee.observer}"
    lines = [trace(rounds, spent.epsilons, _spent(run, spent, spent.epsilons), name=name, **_line(), **fill)]
    values, budgets = list(spent.epsilons), [] if spent.budget is None else [spent.budget]
    if spent.masked:
        look = {"mode": "lines+markers", "marker": {"size": 5}}
        look["line"] = {"color": "--warn", "width": 2, "dash": "dot"}
        hover = _spent(run, spent, spent.epsilons_everybody)
        lines.append(trace(rounds, spent.epsilons_everybody, hover, name=f"against {EVERYBODY}", **look))
        values += spent.epsilons_everybody
    axis = epsilon_axis(f"ε at δ = {spent.guarantee.delta:g}", [*values, *budgets])
    x = rounds_axis(run.plan.total_rounds)
    return chart(lines, x=x, y=axis, showlegend=spent.masked, **budget_lines(budgets))


def _spent(run: RecordedRun, spent: Spending, values: Sequence[float]) -> list[str]:
    return [
        f"<b>round {each.round}</b><br>ε = {format_epsilon(value)} after {run.spent_at(each):,} queries"
        for each, value in zip(spent.snapshots, values, strict=True)
    ]


def observers(spent: Spending) -> Chart:
    """Draw ε against the number of curious agents, and against everybody else together."""
    names = [observer_label(each.observer) for each in spent.exposures]
    values = [each.epsilon for each in spent.exposures]
    hover = [
        f"<b>against {each.observer}</b><br>ε = {format_epsilon(each.epsilon)}, highest for agent {each.agent}"
        for each in spent.exposures
    ]
    colours = ["--accent" if each.observer == spent.guarantee.observer else "--soft" for each in spent.exposures]
    places = list(range(len(names)))
    line: Chart = {"mode": "lines+markers+text", "line": {"color": "--soft", "width": 1.5, "dash": "dot"}}
    line |= {
        "marker": {"size": 10, "color": colours},
        "hovertext": hover,
        "hovertemplate": "%{hovertext}<extra></extra>",
    }
    line |= {"textposition": "top center", "cliponaxis": False}
    x = {
        "title": title("curious agents who pool what they know"),
        "tickvals": places,
        "ticktext": names,
        "showgrid": False,
    }
    x["range"] = [-0.5, len(names) - 0.5]
    data = [trace(places, numbers(values), [format_epsilon(value) for value in values], **line)]
    return chart(data, x=x, y=epsilon_axis(f"ε at δ = {spent.guarantee.delta:g}", values), showlegend=False)


def observer_label(observer: Observer) -> str:
    """Return the label of an observer on an axis of numbers of curious agents."""
    return "everybody<br>else" if observer == EVERYBODY else str(observer.curious)


def epsilon_axis(text: str, values: Sequence[float]) -> Chart:
    """Return an axis from zero to some way above all values."""
    return {"title": title(text), "range": [0, 1.15 * max([*values, 1e-9])]}


def budget_lines(budgets: Sequence[float], colour: str = "--warn") -> Chart:
    """Return the parts of a layout that draw a line at each budget."""
    line: Chart = {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "line": {"color": colour, "width": 2, "dash": "dash"},
    }
    label: Chart = {"xref": "paper", "x": 0, "xanchor": "left", "yanchor": "bottom", "showarrow": False}
    label |= {"font": {"color": colour, "size": 12}}
    return {
        "shapes": [line | {"y0": value, "y1": value} for value in budgets],
        "annotations": [label | {"y": value, "text": f"budget ε = {number(value)}"} for value in budgets],
    }


def _line(points: int = 0, width: float = 2.5) -> Chart:
    """Return the look of a run's main line, with markers if there are few points."""
    mode = "lines+markers" if points < 40 else "lines"
    return {"mode": mode, "line": {"color": "--accent", "width": width}, "marker": {"size": 5}}


def numbers(values: Iterable[float]) -> list[float | None]:
    """Return plain numbers, with gaps for what is not finite."""
    return [float(value) if math.isfinite(value) else None for value in values]


def positive(values: Iterable[float]) -> list[float | None]:
    """Return what a logarithmic axis can show, with gaps for the rest."""
    return [value if 0 < value < math.inf else None for value in values]
