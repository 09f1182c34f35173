"""`tacit audit one-run`: many canaries in a single run, and an attacker who guesses which of them are in."""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tacit.cli.audit.once import NewFolder, Single, see_once
from tacit.cli.audit.shared import (
    PLAYING,
    SYSTEM,
    AsJson,
    Confidence,
    DataFolder,
    Delta,
    Epsilon,
    Rounds,
    Rule,
    SampleRate,
    StepSize,
)
from tacit.errors import InvalidInput

_WORST, _NATURAL = 1000, 200  # canaries


def one_run(
    algorithm: Rule = "dsgd",
    dataset: Annotated[
        str | None,
        typer.Option(metavar="NAME", rich_help_panel=SYSTEM, help="Images, such as digits; the worst case if unsaid."),
    ] = None,
    data_dir: DataFolder = None,
    canaries: Annotated[
        int | None,
        typer.Option(metavar="N", rich_help_panel=SYSTEM, help=f"{_WORST} if unsaid, {_NATURAL} with a data set."),
    ] = None,
    sees: Annotated[
        Literal["answers", "models"],
        typer.Option(metavar="WHAT", rich_help_panel=SYSTEM, help="answers of agent 0, or models at the end."),
    ] = "answers",
    epsilon: Epsilon = 8.0,
    delta: Delta = 1e-5,
    sample_rate: SampleRate = 1.0,
    records: Annotated[int, typer.Option(metavar="N", rich_help_panel=SYSTEM, help="Other records, each agent.")] = 100,
    rounds: Rounds = 10,
    lr: StepSize = 0.5,
    guesses: Annotated[
        int | None,
        typer.Option(metavar="N", rich_help_panel=PLAYING, help="The surest ones; a third of the canaries if unsaid."),
    ] = None,
    confidence: Confidence = 0.95,
    seed: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", rich_help_panel=PLAYING, help="Of the coins; drawn afresh unless given."),
    ] = None,
    folder: NewFolder = None,
    json: AsJson = False,
) -> None:
    """Many canaries in one run: how many can an attacker tell to be in or out?

    Each canary is put in or left out by a coin. The bound is weaker than that of many runs, but one run is enough.

    With a data set, canaries are images with wrong labels, and a small network learns.

    --guesses must be chosen before the outcome is seen. Exit code 1 means that the claim is broken.

    Example: tacit audit one-run --dataset digits --epsilon 8 --canaries 300
    """
    if data_dir is not None and dataset is None:
        raise InvalidInput("--data-dir is about --dataset; the worst canaries are in no data set")

    def make() -> Single:
        from tacit.cli.audit.one_run_case import one_run_case

        return one_run_case(
            algorithm=algorithm,
            dataset=dataset,
            data_dir=data_dir,
            canaries=(_WORST if dataset is None else _NATURAL) if canaries is None else canaries,
            guesses=guesses,
            sees=sees,
            epsilon=epsilon,
            delta=delta,
            sample_rate=sample_rate,
            records=records,
            rounds=rounds,
            lr=lr,
            confidence=confidence,
            seed=secrets.randbits(31) if seed is None else seed,
        )

    see_once(make, _show, folder=folder, json=json)


def _show() -> Callable[[dict[str, Any], Path], None]:
    from tacit.cli.audit.once_output import print_guesses

    return print_guesses
