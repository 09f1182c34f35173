"""The page's charts of who is there: the graph and the partition. Text of a run is escaped, for plotly reads tags."""

import html

import numpy as np

from tacit.report.figures.layout import positions
from tacit.report.figures.palette import SCORE, mix, readable_on
from tacit.report.html.charts import Chart, chart, title
from tacit.report.reading import Run, Scores
from tacit.report.spent import Spending
from tacit.report.wording import epsilon, number, score

_LABELS = 60  # agents or classes up to which each gets a label
_CELLS = 16  # rows and columns up to which the heat map has numbers in it
_LEAST_SPAN = 0.1  # colours span ten points of accuracy or more, so that small differences look small


def partition(run: Run) -> Chart:
    """Who holds how many records of which class, or how many at all."""
    counts, agents = run.plan.counts, list(range(run.plan.agents))
    if counts is None or not counts[0]:
        bars = {
            "type": "bar",
            "x": agents,
            "y": list(run.plan.sizes),
            "marker": {"color": "--accent"},
            "hovertemplate": "<b>agent %{x}</b><br>%{y:,} " + f"{html.escape(run.plan.protected)}s<extra></extra>",
        }
        return chart(
            [bars],
            x={"title": title("agent"), "showgrid": False, **_labels(agents)},
            y={"title": title(f"{run.plan.protected}s")},
        )
    classes = list(range(len(counts[0])))
    few = len(agents) <= _CELLS and len(classes) <= _CELLS
    cells: Chart = {
        "type": "heatmap",
        "z": [list(row) for row in counts],
        "x": classes,
        "y": agents,
        "zmin": 0,
        "zmax": max(1, max(map(max, counts))),  # plotly heeds the one only with the other
        "colorscale": [[i / 4, f"--heat-{i}"] for i in range(5)],
        "xgap": 2 if few else 0,
        "ygap": 2 if few else 0,
        "hovertemplate": "<b>agent %{y}</b><br>class %{x}: %{z:,} records<extra></extra>",
        "colorbar": {"thickness": 10, "outlinewidth": 0, "title": title("records") | {"side": "right"}, "len": 0.9},
    }
    if few:
        cells |= {
            "text": [[f"{n}" if n else "" for n in row] for row in counts],
            "texttemplate": "%{text}",
            "textfont": {"size": 11},
            "showscale": False,
        }
    return chart(
        [cells],
        x={"title": title("class"), "showgrid": False, **_labels(classes)},
        y={"title": title("agent"), "showgrid": False, "autorange": "reversed", **_labels(agents)},
    )


def graph(run: Run, spent: Spending | None) -> Chart:
    """The agents and their links, coloured by how good each is in the end."""
    plan, places, scores = run.plan, positions(run.graph), run.scores
    edges = list(run.graph.edges)
    links: Chart = {
        "type": "scatter",
        "mode": "lines",
        "x": [v for i, j in edges for v in (places[i, 0], places[j, 0], None)],
        "y": [v for i, j in edges for v in (places[i, 1], places[j, 1], None)],
        "line": {"color": "--edge", "width": 1.5 if len(edges) < 200 else 0.6},
        "hoverinfo": "skip",
    }
    size = 30 if plan.agents <= 20 else 22 if plan.agents <= _LABELS else 12 if plan.agents <= 200 else 7
    marker: Chart = {"size": size, "color": "--accent", "line": {"color": "--card", "width": 2}}
    inside = ["#ffffff"] * plan.agents
    if scores is not None and np.isfinite(scores.final).all():
        low, high = colour_range(scores)
        stops = SCORE if scores.measure == "accuracy" else SCORE[::-1]
        marker |= {
            "color": scores.final.tolist(),
            "cmin": low,
            "cmax": high,
            "colorscale": [[i / (len(stops) - 1), stop] for i, stop in enumerate(stops)],
            "showscale": True,
            "colorbar": {
                "orientation": "h",
                "thickness": 10,
                "len": 0.7,
                "y": -0.02,
                "yanchor": "top",
                "outlinewidth": 0,
                "tickformat": ".0%" if scores.measure == "accuracy" else "",
                "nticks": 6,
                "title": title(f"{scores.measure} on validation") | {"side": "bottom"},
            },
        }
        inside = [readable_on(mix(stops, (value - low) / (high - low))) for value in scores.final]
    nodes: Chart = {
        "type": "scatter",
        "mode": "markers+text" if plan.agents <= _LABELS else "markers",
        "x": places[:, 0].tolist(),
        "y": places[:, 1].tolist(),
        "marker": marker,
        "text": [str(agent) for agent in range(plan.agents)],
        "textfont": {"color": inside, "size": 13 if plan.agents <= 20 else 10},
        "customdata": [_details(run, spent, agent) for agent in range(plan.agents)],
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    hidden: Chart = {"visible": False, "range": [-1.18, 1.18], "fixedrange": True}
    return chart(
        [links, nodes],
        x=hidden,
        y=hidden | {"scaleanchor": "x"},
        showlegend=False,
        margin={"l": 4, "r": 4, "t": 4, "b": 4},
    )


def _details(run: Run, spent: Spending | None, agent: int) -> str:
    plan = run.plan
    lines = [f"<b>agent {agent}</b>", html.escape(plan.owners[agent])]
    if run.scores is not None:
        lines.append(f"{run.scores.measure} {score(run.scores.final[agent], run.scores.measure)}")
    lines.append(f"{plan.sizes[agent]:,} {html.escape(plan.protected)}s, {run.graph.degree[agent]} neighbours")
    if spent is not None:
        lines.append(f"ε = {epsilon(spent.per_agent[agent])}, σ = {number(plan.noise_multipliers[agent])}")
    return "<br>".join(lines)


def colour_range(scores: Scores) -> tuple[float, float]:
    """Return the ends of the colours: those of the scores, but not closer than some span."""
    low, high = float(scores.final.min()), float(scores.final.max())
    least = _LEAST_SPAN if scores.measure == "accuracy" else 0.1 * max(abs(high), 1e-9)
    if high - low < least:
        middle = (low + high) / 2
        low, high = middle - least / 2, middle + least / 2
        if scores.measure == "accuracy":
            shift = min(max(low, 0.0), 1 - least) - low
            low, high = low + shift, high + shift
    return low, high


def _labels(members: list[int]) -> Chart:
    """Label every agent or class where they are few."""
    return {"tickmode": "linear", "dtick": 1} if len(members) <= 20 else {}
