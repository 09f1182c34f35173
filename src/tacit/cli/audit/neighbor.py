"""`tacit audit neighbor`: a record, the worst there is or a natural one, and a neighbour who sees what reaches it."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from tacit.cli.audit.shared import (
    PLAYING,
    SYSTEM,
    Agents,
    AsJson,
    Case,
    Confidence,
    Delta,
    Epsilon,
    Folder,
    Graph,
    How,
    LotSize,
    Records,
    Rounds,
    Rule,
    Runs,
    Silent,
    StepSize,
    Workers,
    see_through,
)
from tacit.errors import InvalidInput


def neighbor(
    ctx: typer.Context,
    algorithm: Rule = "dsgd",
    agents: Agents = None,
    graph: Graph = "complete",
    target: Annotated[
        int, typer.Option(metavar="AGENT", rich_help_panel=SYSTEM, help="Who holds the record, or does not.")
    ] = 0,
    observer: Annotated[
        list[int] | None,
        typer.Option(
            metavar="AGENT", rich_help_panel=SYSTEM, help="Who watches; may be repeated. A neighbour if unsaid."
        ),
    ] = None,
    canary: Annotated[
        Literal["worst", "blank"],
        typer.Option(metavar="RECORD", rich_help_panel=SYSTEM, help="worst, or blank: an image, and a network."),
    ] = "worst",
    dataset: Annotated[
        str | None,
        typer.Option(metavar="NAME", rich_help_panel=SYSTEM, help="blank: whose images are held; mnist if unsaid."),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", rich_help_panel=SYSTEM, help="blank: where it lies; TACIT_DATA unless given."),
    ] = None,
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-2,
    lot_size: LotSize = 10.0,
    records: Records = 100,
    rounds: Rounds = 100,
    lr: StepSize = 0.02,
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
    batch: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            rich_help_panel=PLAYING,
            help="Runs side by side, kept once done; 250 if unsaid and if they fit.",
        ),
    ] = None,
    workers: Workers = None,
    confidence: Confidence = 0.95,
    folder: Folder = None,
    json: AsJson = False,
    quiet: Silent = False,
) -> None:
    """A curious neighbour and the worst record there is: does more leak than is claimed?

    The neighbour sees all messages that reach it, and works out what it can.

    With --canary blank, a network learns images, and the record is a blank one. All answers must then be seen.

    After a stop, the same command with --folder goes on. Exit code 1 means that the claim is broken.

    Example: tacit audit neighbor --algorithm dsgt --graph ring --agents 5 --runs 5000
    """
    if canary == "worst":
        for name, value in (("--dataset", dataset), ("--data-dir", data_dir)):
            if value is not None:
                raise InvalidInput(f"{name} is about --canary blank; the worst record is in no data set")
    how = How.of(ctx.params)

    def make() -> list[Case]:
        from tacit.cli.audit.cases import neighbor_case

        case = neighbor_case(
            algorithm=algorithm,
            agents=agents,
            graph=graph,
            target=target,
            observers=observer or (),
            canary=canary,
            dataset=dataset,
            data_dir=data_dir,
            epsilon=epsilon,
            delta=delta,
            lot_size=lot_size,
            records=records,
            rounds=rounds,
            lr=lr,
            inner_steps=inner_steps,
            adam=adam,
            seed=seed,
            runs_each=2 * how.runs / how.workers,
        )
        return [case]

    see_through(ctx, make, how)
