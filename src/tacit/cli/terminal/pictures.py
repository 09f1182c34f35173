"""The pictures behind `--plot`. Imported only when one is drawn, since matplotlib is slow to import."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import networkx as nx
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tacit.networks import Topology
from tacit.networks.topology import rounds_of
from tacit.report.figures.layout import lay_out
from tacit.report.figures.palette import EDGE, GREY, HEAT, INK, SERIES, readable_on
from tacit.report.figures.style import style

_HEAT = LinearSegmentedColormap.from_list("heat", HEAT)
LINES = ("-", "--", ":", "-.")
SCHEDULE_AGENTS, _PANELS = 200, 8  # agents that can be seen in a small picture, and rounds that are drawn
_LABELLED, _NUMBERED = 60, 20  # agents whose numbers fit on a graph; rows and columns whose counts fit a heat map


@dataclass(frozen=True, kw_only=True)
class Curve:
    """ε after each of these numbers of queries."""

    name: str
    queries: Sequence[int]
    epsilons: Sequence[float]
    asked: bool


def draw_spending(curves: Sequence[Curve], *, title: str, budget: float | None) -> Figure:
    """Draw ε over queries, the curve that was asked for above the others."""
    with style():
        figure = Figure(figsize=(6.4, 4.0))
        ax = figure.add_subplot()
        for place, curve in enumerate(curves):
            look: dict[str, Any] = {"color": SERIES[place], "ls": LINES[place]}
            look |= {"lw": 2.6, "zorder": 3} if curve.asked else {"lw": 1.3}
            spent = f"{curve.name}: ε = {curve.epsilons[-1]:#.3g}"
            ax.plot(curve.queries, curve.epsilons, label=spent, clip_on=False, **look)
        if budget is not None:
            ax.axhline(budget, color=GREY, lw=1, ls=(0, (4, 3)), label=f"budget ε = {budget:g}")
        ax.set(xlabel="queries", ylabel="ε", xlim=(0, curves[0].queries[-1]), title=title)
        ax.set_ylim(bottom=0)
        ax.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        ax.legend(loc="upper left")
        return figure


def draw_graph(graph: nx.Graph, centrality: Sequence[float], *, title: str) -> Figure:
    """Draw agents, coloured by eigenvector centrality, and the links between them."""
    with style():
        figure = Figure(figsize=(6.4, 5.6))
        ax = figure.add_subplot()
        places, agents, edges = lay_out(graph), len(graph), graph.number_of_edges()
        width = 1.2 if edges < 100 else 0.7 if edges < 500 else 0.3
        links = [(places[i], places[j]) for i, j in graph.edges()]
        ax.add_collection(LineCollection(links, colors=EDGE, linewidths=width, zorder=1))
        # Centralities that differ by rounding are one colour, in the middle of the scale.
        low, high = min(centrality), max(centrality)
        if high - low < 1e-9:
            low, high = 0.0, 2 * high
        colours, norm = mpl.colormaps["viridis"], Normalize(low, high)
        fill = [colours(norm(value)) for value in centrality]
        size = 330 if agents <= 20 else 150 if agents <= _LABELLED else 40 if agents <= 200 else 12
        ax.scatter(places[:, 0], places[:, 1], s=size, c=fill, edgecolors="w", linewidths=1, zorder=2)
        if agents <= _LABELLED:
            _number_agents(ax, places, fill)
        shades = figure.colorbar(ScalarMappable(norm, colours), ax=ax, shrink=0.7, pad=0.02)
        shades.set_label("eigenvector centrality")
        shades.outline.set_visible(False)
        ax.set(xlim=(-1.12, 1.12), ylim=(-1.12, 1.12), aspect="equal", title=title)
        ax.axis("off")
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
    agents, classes = counts.shape
    with style():
        figure = Figure(figsize=(6.4, min(2.0 + 0.32 * agents, 6.4)))
        ax = figure.add_subplot()
        image = ax.imshow(counts, cmap=_HEAT, vmin=0, aspect="auto", interpolation="nearest")
        ax.grid(False)
        ax.spines[:].set_visible(False)
        ax.set(xlabel="class", ylabel="agent", title=title)
        for axis, length in ((ax.xaxis, classes), (ax.yaxis, agents)):
            axis.set_tick_params(length=0)
            if length <= _NUMBERED:
                axis.set_ticks(range(length))
            else:
                axis.set_major_locator(MaxNLocator(nbins=10, integer=True))
        if max(agents, classes) <= _NUMBERED:
            _number_cells(ax, counts)
        bar = figure.colorbar(image, ax=ax, pad=0.02)
        bar.set_label("records")
        bar.outline.set_visible(False)
        return figure


def _number_agents(ax: Axes, places: npt.NDArray[np.float64], fill: Sequence[Any]) -> None:
    for agent, (x, y) in enumerate(places):
        red, green, blue = (round(255 * part) for part in fill[agent][:3])
        size = 8 if len(places) <= 20 else 6
        colour = readable_on((red, green, blue))
        ax.text(x, y, str(agent), ha="center", va="center_baseline", fontsize=size, color=colour)


def _number_cells(ax: Axes, counts: npt.NDArray[np.int64]) -> None:
    size = 8 if max(counts.shape) <= 10 else 6
    for place in range(1, counts.shape[1]):
        ax.axvline(place - 0.5, color="w", lw=1)
    for place in range(1, counts.shape[0]):
        ax.axhline(place - 0.5, color="w", lw=1)
    for (row, column), count in np.ndenumerate(counts):
        if count:
            colour = "w" if count > 0.6 * counts.max() else INK
            ax.text(column, row, str(count), ha="center", va="center", fontsize=size, color=colour)
