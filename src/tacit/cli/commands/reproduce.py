"""`tacit reproduce`: play one of the paper's experiments, or all of them, and compare the findings with its claims."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from tacit.cli.terminal.command import DataFolder, Json, Options, Quiet, command_of, option
from tacit.errors import InvalidInput

_ALL = "all"
_WORTH_PROCESSES = 120.0  # seconds of work


@dataclass(frozen=True, kw_only=True)
class Reproduce(Options):
    """Reproduce a figure or table of the paper, corrected, and say where it disagrees.

    Every finished point is kept; after a stop, the same command with --resume continues. At the end the folder has the
    results (CSV, JSON), the figure (PNG, PDF) and the finding.

    Example: tacit reproduce connectivity --profile smoke
    """

    name: Annotated[str | None, typer.Argument(help="An experiment, or all; if neither is given, they are listed.")] = (
        None
    )
    profile: Annotated[
        Literal["smoke", "laptop", "paper"],
        option("SIZE", "smoke (minutes, no trend), laptop (hours) or paper (a GPU machine)."),
    ] = "laptop"
    only: Annotated[
        list[str] | None, option("KEY=VALUE", "Play only points with this value, as in algorithm=dsgt. Repeatable.")
    ] = None
    results: Annotated[Path, option("FOLDER", "Folder of all results, with one folder for each experiment.")] = Path(
        "results"
    )
    data_dir: DataFolder = None
    device: Annotated[str, option("NAME", "Where models are trained: cpu or cuda.")] = "cpu"
    workers: Annotated[int | None, option("N", "Processes; default: one per core if it takes long.", min=1)] = None
    json: Json = False
    quiet: Quiet = False
    resume: Annotated[bool, option("", "Continue in a folder that has some of the points.", "--resume")] = False

    def run(self) -> None:
        """List the experiments, or play those that are asked for."""
        from tacit.cli.commands.reproduce_points import play_all, print_experiments
        from tacit.experiments import EXPERIMENTS, load_experiment

        if self.name is None:
            for flag, given in (("--only", self.only), ("--resume", self.resume), ("--data-dir", self.data_dir)):
                if given:
                    raise InvalidInput(f"{flag} needs the name of an experiment, or all")
            print_experiments(as_json=self.json)
            return
        if self.name == _ALL and self.only:
            raise InvalidInput("--only restricts one experiment; name it instead of all")
        play_all([load_experiment(each) for each in (EXPERIMENTS if self.name == _ALL else (self.name,))], self)

    @property
    def shown(self) -> bool:
        """Whether progress is shown."""
        return not (self.json or self.quiet)

    def workers_for(self, seconds: float) -> int:
        """Return how many processes to use for work that takes this long on one core; each needs some seconds to start."""
        if self.workers is not None or self.device != "cpu" or seconds < _WORTH_PROCESSES:
            return self.workers or 1
        return os.cpu_count() or 1


command = command_of(Reproduce)
