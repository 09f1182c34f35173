"""Drawings of a graph and of who holds which records, in figures of runs and behind `--plot`."""

from collections.abc import Sequence
from typing import Any

import networkx as nx
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize, to_rgba
from matplotlib.ticker import Formatter

from tacit.report.figures.layout import lay_out
from tacit.report.figures.palette import EDGE, HEAT, SCORE, SERIES, readable_on

SCORES = LinearSegmentedColormap.from_list("score", SCORE)
_HEAT = LinearSegmentedColormap.from_list("heat", HEAT)
_LABELLED = 60  # agents whose numbers fit
_CELLS = 3.5  # that fit an inch with their counts


def draw_graph(
    ax: Axes,
    graph: nx.Graph,
    values: Sequence[float] | None,
    *,
    label: str = "",
    ends: tuple[float, float] = (0.0, 1.0),
    colours: Colormap = SCORES,
    formatter: Formatter | None = None,
) -> None:
    """Draw agents, coloured by a value of each between `ends` if there is one, and the links between them."""
    places, agents, edges = lay_out(graph), len(graph), graph.number_of_edges()
    width = 1.0 if edges < 100 else 0.7 if edges < 500 else 0.3
    links = [(places[i], places[j]) for i, j in graph.edges()]
    ax.add_collection(LineCollection(links, colors=EDGE, linewidths=width, zorder=1))
    fill: Any = [to_rgba(SERIES[0])] * agents
    if values is not None:
        shades = ScalarMappable(norm=Normalize(*ends), cmap=colours)
        fill = shades.to_rgba(np.asarray(values))
        bar = ax.figure.colorbar(shades, ax=ax, label=label, format=formatter, shrink=0.8, pad=0.02)
        bar.outline.set_visible(False)
    size = 43 if agents <= 20 else 20 if agents <= _LABELLED else 7 if agents <= 200 else 2
    sizes = size * _width(ax)
    ax.scatter(places[:, 0], places[:, 1], s=sizes, c=fill, zorder=2, edgecolors="w", linewidths=0.8)
    if agents <= _LABELLED:
        points = _width(ax) ** 0.4 * (4 if agents <= 20 else 2.8)
        for agent, (x, y) in enumerate(places):
            ax.text(x, y, str(agent), ha="center", va="center_baseline", color=_ink(fill[agent]), fontsize=points)
    ax.set(xlim=(-1.15, 1.15), ylim=(-1.15, 1.15), aspect="equal")
    ax.axis("off")


def draw_partition(ax: Axes, counts: npt.NDArray[np.int64]) -> None:
    """Draw how many records of each class each agent holds."""
    rows, columns = counts.shape
    few = max(rows, columns) <= _CELLS * _width(ax)
    # White lines between cells if there are few; a mesh stays sharp in a PDF, and an image does not.
    look: dict[str, Any] = {"edgecolors": "w" if few else "face", "linewidth": 0.8 if few else 0, "rasterized": not few}
    mesh = ax.pcolormesh(counts, cmap=_HEAT, vmin=0, **look)
    ax.grid(False)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    ax.set(xlabel="class", ylabel="agent", xlim=(0, columns), ylim=(rows, 0))
    for length, set_ticks in ((columns, ax.set_xticks), (rows, ax.set_yticks)):
        shown = np.arange(0, length, 1 if length <= 20 else max(1, 10 ** int(np.log10(length / 2))))
        set_ticks(shown + 0.5, [str(tick) for tick in shown])
    if not few:
        ax.figure.colorbar(mesh, ax=ax, label="records", pad=0.02).outline.set_visible(False)
        return
    points = min(8.0, 16 * _width(ax) / columns)
    for (row, column), count in np.ndenumerate(counts):
        if count:
            ink = _ink(mesh.to_rgba(np.asarray(count)))
            ax.text(column + 0.5, row + 0.5, str(count), ha="center", va="center", fontsize=points, color=ink)


def _width(ax: Axes) -> float:
    """Return the width of the figure in inches."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    return float(figure.get_size_inches()[0])


def _ink(colour: Any) -> str:
    red, green, blue = (round(255 * part) for part in colour[:3])
    return readable_on((red, green, blue))
