"""`tacit train` and `tacit resume`, with an option for every setting of a run. `train_playing` plays them."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from tacit.cli.terminal.options import RUN_PANEL, given_settings, settings_options, with_parameters
from tacit.cli.terminal.output import Json, Quiet, RunsFolder
from tacit.errors import InvalidInput
from tacit.runs.config import RunConfig

_HELP = """Train agents that never show each other their data, in a folder that survives anything.

Settings come from a TOML file, from options, or from both; options win. Defaults stand in brackets. What a file \
turns on, --no-… turns off, as in --no-tensorboard; a run's own config.toml is such a file.

--model, --loss, --algorithm, --dataset and --graph also take code of your own, as file.py:NAME or package.module:NAME.

Example: tacit train --algorithm dsgt --dataset digits --graph ring --epsilon 4 --delta 1e-3 --lot-size 48 --rounds \
100 --lr 4 --lr-final 0.4
"""


def _train(
    file: Path | None,
    name: str | None,
    runs: Path,
    budget: float | None,
    check: bool,
    json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    config = RunConfig.of({} if file is None else RunConfig.read(file), given_settings(options))
    if budget is not None and not config.private:
        raise InvalidInput(
            "--budget bounds what private runs spend; after a run without privacy nothing is promised of these records"
        )
    from tacit.cli.commands.train_playing import budget_of, check_settings, play
    from tacit.runs import Runner, fresh_name

    allowed = None if budget is None else budget_of(budget, config)
    name = name or fresh_name(runs, config)
    if check:
        check_settings(config, runs, shown=not (json or quiet))
    play(
        lambda say: Runner.start(runs, name, config, budget=allowed, on_step=say),
        runs / name,
        json=json,
        quiet=quiet,
    )


def make_train() -> Callable[..., None]:
    """Return the command with an option for every setting of a run."""

    def train(**options: Any) -> None:
        _train(**options)

    name = typer.Option(metavar="NAME", rich_help_panel=RUN_PANEL, help="name of the run; made up unless given")
    runs = typer.Option(metavar="FOLDER", rich_help_panel=RUN_PANEL, help="folder of all runs, with their ledger")
    budget = typer.Option(
        metavar="ε",
        rich_help_panel="Privacy",
        help="store in the ledger that all runs together may spend this, at this run's δ and adjacency",
    )
    check = typer.Option(
        "--check",
        metavar="",
        rich_help_panel="Privacy",
        help="check these settings first, as tacit audit does; a fault ends it",
    )
    json = typer.Option("--json", metavar="", rich_help_panel=RUN_PANEL, help="print the summary as JSON only")
    quiet = typer.Option("--quiet", "-q", metavar="", rich_help_panel=RUN_PANEL, help="show no plan and no progress")
    own = {
        "name": (Annotated[Optional[str], name], None),  # noqa: UP045
        "runs": (Annotated[Path, runs], Path("runs")),
        "budget": (Annotated[Optional[float], budget], None),  # noqa: UP045
        "check": (Annotated[bool, check], False),
        "json": (Annotated[bool, json], False),
        "quiet": (Annotated[bool, quiet], False),
    }
    file = typer.Argument(metavar="FILE", help="TOML file with settings")
    return with_parameters(
        train,
        {"file": (Annotated[Optional[Path], file], None), **settings_options(), **own},  # noqa: UP045
        _HELP,
    )


def resume(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder, or its name.")],
    runs: RunsFolder = Path("runs"),
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Go on with a run that was stopped or killed; no round is asked twice.

    A run from Python goes on, too, if all that it was given can be had by name; if not, this says how to resume it there.

    Example: tacit resume dsgt-digits-1
    """
    from tacit.runs import find_run

    path = find_run(run, runs)

    from tacit.cli.commands.train_playing import play
    from tacit.runs import Runner

    play(lambda say: Runner.resume(path, on_step=say), path, json=json, quiet=quiet)
