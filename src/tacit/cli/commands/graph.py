"""`tacit graph`: build, search for or read a communication graph, measure it, draw it, save it."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.text import Text

from tacit.cli.terminal.command import Json, Plot, option
from tacit.cli.terminal.output import (
    bar,
    check_output,
    check_picture,
    console,
    digits,
    note,
    plain_table,
    print_apart,
    print_json,
    save_picture,
    working,
)
from tacit.errors import GraphError
from tacit.registry import GRAPHS, SCHEDULES
from tacit.report.wording import counted, list_agents, span

if TYPE_CHECKING:
    import networkx as nx

    from tacit.graphs import Measures
    from tacit.networks import ScheduleMeasures, Topology

_LISTED = 32  # agents whose neighbours are still worth listing
_BAR_WIDTH = 12
_DRAWN = 2_000  # agents that can still be seen in a picture
_ROUNDS = 100  # that are measured of a schedule that never repeats


def command(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND|FILE",
            help=f"One of {GRAPHS.listed()}; random, to search; a file to read; or links that change: "
            f"{SCHEDULES.listed()}, each with exchanges=N in a round.",
        ),
    ],
    agents: Annotated[int | None, option("N", "How many; default: the number in a file.")] = None,
    fiedler: Annotated[float | None, option("NUMBER", "random: λ₂ of the Laplacian, divided by N.")] = None,
    density: Annotated[float | None, option("SHARE", "random: share of pairs that are linked.")] = None,
    centrality: Annotated[float | None, option("NUMBER", "random: eigenvector centrality of agent 0.")] = None,
    tolerance: Annotated[float | None, option("NUMBER", "random: how far off it may be; default 0.01.")] = None,
    restarts: Annotated[int | None, option("N", "random: how often to restart the search; default 8.")] = None,
    degree: Annotated[int | None, option("N", "small_world, random_regular: neighbours of each.")] = None,
    rewire: Annotated[float | None, option("SHARE", "small_world: share of links that are moved.")] = None,
    probability: Annotated[float | None, option("SHARE", "erdos_renyi: probability of each link.")] = None,
    rows: Annotated[int | None, option("N", "grid, torus: rows of the rectangle.")] = None,
    seed: Annotated[int, option("N", "For kinds that are random.", min=0)] = 0,
    mixing: Annotated[
        Literal["metropolis", "max_degree", "uniform"],
        option("RULE", "Weights of the spectral gap: metropolis, max_degree, uniform."),
    ] = "metropolis",
    json: Json = False,
    plot: Plot = None,
    save: Annotated[Path | None, option("FILE", "Write an edge list for `tacit train`.")] = None,
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
    search = {"tolerance": tolerance, "restarts": restarts}
    shape = {"degree": degree, "rewire": rewire, "probability": probability, "rows": rows}
    given = {name: value for name, value in {**wanted, **search, **shape}.items() if value is not None}
    if is_schedule(kind):
        if save is not None:
            raise GraphError(
                f"{kind!r} changes from round to round, and a file holds one graph; give --graph {kind} to tacit train"
            )
        if given or mixing != "metropolis":
            raise GraphError(
                f"{kind!r} changes from round to round: its options are written behind it, as in moving:reach=0.4"
            )
        _show_schedule(kind, agents, seed, json=json, plot=plot)
        return
    with working("building"):
        found = parse_graph(kind, agents, seed, options=given)
        weights = "file" if "weights" in found.graph else mixing
        measures = measure(found, mixing)
        if save is not None:
            write_edge_list(found, save)
        if plot is not None:
            _draw(plot, found, measures, kind)
    if thin := flattened(kind, len(found), given):
        note(thin)
    if json:
        edges = [list(edge) for edge in found.edges]
        names = {"names": list(found.graph["names"])} if "names" in found.graph else {}
        print_json({"kind": kind, **measures.to_dict(), "mixing": weights, "edge_list": edges, **names})
        return
    screen = console()
    screen.print(Text(_title(kind, measures), style="bold"))
    _print_measures(screen, found, measures, weights, wanted)
    if measures.agents <= _LISTED:
        _print_neighbours(screen, found, measures.centrality)
    for name, path in (("Edge list", save), ("Picture", plot)):
        if path is not None:
            screen.print(f"{name}: {path}")


def _title(kind: str, measures: "Measures") -> str:
    return f"{kind}: {counted(measures.agents, 'agent')}, {counted(measures.edges, 'link')}"


def _draw(path: Path, graph: "nx.Graph", measures: "Measures", kind: str) -> None:
    if measures.agents > _DRAWN:
        raise GraphError(f"a picture of {measures.agents:,} agents would show nothing; --plot draws up to {_DRAWN:,}")
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
        ("degree", span(degrees, "{:g}".format, "–"), "neighbours of an agent"),
        ("diameter", f"{measures.diameter}", "links between the two agents farthest apart"),
        ("density", digits(measures.density), "share of all pairs that are linked"),
        ("fiedler", digits(measures.fiedler), "algebraic connectivity: λ₂ of the Laplacian"),
        ("normalized_fiedler", digits(measures.normalized_fiedler), "fiedler / agents; 1 for the complete graph"),
        ("spectral_gap", digits(measures.spectral_gap), f"of W ({mixing}): disagreement removed in a round"),
        ("centrality", span(central, digits, "–"), "eigenvector centrality, least to most"),
        ("  of agent 0", digits(central[0]), "what `random --centrality` searches for"),
    ]
    targets = {
        "normalized_fiedler": wanted["fiedler"],
        "density": wanted["density"],
        "  of agent 0": wanted["centrality"],
    }
    goals = {name: f"wanted: {target:g}" for name, target in targets.items() if target is not None}
    _print_rows(screen, [(name, value, goals.get(name, meaning)) for name, value, meaning in rows])


def _print_rows(screen: Console, rows: Iterable[tuple[str, str, str]]) -> None:
    """Print measures, each with its name, value and meaning."""
    table = plain_table()
    table.add_column("measure", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("meaning")
    for name, value, meaning in rows:
        table.add_row(name, Text(value, style="bold"), meaning)
    print_apart(screen, table)


def _print_neighbours(screen: Console, graph: "nx.Graph", centrality: Sequence[float]) -> None:
    names = graph.graph.get("names")
    table = plain_table()
    table.add_column("agent", justify="right")
    if names:
        table.add_column("name", overflow="fold")
    table.add_column("neighbours", overflow="fold")
    table.add_column("centrality", no_wrap=True)
    most = max(centrality)
    for agent in graph:
        shown = Text.assemble(f"{centrality[agent]:.3f} ", (bar(centrality[agent] / most, _BAR_WIDTH), "cyan"))
        near = sorted(graph[agent])
        listed = list_agents(near, most=len(near)).replace(",", "")  # 1–3 5 8 9
        whom = [names[agent], " ".join(names[other] for other in near)] if names else [listed]
        table.add_row(str(agent), *whom, shown)
    screen.print(table)
    screen.print()


def _show_schedule(text: str, agents: int | None, seed: int, *, json: bool, plot: Path | None) -> None:
    """Print the measures of links that change, and draw the first rounds if asked."""
    from tacit.networks import measure_schedule
    from tacit.runs.specs import parse_schedule

    with working("building"):
        topology = parse_schedule(text, agents, seed)
        measures = measure_schedule(topology, _ROUNDS)
        links = f"{counted(measures.pairs, 'link')} in {counted(measures.rounds, 'round')}"
        title = f"{text}: {counted(measures.agents, 'agent')}, {links}"
        if plot is not None:
            _draw_schedule(plot, topology, title)
    if json:
        print_json({"kind": text, **measures.to_dict()})
        return
    screen = console()
    screen.print(Text(title, style="bold"))
    _print_rows(screen, _schedule_rows(measures, topology.period))
    if plot is not None:
        screen.print(f"Picture: {plot}")


def _schedule_rows(measures: "ScheduleMeasures", period: int | None) -> list[tuple[str, str, str]]:
    repeats = "rounds, after which the links repeat" if period is not None else "rounds measured; it never repeats"
    exact = measures.contraction == 0
    left = "exact average" if exact else "of disagreement left after these rounds, at worst"
    rows = [
        ("agents", f"{measures.agents:,}", "parties that hold data"),
        ("rounds", f"{measures.rounds:,}", repeats),
        ("window", f"{measures.window:,}", "rounds within which all agents are connected"),
        ("pairs", f"{measures.pairs:,}", "that exchange messages in some round"),
        ("neighbours", f"{measures.most_neighbors}", "that an agent hears in one exchange, at most"),
        ("messages", digits(measures.messages), "that an agent sends in a round, on average"),
        ("symmetric", "yes" if measures.symmetric else "no", "weights are equal in both directions, as peers need"),
        ("contraction", digits(measures.contraction), left),
    ]
    return rows if exact else [*rows, ("  of a round", digits(measures.of_a_round), "on average")]


def _draw_schedule(path: Path, topology: "Topology", title: str) -> None:
    from tacit.cli.terminal.pictures import SCHEDULE_AGENTS, draw_schedule

    if topology.agents > SCHEDULE_AGENTS:
        raise GraphError(
            f"a picture of {topology.agents:,} agents over several rounds would show nothing; --plot draws up to {SCHEDULE_AGENTS}"
        )
    save_picture(draw_schedule(topology, title=title), path)
