"""`tacit reproduce`: play one of the paper's experiments, or all of them, and set what is found beside its claims."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from tacit.cli.terminal.output import Json, Quiet
from tacit.errors import InvalidInput

_ALL = "all"


def reproduce(
    name: Annotated[str | None, typer.Argument(help="Experiment, or all; a list of them unless given.")] = None,
    profile: Annotated[
        Literal["smoke", "laptop", "paper"],
        typer.Option(metavar="SIZE", help="smoke (minutes, no trend), laptop (hours) or paper (a GPU machine)."),
    ] = "laptop",
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Play only points of this value, as in algorithm=dsgt. Repeatable."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", metavar="", help="Go on in a folder that has some of the points.")
    ] = False,
    results: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder of all results; each has one of its own in it.")
    ] = Path("results"),
    data_dir: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where data sets lie; TACIT_DATA unless given.")
    ] = None,
    device: Annotated[str, typer.Option(metavar="NAME", help="Where models are trained: cpu or cuda.")] = "cpu",
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Processes; as many as there are cores for long work unless given."),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Reproduce a figure or table of the paper, corrected, and say where it disagrees.

    Every finished point is kept; after a stop, the same command with --resume goes on. In the end the folder has the
    results (CSV, JSON), the figure (PNG, PDF) and the finding.

    Example: tacit reproduce connectivity --profile smoke
    """
    from tacit.cli.commands.reproduce_playing import How, play_all, print_experiments
    from tacit.experiments import EXPERIMENTS, load_experiment, parse_only

    if name is None:
        for option, given in (("--only", only), ("--resume", resume), ("--data-dir", data_dir)):
            if given:
                raise InvalidInput(f"{option} needs the name of an experiment, or all")
        print_experiments(as_json=json)
        return
    if name == _ALL and only:
        raise InvalidInput("--only restricts one experiment; name it instead of all")
    names = EXPERIMENTS if name == _ALL else (name,)
    experiments = [load_experiment(each) for each in names]
    how = How(
        profile=profile,
        only=parse_only(only or ()),
        resume=resume,
        results=results,
        data_dir=data_dir,
        device=device,
        workers=workers,
        json=json,
        shown=not (json or quiet),
    )
    play_all(experiments, how, asked=name)
