"""The page's charts of one run over its rounds, as plain data that plotly.js draws.

A colour such as `--ink` or `--series-1@0.2` is a variable of the page's style sheet (with an opacity), looked up when a
chart is drawn, so that light and dark are told apart in one place.
"""

import math
from collections.abc import Sequence
from typing import Any

from tacit.report.reading import Run, Scores
from tacit.report.spent import Spending
from tacit.report.wording import epsilon as spelled
from tacit.report.wording import number, score, thin

Chart = dict[str, Any]
_COMMON = 1e-4  # of the next distance: what is less at the start is rounding


def chart(data: list[Chart], *, x: Chart | None = None, y: Chart | None = None, **layout: Any) -> Chart:
    """Return a chart in the page's style."""
    axis: Chart = {
        "gridcolor": "--grid",
        "linecolor": "--line",
        "tickcolor": "--line",
        "zeroline": False,
        "automargin": True,
    }
    base: Chart = {
        "font": {"family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", "size": 13, "color": "--soft"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 8, "r": 12, "t": 12, "b": 8},
        "hovermode": "closest",
        "hoverlabel": {"bgcolor": "--card", "bordercolor": "--line", "font": {"color": "--ink"}, "align": "left"},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "--soft", "activecolor": "--ink"},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 12}},
        "xaxis": axis | (x or {}),
        "yaxis": axis | (y or {}),
    }
    return {"data": data, "layout": base | layout}


def title(text: str) -> Chart:
    """Return the title of an axis."""
    return {"text": text, "standoff": 8, "font": {"size": 13}}


def rounds_axis(rounds: int) -> Chart:
    """Return an axis from the first round to the last planned."""
    pad = 0.015 * rounds
    return {
        "title": title("round"),
        "range": [-pad, rounds + pad],
        "showgrid": False,
        "ticks": "outside",
    }


def score_axis(measure: str) -> Chart:
    """Return an axis for accuracies, from zero, or for losses."""
    if measure == "accuracy":
        return {"title": title("accuracy on validation"), "tickformat": ".0%", "rangemode": "tozero"}
    return {"title": title("loss on validation"), "rangemode": "tozero"}


def accuracy(run: Run, scores: Scores) -> Chart:
    """Every agent over the rounds, their mean, and the band between the worst and the best."""
    rounds, measure = list(scores.rounds), scores.measure
    mean, low, high = (numbers(v) for v in (scores.mean, scores.low, scores.high))
    several = run.plan.agents > 1
    data = [*band(rounds, low, high, "--accent@0.16", "worst to best"), _agents(scores)] if several else []
    hover = [
        f"<b>round {r}</b><br>mean {score(m, measure)}<br>from {score(a, measure)} to {score(b, measure)}"
        for r, m, a, b in zip(rounds, scores.mean, scores.low, scores.high, strict=True)
    ]
    data.append(
        {
            "type": "scatter",
            "mode": "lines+markers" if len(rounds) < 40 else "lines",
            "x": rounds,
            "y": mean,
            "name": "mean" if several else measure,
            "line": {"color": "--accent", "width": 3},
            "marker": {"size": 5},
            "text": hover,
            "hovertemplate": "%{text}<extra></extra>",
        }
    )
    return chart(data, x=rounds_axis(run.plan.rounds), y=score_axis(measure), showlegend=several)


def band(
    rounds: Sequence[float], low: list[float | None], high: list[float | None], colour: str, name: str
) -> list[Chart]:
    """Return two traces with the space between them filled."""
    edge: Chart = {"type": "scatter", "mode": "lines", "x": list(rounds), "line": {"width": 0}, "hoverinfo": "skip"}
    return [
        edge | {"y": low, "showlegend": False},
        edge | {"y": high, "fill": "tonexty", "fillcolor": colour, "name": name, "showlegend": bool(name)},
    ]


def _agents(scores: Scores) -> Chart:
    """All agents' lines in one trace with gaps between them: a thousand agents draw as fast as ten."""
    x: list[int | None] = []
    y: list[float | None] = []
    text: list[str] = []
    for agent, values in enumerate(scores.values.T):
        x += [*scores.rounds, None]
        y += [*numbers(values), None]
        text += [str(agent)] * (len(values) + 1)
    shown = "%{y:.1%}" if scores.measure == "accuracy" else "%{y:.4g}"
    return {
        "type": "scatter",
        "mode": "lines",
        "x": x,
        "y": y,
        "text": text,
        "hovertemplate": f"<b>agent %{{text}}</b><br>round %{{x}}: {shown}<extra></extra>",
        "name": "each agent",
        "line": {"color": f"--accent@{thin(scores.values.shape[1]):.2f}", "width": 1},
    }


def consensus(run: Run) -> Chart | None:
    """How far the models are apart, on a logarithmic axis; None where they never are."""
    rounds = [snapshot.round for snapshot in run.history]
    apart = distances(run)
    axis = log_axis(apart)
    if axis is None:
        return None
    line = {
        "type": "scatter",
        "mode": "lines+markers" if len(rounds) < 40 else "lines",
        "x": rounds,
        "y": positive(apart),
        "line": {"color": "--accent", "width": 2.5},
        "marker": {"size": 5},
        "text": [number(value) for value in apart],
        "hovertemplate": "<b>round %{x}</b><br>consensus distance %{text}<extra></extra>",
    }
    return chart([line], x=rounds_axis(run.plan.rounds), y=axis, showlegend=False)


def distances(run: Run) -> list[float]:
    """Return how far the models are apart at each look; a common start is no distance, whatever rounding makes of it."""
    apart = [snapshot.consensus_distance for snapshot in run.history]
    if len(apart) > 1 and run.history[0].round == 0 and apart[0] < _COMMON * apart[1]:
        apart[0] = 0.0
    return apart


def log_axis(values: Sequence[float]) -> Chart | None:
    """Return a logarithmic axis around all positive values, with whole numbers for labels."""
    shown = [value for value in values if 0 < value < math.inf]
    if not shown:
        return None
    low, high = math.floor(math.log10(min(shown))), math.ceil(math.log10(max(shown)) + 1e-9)
    steps = (1,) if high - low > 3 else (1, 2, 5)
    ticks = [step * 10.0**power for power in range(low - 1, high + 2) for step in steps]
    below = max(tick for tick in ticks if tick <= min(shown) / 1.02)
    above = min(tick for tick in ticks if tick >= max(shown) * 1.02)
    ticks = [tick for tick in ticks if below <= tick <= above]
    return {
        "type": "log",
        "title": title("consensus distance"),
        "tickvals": ticks,
        "ticktext": [f"{tick:.10g}" if 1e-4 <= tick < 1e6 else f"{tick:.0e}" for tick in ticks],
        "range": [math.log10(below), math.log10(above)],
    }


def epsilon(run: Run, spent: Spending) -> Chart | None:
    """ε over the rounds against what may be spent; None before the first look."""
    if not spent.snapshots:
        return None
    line = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [look.round for look in spent.snapshots],
        "y": list(spent.epsilons),
        "line": {"color": "--accent", "width": 2.5},
        "marker": {"size": 5},
        "fill": "tozeroy",
        "fillcolor": "--accent@0.10",
        "text": [
            f"ε = {spelled(e)} after {run.spent_at(look):,} queries"
            for look, e in zip(spent.snapshots, spent.epsilons, strict=True)
        ],
        "hovertemplate": "<b>round %{x}</b><br>%{text}<extra></extra>",
    }
    budgets = [] if spent.budget is None else [spent.budget]
    top = 1.15 * max([*spent.epsilons, *budgets, 1e-9])
    return chart(
        [line],
        x=rounds_axis(run.plan.rounds),
        y={"title": title(f"ε at δ = {spent.guarantee.delta:g}"), "range": [0, top]},
        showlegend=False,
        **budget_lines(budgets),
    )


def budget_lines(budgets: Sequence[float], colour: str = "--warn") -> Chart:
    """Return the parts of a layout that draw a line at each budget."""
    return {
        "shapes": [
            {
                "type": "line",
                "xref": "paper",
                "x0": 0,
                "x1": 1,
                "y0": value,
                "y1": value,
                "line": {"color": colour, "width": 2, "dash": "dash"},
            }
            for value in budgets
        ],
        "annotations": [
            {
                "xref": "paper",
                "x": 0,
                "y": value,
                "xanchor": "left",
                "yanchor": "bottom",
                "showarrow": False,
                "text": f"budget ε = {number(value)}",
                "font": {"color": colour, "size": 12},
            }
            for value in budgets
        ],
    }


def numbers(values: Any) -> list[float | None]:
    """Return plain numbers, with a gap where there is none."""
    return [float(value) if math.isfinite(value) else None for value in values]


def positive(values: Sequence[float]) -> list[float | None]:
    """Return what a logarithmic axis can show, with gaps for the rest."""
    return [value if 0 < value < math.inf else None for value in values]
