"""`tacit audit neighbor`: the worst record there is, and a neighbour who sees what its place in the graph shows it."""

from typing import Annotated, Literal

import typer

from tacit.cli.audit_shared import (
    SYSTEM,
    AsJson,
    Batch,
    Case,
    Confidence,
    Delta,
    Epsilon,
    Folder,
    How,
    LotSize,
    Rounds,
    Runs,
    Silent,
    Workers,
    see_through,
)


def neighbor(
    ctx: typer.Context,
    algorithm: Annotated[
        Literal["dsgd", "dsgt", "dinno"],
        typer.Option(metavar="NAME", rich_help_panel=SYSTEM, help="dsgd, dsgt or dinno."),
    ] = "dsgd",
    agents: Annotated[
        int | None,
        typer.Option(metavar="N", rich_help_panel=SYSTEM, help="How many, 3 if unsaid; a file knows its own."),
    ] = None,
    graph: Annotated[
        str, typer.Option(metavar="KIND", rich_help_panel=SYSTEM, help="A kind such as ring, or a file.")
    ] = "complete",
    target: Annotated[
        int, typer.Option(metavar="AGENT", rich_help_panel=SYSTEM, help="Who holds the record, or does not.")
    ] = 0,
    observer: Annotated[
        list[int] | None,
        typer.Option(
            metavar="AGENT", rich_help_panel=SYSTEM, help="Who watches; may be repeated. A neighbour if unsaid."
        ),
    ] = None,
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-2,
    lot_size: LotSize = 10.0,
    records: Annotated[int, typer.Option(metavar="N", rich_help_panel=SYSTEM, help="Records of every agent.")] = 100,
    rounds: Rounds = 100,
    lr: Annotated[float, typer.Option(metavar="NUMBER", rich_help_panel=SYSTEM, help="Step size.")] = 0.02,
    inner_steps: Annotated[
        int | None,
        typer.Option(metavar="N", rich_help_panel=SYSTEM, help="dinno: steps, and queries, a round; 1 if unsaid."),
    ] = None,
    adam: Annotated[
        bool | None,
        typer.Option("--adam/--plain", metavar="", rich_help_panel=SYSTEM, help="dinno: inner step; plain if unsaid."),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", rich_help_panel=SYSTEM, help="Of other records, and random graphs.")
    ] = 0,
    runs: Runs = 1000,
    batch: Batch = 250,
    workers: Workers = None,
    confidence: Confidence = 0.95,
    folder: Folder = None,
    json: AsJson = False,
    quiet: Silent = False,
) -> None:
    """A curious neighbour and the worst record there is: does more leak than is claimed?

    The neighbour sees all messages that reach it, and works out what it can.

    After a stop, the same command with --folder goes on. Exit code 1 means that the claim is broken.

    Example: tacit audit neighbor --algorithm dsgt --graph ring --agents 5 --runs 5000
    """

    def make() -> list[Case]:
        from tacit.cli.audit_cases import neighbor_case

        case = neighbor_case(
            algorithm=algorithm,
            agents=agents,
            graph=graph,
            target=target,
            observers=observer or (),
            epsilon=epsilon,
            delta=delta,
            lot_size=lot_size,
            records=records,
            rounds=rounds,
            lr=lr,
            inner_steps=inner_steps,
            adam=adam,
            seed=seed,
        )
        return [case]

    see_through(ctx, make, How.of(ctx.params))
