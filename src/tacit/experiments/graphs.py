"""`graphs`: graphs like the paper's two examples, found and drawn."""

import networkx as nx

from tacit.experiments.drawing import INK, SERIES, Figure, panels
from tacit.experiments.experiment import Environment, Experiment, Point, Profile, ResultRow
from tacit.graphs import find_graph, measure

AGENTS = 10
_TOLERANCE = 0.002  # of the values divided by N: a plain connectivity within 0.02
# Which seed finds values that round to the paper's; others miss by a little more.
_SEED = {"left": 3, "right": 1}


def _points(profile: Profile) -> list[Point]:
    return [
        Point.of(graph="left", connectivity=0.38, density=0.4, centrality=0.05, agents=AGENTS),
        Point.of(graph="right", connectivity=0.62, density=0.29, centrality=0.5, agents=AGENTS),
    ]


def _run(point: Point, environment: Environment) -> list[ResultRow]:
    agents = point["agents"]
    graph = find_graph(
        agents,
        fiedler=point["connectivity"] / agents,  # the caption's are not divided by N
        density=point["density"],
        centrality=point["centrality"],
        tolerance=_TOLERANCE,
        seed=_SEED[point["graph"]],
        restarts=64,
    )
    found = measure(graph)
    return [
        {
            "found_connectivity": found.fiedler,
            "found_normalized_connectivity": found.normalized_fiedler,
            "found_density": found.density,
            "found_centrality": found.centrality[0],
            "links": " ".join(f"{i}-{j}" for i, j in graph.edges),
        }
    ]


def graph_of(row: ResultRow) -> nx.Graph:
    """Return the graph of a row."""
    graph = nx.empty_graph(row["agents"])
    graph.add_edges_from(tuple(map(int, link.split("-"))) for link in row["links"].split())
    return graph


def _finding(rows: list[ResultRow]) -> str:
    sentences = [
        f"The graph like the {row['graph']} one has algebraic connectivity {row['found_connectivity']:.3f} (published "
        f"{row['connectivity']:g}), density {row['found_density']:.3f} ({row['density']:g}) and centrality "
        f"{row['found_centrality']:.3f} of node 0 ({row['centrality']:g}); divided by N its connectivity is "
        f"{row['found_normalized_connectivity']:.3f}."
        for row in rows
    ]
    end = (
        "The published connectivities are not divided by N. On the scale of the paper's experiments, which divides by N, both "
        "graphs are near its lowest value, 0.06."
    )
    return " ".join([*sentences, end])


def _draw(rows: list[ResultRow]) -> Figure:
    with panels(1, len(rows), width=3.6, height=3.6) as (figure, axes):
        for ax, row in zip(axes[0], rows, strict=True):
            graph = graph_of(row)
            places = nx.kamada_kawai_layout(graph)
            for i, j in graph.edges:
                ax.plot(*zip(places[i], places[j], strict=True), color="darkgrey", lw=1.2, zorder=1)
            colours = [INK] + [SERIES[6]] * (len(graph) - 1)
            ax.scatter(*zip(*places.values(), strict=True), s=260, c=colours, edgecolors="w", zorder=2)
            for agent, (x, y) in places.items():
                ax.text(x, y, str(agent), ha="center", va="center_baseline", color="w", fontsize=8)
            ax.set_title(
                f"connectivity {row['found_connectivity']:.2f}, density {row['found_density']:.2f},\n"
                f"centrality of node 0: {row['found_centrality']:.2f}"
            )
            ax.set_aspect("equal", adjustable="datalim")
            ax.margins(0.12)
            ax.axis("off")
        return figure


EXPERIMENT = Experiment(
    name="graphs",
    title="Graphs like the paper's examples",
    claim="The left graph has algebraic connectivity 0.38, density 0.4 and a node 0 of eigenvector centrality 0.05; the "
    "right one 0.62, 0.29 and 0.5. The text has connectivities divided by N.",
    varies=("graph",),
    points=_points,
    run=_run,
    draw=_draw,
    finding=_finding,
    reduced=(),
    seconds=lambda point: 2.0,
)
