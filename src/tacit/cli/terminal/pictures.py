"""The pictures behind `--plot`. Imported only when one is drawn, since matplotlib is slow to import."""

from collections.abc import Mapping, Sequence
from typing import Any

import networkx as nx
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tacit.cli.terminal.output import round_up
from tacit.networks import Topology
from tacit.networks.topology import rounds_of
from tacit.report.figures import maps
from tacit.report.figures.layout import lay_out
from tacit.report.figures.palette import EDGE, GREY, SERIES
from tacit.report.figures.style import style

LINES = ("-", "--", ":", "-.")
SCHEDULE_AGENTS, _PANELS = 200, 8  # agents that can be seen in a small picture, and rounds that are drawn


def draw_spending(
    curves: Mapping[str, Sequence[float]], queries: Sequence[int], asked: str, *, title: str, budget: float | None
) -> Figure:
    """Draw ε over these numbers of queries, the curve that was asked for above the others."""
    with style():
        figure = Figure(figsize=(6.4, 4.0))
        ax = figure.add_subplot()
        for place, (name, epsilons) in enumerate(curves.items()):
            look: dict[str, Any] = {"color": SERIES[place], "ls": LINES[place]}
            look |= {"lw": 2.6, "zorder": 3} if name == asked else {"lw": 1.3}
            ax.plot(queries, epsilons, label=f"{name}: ε = {round_up(epsilons[-1])}", clip_on=False, **look)
        if budget is not None:
            ax.axhline(budget, color=GREY, lw=1, ls=(0, (4, 3)), label=f"budget ε = {budget:g}")
        ax.set(xlabel="queries", ylabel="ε", xlim=(0, queries[-1]), title=title)
        ax.set_ylim(bottom=0)
        ax.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        ax.legend(loc="upper left")
        return figure


def draw_graph(graph: nx.Graph, centrality: Sequence[float], *, title: str) -> Figure:
    """Draw agents, coloured by eigenvector centrality, and the links between them."""
    # Centralities that differ by rounding are one colour, in the middle of the scale.
    low, high = min(centrality), max(centrality)
    ends = (low, high) if high - low >= 1e-9 else (0.0, 2 * high)
    with style():
        figure = Figure(figsize=(6.4, 5.6))
        ax = figure.add_subplot(title=title)
        maps.draw_graph(ax, graph, centrality, label="eigenvector centrality", ends=ends)
        return figure


def draw_schedule(topology: Topology, *, title: str) -> Figure:
    """Draw the links of the first exchanges, one beside another; an arrow points to who hears, where that is one way."""
    rounds = rounds_of(topology, _PANELS)
    panels = [(number, links) for number in rounds for links in topology.at(number)][:_PANELS]
    places = lay_out(nx.empty_graph(topology.agents))
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    with style():
        figure = Figure(figsize=(2.6 * columns, 2.6 * rows + 0.5))
        axes = figure.subplots(rows, columns, squeeze=False).flatten()
        for ax, (number, links) in zip(axes, panels, strict=False):
            where = places if (moved := getattr(topology, "places", None)) is None else 2 * moved(number) - 1
            for hears in range(topology.agents):
                for heard in links.of_agent(hears)[0].tolist():
                    arrow = "-|>" if not links.heard[heard, hears] else "-"
                    if arrow == "-" and heard < hears:
                        continue
                    look = {"arrowstyle": arrow, "color": EDGE, "lw": 1.1, "shrinkA": 5, "shrinkB": 5}
                    ax.annotate("", where[hears], where[heard], arrowprops=look)
            ax.scatter(where[:, 0], where[:, 1], s=70, c=SERIES[0], edgecolors="w", linewidths=1, zorder=2)
            ax.set(xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), aspect="equal", title=f"round {number}")
        for ax in axes:
            ax.axis("off")
        figure.suptitle(title)
        return figure


def draw_partition(counts: npt.NDArray[np.int64], *, title: str) -> Figure:
    """Draw how many records of each class each agent holds."""
    with style():
        figure = Figure(figsize=(6.4, min(2.0 + 0.32 * len(counts), 6.4)))
        maps.draw_partition(figure.add_subplot(title=title), counts)
        return figure
