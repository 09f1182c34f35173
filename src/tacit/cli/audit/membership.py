"""`tacit audit membership`: the paper's attack, which asks the final models how well they know a record."""

from typing import Annotated, Literal

import typer

from tacit.cli.audit.shared import (
    PLAYING,
    SYSTEM,
    AsJson,
    Batch,
    Case,
    Compiled,
    Confidence,
    DataFolder,
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


def membership(
    ctx: typer.Context,
    algorithm: Annotated[
        Literal["sgd", "dsgd", "dsgt", "dinno", "all"],
        typer.Option(metavar="NAME", rich_help_panel=SYSTEM, help="sgd, dsgd, dsgt, dinno, or all of them in turn."),
    ] = "dsgd",
    dataset: Annotated[
        str, typer.Option(metavar="NAME", rich_help_panel=SYSTEM, help="Images: mnist, fashion-mnist, digits, cifar10.")
    ] = "mnist",
    data_dir: DataFolder = None,
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-2,
    lot_size: LotSize = 10.0,
    rounds: Rounds = 100,
    runs: Runs = 500,
    batch: Batch = 100,
    workers: Workers = None,
    confidence: Confidence = 0.95,
    compile: Annotated[
        Compiled,
        typer.Option(
            metavar="WHEN", rich_help_panel=PLAYING, help="Compile gradients: auto (long audits), true, false."
        ),
    ] = "auto",
    folder: Folder = None,
    json: AsJson = False,
    quiet: Silent = False,
) -> None:
    """The paper's attack: how well do the final models know a blank image?

    Three agents hold 100 images of one class each.

    The paper played 5,000 runs on a side (--runs 5000). After the first batch, the time left is told.

    After a stop, the same command with --folder goes on. Exit code 1 means that a claim is broken.

    Example: tacit audit membership --algorithm all --dataset digits --runs 200
    """
    how = How.of(ctx.params)

    def make() -> list[Case]:
        from tacit.cli.audit.cases import membership_cases

        return membership_cases(
            algorithm,
            dataset=dataset,
            data_dir=data_dir,
            epsilon=epsilon,
            delta=delta,
            lot_size=lot_size,
            rounds=rounds,
            compile=compile,
            runs_each=2 * how.runs / how.workers,
        )

    see_through(ctx, make, how, several=algorithm == "all")
