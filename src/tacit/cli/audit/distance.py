"""`tacit audit distance`: how much a curious agent learns of others, by how far they are away in the graph."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tacit.cli.audit.shared import PLAYING, SYSTEM, AsJson, Delta, Epsilon, Graph, Rounds, SampleRate, StepSize
from tacit.cli.terminal.output import check_picture, console, messages, print_json, save_picture, working
from tacit.errors import InvalidInput, choose
from tacit.io.stopping import Stopping
from tacit.report.wording import counted

if TYPE_CHECKING:
    import networkx as nx

_AGENTS = 10
_RULES = ("dsgd", "dsgt", "dinno")
_SYMMETRIC = ("ring", "complete", "hypercube")


def distance(
    algorithm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", rich_help_panel=SYSTEM, help="dsgd, dsgt, dinno or all; may be repeated. \\[dsgd]"
        ),
    ] = None,
    agents: Annotated[
        int | None,
        typer.Option(metavar="N", rich_help_panel=SYSTEM, help=f"How many, {_AGENTS} if unsaid; a file knows its own."),
    ] = None,
    graph: Graph = "ring",
    observer: Annotated[
        list[int] | None,
        typer.Option(
            metavar="AGENT", rich_help_panel=SYSTEM, help="Who watches; if repeated, all of them together. \\[0]"
        ),
    ] = None,
    targets: Annotated[
        Literal["nearest", "all"] | None,
        typer.Option(
            metavar="WHOM",
            rich_help_panel=SYSTEM,
            help="nearest: one at each distance; or all others. If unsaid, nearest where those at one distance are alike.",
        ),
    ] = None,
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-2,
    sample_rate: SampleRate = 0.1,
    rounds: Rounds = 100,
    lr: StepSize = 0.05,
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", rich_help_panel=PLAYING, help="Of the runs, and of random graphs.")
    ] = 0,
    runs: Annotated[
        int, typer.Option(metavar="N", rich_help_panel=PLAYING, help="Runs with a record, and as many without.")
    ] = 20_000,
    confidence: Annotated[
        float, typer.Option(metavar="SHARE", rich_help_panel=PLAYING, help="That a bound holds, each on its own.")
    ] = 0.95,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", rich_help_panel=PLAYING, help="Draw it: png, pdf or svg.")
    ] = None,
    json: AsJson = False,
) -> None:
    """How much does a curious agent learn of others, near and far?

    Nothing is trained: what reaches an agent follows from the rule and the graph.

    The shares seen are exact. ε is what an attack on so many drawn runs proves; more may leak than it shows.

    There is no verdict, and no file is written but the picture.

    Example: tacit audit distance --algorithm all --graph ring --agents 12 --plot leaks.png
    """
    check_picture(plot)
    asked = {choose("algorithm", name, (*_RULES, "all")) for name in algorithm or ["dsgd"]}
    chosen = [rule for rule in _RULES if asked & {rule, "all"}]
    with Stopping(messages().print) as stopping:
        try:
            with working("preparing"):
                from tacit.cli.audit.distance_output import print_leaks
                from tacit.cli.audit.systems import make_graph, plain_dinno

                links = make_graph(graph, agents, seed, default=_AGENTS)
            watching = sorted(set(observer or [0]))
            whom = targets or ("nearest" if _alike(graph, watching) else "all")
            found = {}
            for rule in chosen:
                with working(f"{rule}: playing"):
                    found[rule] = _leaks(
                        rule,
                        links,
                        watching,
                        nearest=whom == "nearest",
                        rounds=rounds,
                        lr=lr,
                        epsilon=epsilon,
                        delta=delta,
                        sample_rate=sample_rate,
                        runs=runs,
                        confidence=confidence,
                        seed=seed,
                    )
        except KeyboardInterrupt:
            messages().print("stopped; nothing is kept")
            raise typer.Exit(stopping.exit_code) from None
    title = (
        f"What {_named(watching)} can learn: {Path(graph).name} of {counted(len(links), 'agent')} · {rounds:,} rounds"
    )
    shown: dict[str, Any] = {"title": title, "epsilon": epsilon, "delta": delta, "confidence": confidence, "runs": runs}
    if plot is not None:
        from tacit.cli.audit.picture import draw_leaks

        save_picture(draw_leaks(found, **shown), plot)
    if json:
        settings: dict[str, Any] = {
            "rounds": rounds,
            "lr": lr,
            "sample_rate": sample_rate,
            "runs": runs,
            "seed": seed,
            "targets": whom,
        }
        if "dinno" in found:
            settings |= {"dinno": plain_dinno()}
        claim = {"epsilon": epsilon, "delta": delta, "adjacency": "add_remove"}
        system = {"graph": graph, "agents": len(links), "observers": watching, "claimed": claim}
        print_json({**system, "confidence": confidence, "settings": settings, "algorithms": found})
        return
    print_leaks(found, **shown)
    if plot is not None:
        console().print(f"Picture: {plot}", soft_wrap=True)


def _alike(graph: str, observers: Sequence[int]) -> bool:
    """Whether one observer sees the same of all agents at one distance, by the kind of graph. Of most tori it does not."""
    return len(observers) == 1 and graph.strip().replace("-", "_") in _SYMMETRIC


def _leaks(
    rule: str, graph: "nx.Graph", observers: Sequence[int], *, nearest: bool, runs: int, rounds: int, **options: Any
) -> list[dict[str, Any]]:
    from tacit.audit.bounds.findings import LEAST_RUNS
    from tacit.audit.bounds.rates import check_terms
    from tacit.audit.linear.distance import leaks, nearest_at_each_distance
    from tacit.cli.audit.systems import at_least, check_agents, make_rule

    at_least(LEAST_RUNS, runs=runs)
    at_least(1, rounds=rounds)
    check_terms(options["delta"], options["confidence"], positive=True)
    check_agents(graph, "observer", observers)
    if len(graph) == len(observers):
        raise InvalidInput("everyone watches, and nobody is left to be watched")
    targets = nearest_at_each_distance(graph, observers) if nearest else None
    found = leaks(make_rule(rule), graph, observers, targets=targets, rounds=rounds, runs=runs, **options)
    return [leak.to_json() for leak in found]


def _named(observers: Sequence[int]) -> str:
    from tacit.report.wording import agents as listed

    return f"agent {observers[0]}" if len(observers) == 1 else f"agents {listed(list(observers))} together"
