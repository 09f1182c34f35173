"""`tacit graph`: build, search for or read a communication graph, measure it, draw it, save it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.text import Text

from tacit.cli.commands.graph_schedule import show_schedule
from tacit.cli.terminal.output import (
    bar,
    check_output,
    check_picture,
    console,
    digits,
    note,
    plain_table,
    print_json,
    save_picture,
    working,
)
from tacit.errors import GraphError
from tacit.report.wording import counted

if TYPE_CHECKING:
    import networkx as nx

    from tacit.graphs import Measures

Rule = Literal["metropolis", "max_degree", "uniform"]
_KINDS = (
    "complete, ring, path, star, wheel, grid, torus, hypercube, exponential, small_world, random_regular, erdos_renyi"
)
_SCHEDULES = "matchings, one_peer_exponential, base:peers=2, moving:reach=0.4, each with exchanges=N in a round"
LISTED = 32  # agents whose neighbours are still worth listing
BAR_WIDTH = 12
DRAWN = 2_000  # agents in a picture that can still be seen


def graph(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND|FILE",
            help=f"One of {_KINDS}; random, to search; a file to read; or links that change: {_SCHEDULES}.",
        ),
    ],
    agents: Annotated[int | None, typer.Option(help="How many; a file knows its own.")] = None,
    fiedler: Annotated[float | None, typer.Option(help="random: λ₂ of the Laplacian, divided by N.")] = None,
    density: Annotated[float | None, typer.Option(help="random: share of pairs that are linked.")] = None,
    centrality: Annotated[float | None, typer.Option(help="random: eigenvector centrality of agent 0.")] = None,
    tolerance: Annotated[float | None, typer.Option(help="random: how far off it may be (0.01 if unsaid).")] = None,
    restarts: Annotated[int | None, typer.Option(help="random: how often to search anew (8 if unsaid).")] = None,
    degree: Annotated[int | None, typer.Option(help="small_world, random_regular: neighbours of each.")] = None,
    rewire: Annotated[float | None, typer.Option(help="small_world: share of links that are moved.")] = None,
    probability: Annotated[float | None, typer.Option(help="erdos_renyi: of each link.")] = None,
    rows: Annotated[int | None, typer.Option(help="grid, torus: rows of the rectangle.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="For kinds that are random.")] = 0,
    mixing: Annotated[
        Rule, typer.Option(metavar="RULE", help="Weights of the spectral gap: metropolis, max_degree, uniform.")
    ] = "metropolis",
    as_json: Annotated[bool, typer.Option("--json", metavar="", help="Print one JSON document instead.")] = False,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it: png, pdf or svg.")] = None,
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="Write an edge list for `tacit train`.")] = None,
) -> None:
    """Build a communication graph and measure how well it connects.

    [bold]Example[/]

    tacit graph random --agents 10 --fiedler 0.39 --seed 7 --save graph.txt
    """
    from tacit.graphs import measure, write_edge_list
    from tacit.runs.specs import flattened, is_schedule, parse_graph

    check_picture(plot)
    check_output(save)
    wanted = {"fiedler": fiedler, "density": density, "centrality": centrality}
    options = {
        **wanted,
        "tolerance": tolerance,
        "restarts": restarts,
        "degree": degree,
        "rewire": rewire,
        "probability": probability,
        "rows": rows,
    }
    given = {name: value for name, value in options.items() if value is not None}
    if is_schedule(kind):
        if save is not None:
            raise GraphError(
                f"{kind!r} changes from round to round, and a file holds one graph; give --graph {kind} to tacit train"
            )
        if given or mixing != "metropolis":
            raise GraphError(
                f"{kind!r} changes from round to round: its options stand behind it, as in moving:reach=0.4"
            )
        show_schedule(kind, agents, seed, as_json=as_json, plot=plot)
        return
    with working("building"):
        found = parse_graph(kind, agents, seed, options=given)
        weighed = "file" if "weights" in found.graph else mixing
        measures = measure(found, mixing)
        if save is not None:
            write_edge_list(found, save)
        if plot is not None:
            _draw(plot, found, measures, kind)
    if thin := flattened(kind, len(found), given):
        note(thin)
    if as_json:
        edges = [list(edge) for edge in found.edges]
        print_json({"kind": kind, **measures.to_dict(), "mixing": weighed, "edge_list": edges})
        return
    screen = console()
    screen.print(Text(_title(kind, measures), style="bold"), soft_wrap=True)
    _print_measures(screen, found, measures, weighed, wanted)
    if measures.agents <= LISTED:
        _print_neighbours(screen, found, measures.centrality)
    for name, path in (("Edge list", save), ("Picture", plot)):
        if path is not None:
            screen.print(f"{name}: {path}", soft_wrap=True)


def _title(kind: str, measures: "Measures") -> str:
    return f"{kind}: {counted(measures.agents, 'agent')}, {counted(measures.edges, 'link')}"


def _draw(path: Path, graph: "nx.Graph", measures: "Measures", kind: str) -> None:
    if measures.agents > DRAWN:
        raise GraphError(f"a picture of {measures.agents:,} agents would show nothing; --plot draws up to {DRAWN:,}")
    from tacit.cli.terminal.pictures import draw_graph

    name = Path(kind).name
    numbers = (
        f"normalised Fiedler value {digits(measures.normalized_fiedler, 3)}, density {digits(measures.density, 3)}, "
        f"spectral gap {digits(measures.spectral_gap, 3)}"
    )
    save_picture(draw_graph(graph, measures.centrality, title=f"{_title(name, measures)}\n{numbers}"), path)


def _print_measures(
    screen: Console, graph: "nx.Graph", measures: "Measures", mixing: str, wanted: dict[str, float | None]
) -> None:
    degrees = [degree for _, degree in graph.degree]
    central = measures.centrality
    rows = [
        ("agents", f"{measures.agents:,}", "parties that hold data"),
        ("edges", f"{measures.edges:,}", "links; each carries a message both ways"),
        ("degree", _span(degrees), "neighbours of an agent"),
        ("diameter", f"{measures.diameter}", "links between the two agents farthest apart"),
        ("density", digits(measures.density), "share of all pairs that are linked"),
        ("fiedler", digits(measures.fiedler), "algebraic connectivity: λ₂ of the Laplacian"),
        ("normalized_fiedler", digits(measures.normalized_fiedler), "fiedler / agents; 1 for the complete graph"),
        ("spectral_gap", digits(measures.spectral_gap), f"of W ({mixing}): disagreement lost a round"),
        ("centrality", _span([float(digits(value)) for value in central]), "eigenvector centrality, least to most"),
        ("  of agent 0", digits(central[0]), "what `random --centrality` searches for"),
    ]
    targets = {
        "normalized_fiedler": wanted["fiedler"],
        "density": wanted["density"],
        "  of agent 0": wanted["centrality"],
    }
    table = plain_table()
    table.add_column("measure", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("meaning")
    for name, value, meaning in rows:
        target = targets.get(name)
        table.add_row(name, Text(value, style="bold"), meaning if target is None else f"wanted: {target:g}")
    screen.print()
    screen.print(table)
    screen.print()


def _print_neighbours(screen: Console, graph: "nx.Graph", centrality: Sequence[float]) -> None:
    table = plain_table()
    table.add_column("agent", justify="right")
    table.add_column("neighbours", overflow="fold")
    table.add_column("centrality", no_wrap=True)
    most = max(centrality)
    for agent in graph:
        shown = Text.assemble(f"{centrality[agent]:.3f} ", (bar(centrality[agent] / most, BAR_WIDTH), "cyan"))
        table.add_row(str(agent), ranges(sorted(graph[agent])), shown)
    screen.print(table)
    screen.print()


def ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers with runs drawn together: 1–3 5 8–9."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return " ".join(f"{run[0]}–{run[-1]}" if len(run) > 2 else " ".join(map(str, run)) for run in runs)


def _span(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g}–{high:g}"
