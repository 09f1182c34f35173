"""The page's charts of the graph and of the partition. Text of a run is escaped, since plotly reads tags."""

import html

import numpy as np

from tacit.privacy.observers import EVERYBODY
from tacit.report.figures.layout import lay_out
from tacit.report.figures.palette import HEAT, SCORE, mix, readable_on
from tacit.report.html.charts import Chart, chart, title, trace
from tacit.report.recorded import RecordedRun
from tacit.report.spending import Spending
from tacit.report.wording import number, score, write_epsilon

_LABELS = 60  # agents up to which each gets a label
_CELLS = 16  # rows and columns up to which the heat map has numbers in it


def partition(run: RecordedRun) -> Chart:
    """Draw who holds how many records of which class, or how many in all if classes are not known."""
    counts, agents, unit = run.plan.counts, list(range(run.plan.agents)), run.plan.protected
    if counts is None or not counts[0]:
        hover = "<b>agent %{x}</b><br>%{y:,} " + f"{html.escape(unit)}s<extra></extra>"
        bars: Chart = {"type": "bar", "x": agents, "y": list(run.plan.sizes), "marker": {"color": "--accent"}}
        x = {"title": title("agent"), "showgrid": False, **_ticks(agents)}
        return chart([bars | {"hovertemplate": hover}], x=x, y={"title": title(f"{unit}s")})
    classes = list(range(len(counts[0])))
    few = len(agents) <= _CELLS and len(classes) <= _CELLS
    gap = 2 if few else 0
    cells: Chart = {
        "type": "heatmap",
        "z": [list(row) for row in counts],
        "x": classes,
        "y": agents,
        "zmin": 0,
        "zmax": max(1, max(map(max, counts))),  # plotly ignores the minimum without the maximum
        "colorscale": [[place / (len(HEAT) - 1), f"--heat-{place}"] for place in range(len(HEAT))],
        "xgap": gap,
        "ygap": gap,
        "hovertemplate": "<b>agent %{y}</b><br>class %{x}: %{z:,} records<extra></extra>",
        "colorbar": {"thickness": 10, "outlinewidth": 0, "title": title("records") | {"side": "right"}, "len": 0.9},
    }
    if few:
        cells |= {"text": [[f"{n}" if n else "" for n in row] for row in counts], "texttemplate": "%{text}"}
        cells |= {"textfont": {"size": 11}, "showscale": False}
    x, y = ({"title": title(name), "showgrid": False} for name in ("class", "agent"))
    return chart([cells], x=x | _ticks(classes), y=y | {"autorange": "reversed"} | _ticks(agents))


def graph(run: RecordedRun, spent: Spending | None) -> Chart:
    """Draw the agents and their links, coloured by each agent's final score."""
    plan, places, scores = run.plan, lay_out(run.graph), run.scores
    edges = list(run.graph.edges)
    ends = [[v for i, j in edges for v in (places[i, axis], places[j, axis], None)] for axis in (0, 1)]
    line = {"color": "--edge", "width": 1.5 if len(edges) < 200 else 0.6}
    links: Chart = {"type": "scatter", "mode": "lines", "x": ends[0], "y": ends[1], "line": line, "hoverinfo": "skip"}
    size = 30 if plan.agents <= 20 else 22 if plan.agents <= _LABELS else 12 if plan.agents <= 200 else 7
    marker: Chart = {"size": size, "color": "--accent", "line": {"color": "--card", "width": 2}}
    inside = ["#ffffff"] * plan.agents
    if scores is not None and np.isfinite(scores.final).all():
        low, high = scores.colour_range
        stops = SCORE if scores.measure == "accuracy" else SCORE[::-1]
        bar: Chart = {"orientation": "h", "thickness": 10, "len": 0.7, "y": -0.02, "yanchor": "top", "outlinewidth": 0}
        bar |= {"tickformat": ".0%" if scores.measure == "accuracy" else "", "nticks": 6}
        bar |= {"title": title(f"{scores.measure} on validation") | {"side": "bottom"}}
        colours = [[place / (len(stops) - 1), stop] for place, stop in enumerate(stops)]
        marker |= {"color": scores.final.tolist(), "cmin": low, "cmax": high, "colorscale": colours}
        marker |= {"showscale": True, "colorbar": bar}
        inside = [readable_on(mix(stops, (value - low) / (high - low))) for value in scores.final]
    nodes = trace(
        places[:, 0].tolist(),
        places[:, 1].tolist(),
        [_details(run, spent, agent) for agent in range(plan.agents)],
        text=[str(agent) for agent in range(plan.agents)],
        mode="markers+text" if plan.agents <= _LABELS else "markers",
        marker=marker,
        textfont={"color": inside, "size": 13 if plan.agents <= 20 else 10},
    )
    hidden: Chart = {"visible": False, "range": [-1.18, 1.18], "fixedrange": True}
    margin = dict.fromkeys("lrtb", 4)
    return chart([links, nodes], x=hidden, y=hidden | {"scaleanchor": "x"}, showlegend=False, margin=margin)


def _details(run: RecordedRun, spent: Spending | None, agent: int) -> str:
    plan = run.plan
    lines = [f"<b>agent {agent}</b>", html.escape(plan.owners[agent])]
    if run.scores is not None:
        lines.append(f"{run.scores.measure} {score(run.scores.final[agent], run.scores.measure)}")
    lines.append(f"{plan.sizes[agent]:,} {html.escape(plan.protected)}s, {run.graph.degree[agent]} neighbours")
    if spent is not None:
        lines.append(f"ε = {write_epsilon(spent.per_agent[agent])}, σ = {number(plan.noise_multipliers[agent])}")
        if spent.masked:
            lines[-1] = (
                f"ε = {write_epsilon(spent.per_agent[agent])} against {spent.guarantee.observer}<br>"
                f"ε = {write_epsilon(spent.per_agent_everybody[agent])} against {EVERYBODY}<br>"
                f"own noise σ = {number(plan.noise_multipliers[agent])}"
            )
    return "<br>".join(lines)


def _ticks(members: list[int]) -> Chart:
    """Label every agent or class if there are few."""
    return {"tickmode": "linear", "dtick": 1} if len(members) <= 20 else {}
