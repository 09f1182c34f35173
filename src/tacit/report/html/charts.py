"""Plots as charts of a page: plain data that plotly.js draws.

A colour such as `--ink` or `--series-1@0.2` is a variable of the page's style sheet (with an opacity). It is looked up when a
chart is drawn, so that only the style sheet knows about light and dark.
"""

import html
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tacit.report.compared import ComparedRun, choose_measure, scores_by, shorten
from tacit.report.plots import Axis, Plot, PlotLine, score_axis
from tacit.report.wording import number, opacity, score

Chart = dict[str, Any]
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
_CLEAR = "rgba(0,0,0,0)"
_FEW = 40  # points up to which each is marked


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


def title(text: str) -> Chart:
    """Return the title of an axis."""
    return {"text": text, "standoff": 8, "font": {"size": 13}}


def trace(x: Iterable[Any], y: Iterable[Any], hover: Sequence[str], **fields: Any) -> Chart:
    """Return a line whose points show the texts of `hover` under the pointer."""
    place: Chart = {"type": "scatter", "mode": "lines", "x": list(x), "y": numbers(y)}
    return place | {"hovertext": list(hover), "hovertemplate": "%{hovertext}<extra></extra>"} | fields


def numbers(values: Iterable[Any]) -> list[float | None]:
    """Return plain numbers, with gaps for what is not finite."""
    return [float(value) if value is not None and math.isfinite(value) else None for value in values]


def draw(plot: Plot | None) -> Chart | None:
    """Return the chart of a plot."""
    if plot is None:
        return None
    data = [part for place, line in enumerate(plot.lines) for part in _line(line, str(place), plot)]
    # On narrow screens, a comparison shows a key of its own in place of the legend.
    meta = {"meta": {"keyed": True}} if plot.several else {}
    x = _axis(plot.x, pad=0.015) | {"showgrid": False, "ticks": "outside"}
    return chart(data, x=x, y=_axis(plot.y), showlegend=plot.legend, **meta, **_budgets(plot.budgets))


def draw_spread(runs: Sequence[ComparedRun]) -> Chart | None:
    """Draw every agent's last score as a dot, one row per run, and the mean as a line."""
    data: list[Chart] = []
    measure = choose_measure(runs)
    scored = scores_by(runs, measure)
    for row, (each, scores) in enumerate(scored):
        final, mean, colour = scores.final, float(scores.mean[-1]), f"--series-{each.series + 1}"
        # A fixed pattern of offsets keeps equal dots apart.
        offsets = 0.3 * (np.arange(len(final)) * 0.618034 % 1 - 0.5)
        marker = {"size": 9 if len(final) <= 60 else 5, "color": f"{colour}@0.55", "line": {"width": 0}}
        name = html.escape(shorten(each.name))
        hover = [f"<b>{name}</b><br>agent {agent}: {score(value, measure)}" for agent, value in enumerate(final)]
        data.append(trace(numbers(final), row + offsets, hover, mode="markers", marker=marker))
        hover, line = [f"<b>{name}</b><br>mean {score(mean, measure)}"] * 2, {"color": colour, "width": 3}
        data.append(trace(numbers([mean, mean]), [row - 0.3, row + 0.3], hover, line=line))
    if not data:
        return None
    names = [html.escape(shorten(each.name)) for each, _ in scored]
    rows = {"tickvals": list(range(len(names))), "ticktext": names, "range": [len(names) - 0.5, -0.5]}
    x = _axis(score_axis(measure)) | {"title": title(measure), "rangemode": "normal"}
    return chart(data, x=x, y=rows | {"showgrid": False}, showlegend=False)


def _line(line: PlotLine, group: str, plot: Plot) -> list[Chart]:
    """Return the traces of a line: its band, every agent, and the line itself, shown and hidden together."""
    colour = "--soft" if line.series is None else f"--series-{line.series + 1}"
    name, found = html.escape((shorten(line.name) if plot.several else line.name) + line.remark), []
    together = {"legendgroup": group} if plot.several else {}
    if line.band is not None:
        edge = {"line": {"width": 0}, "hoverinfo": "skip", "hovertemplate": None, **together}
        filled = {"fill": "tonexty", "fillcolor": f"{colour}@0.15", "name": "worst to best"}
        low, high = (trace(line.x, values, (), **edge) for values in line.band)
        found += [low | {"showlegend": False}, high | filled | {"showlegend": not plot.several}]
    if line.agents is not None:
        found.append(_agents(line, colour, percent=plot.y.percent))
    hover = [f"<b>{name}</b><br>{words}" if name else words for words in line.hover]
    look: Chart = {"mode": "lines+markers" if len(line.x) < _FEW else "lines", "marker": {"size": 5}}
    look |= {"line": {"color": colour, "width": line.width, "dash": line.dash}, "name": name, **together}
    if line.filled:
        look |= {"fill": "tozeroy", "fillcolor": f"{colour}@0.10"}
    if line.labels:
        colours = ["--series-1" if place == line.main else colour for place in range(len(line.labels))]
        look |= {"mode": "lines+markers+text", "marker": {"size": 10, "color": colours}, "text": list(line.labels)}
        look |= {"textposition": "top center", "cliponaxis": False}
    return [*found, trace(line.x, line.y, hover, **look)]


def _agents(line: PlotLine, colour: str, *, percent: bool) -> Chart:
    """Return all agents' lines in one trace with gaps between them: a thousand agents draw as fast as ten."""
    assert line.agents is not None
    x, y, text = [], [], []
    for agent, values in enumerate(line.agents.T):
        x += [*line.x, None]
        y += [*values, None]
        text += [f"<b>agent {agent}</b>"] * (len(values) + 1)
    hover = f"%{{hovertext}}<br>round %{{x}}: {'%{y:.1%}' if percent else '%{y:.4g}'}<extra></extra>"
    thin = {"color": f"{colour}@{opacity(line.agents.shape[1]):.2f}", "width": 1}
    return trace(x, y, text, hovertemplate=hover, name="each agent", line=thin)


def _axis(axis: Axis, pad: float = 0.0) -> Chart:
    """Return an axis with this share of its length left free at both ends."""
    made: Chart = {"title": title(axis.title), "rangemode": "tozero"}
    if axis.ends is not None:
        low, high = map(math.log10, axis.ends) if axis.log else axis.ends
        made["range"] = [low - pad * (high - low), high + pad * (high - low)]
    if axis.ticks:
        made |= {"tickvals": list(axis.ticks), "ticktext": list(axis.ticks.values())}
    if axis.percent:
        made["tickformat"] = ".0%"
    return made | {"type": "log"} if axis.log else made


def _budgets(budgets: Sequence[float]) -> Chart:
    """Return the parts of a layout that draw a line at each budget."""
    line: Chart = {"type": "line", "xref": "paper", "x0": 0, "x1": 1}
    line["line"] = {"color": "--soft", "width": 2, "dash": "dash"}
    label: Chart = {"xref": "paper", "x": 0, "xanchor": "left", "yanchor": "bottom", "showarrow": False}
    label["font"] = {"color": "--soft", "size": 12}
    return {
        "shapes": [line | {"y0": value, "y1": value} for value in budgets],
        "annotations": [label | {"y": value, "text": f"planned ε = {number(value)}"} for value in budgets],
    }
