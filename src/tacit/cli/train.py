"""`tacit train` and `tacit resume`: show the plan, then the run as it goes, and end with what came of it.

Ctrl-C and SIGTERM stop between two rounds and save; a second one stops at once, which loses nothing but the round.
"""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from rich.console import Console

from tacit.cli.audit_shared import BROKEN
from tacit.cli.options import RUN_PANEL, given_settings, settings_options, with_parameters
from tacit.cli.output import Json, Quiet, RunsFolder, complain, console, messages, note, print_json, working
from tacit.cli.plan import plan_tables
from tacit.cli.progress import playing, starting
from tacit.cli.stopping import Stopping
from tacit.cli.summary import print_summary
from tacit.config import RunConfig
from tacit.errors import InvalidInput, StorageError
from tacit.privacy import Budget
from tacit.results import Result
from tacit.runs import Runner, find_run, fresh_name
from tacit.specs import flattened

Begin = Callable[[Callable[[str], None]], Runner]

_HELP = """Train agents that never show each other their data, in a folder that survives anything.

Settings come from a TOML file, from options, or from both; options win. Defaults stand in brackets. What a file \
turns on, --no-… turns off, as in --no-tensorboard; a run's own config.toml is such a file.

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
    allowed = _budget(budget, config)
    name = name or fresh_name(runs, config)
    if check:
        _check(config, runs, shown=not (json or quiet))
    _play(
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

    Example: tacit resume dsgt-digits-1
    """
    path = find_run(run, runs)
    _play(lambda say: Runner.resume(path, on_step=say), path, json=json, quiet=quiet)


def _budget(epsilon: float | None, config: RunConfig) -> Budget | None:
    """Return the budget for all runs, in this run's terms."""
    if epsilon is None:
        return None
    if not config.private:
        raise InvalidInput(
            "--budget bounds what private runs spend; after a run without privacy nothing is promised of these records"
        )
    return Budget(epsilon=epsilon, delta=config.delta, adjacency=config.adjacency, accountant=config.accountant)


def _check(config: RunConfig, runs: Path, *, shown: bool) -> None:
    """Check the settings, keep the outcome for the run that follows, and end where a fault was found."""
    from tacit.audit.checking import FALSE_ALARM
    from tacit.cli.audit_check import check_case
    from tacit.cli.audit_check_output import print_check

    with working("checking settings"):
        case = check_case(config, Path("these settings"), false_alarm=FALSE_ALARM, runs=runs)
        found = case.play()
    if shown:
        print_check({"attack": case.told, **found}, None)
        console().print()
    if found["failed"]:
        complain(f"the check found a fault ({', '.join(found['failed'])}); nothing was asked, and nothing was spent")
        raise typer.Exit(BROKEN)


def _play(begin: Begin, path: Path, *, json: bool, quiet: bool) -> None:
    """Begin a run, or go on with one, in the folder `path`, and see it through."""
    shown, screen = not (json or quiet), messages()
    go_on = f"Go on with: tacit resume {shlex.quote(str(path))}"
    with Stopping(screen) as stopping:
        try:
            with starting(screen, shown) as say:
                runner = begin(say)
        except KeyboardInterrupt:
            did, then = ("asked", f". {go_on}") if path.exists() else ("started", "")
            screen.print(f"nothing was {did}, and nothing was spent{then}", soft_wrap=True)
            raise typer.Exit(stopping.exit_code) from None
        try:
            result = _play_rounds(runner, stopping, screen, shown)
        except StorageError as error:
            raise StorageError(f"{error}. What is on disk stays good. {go_on}") from error
        except KeyboardInterrupt:
            where = f"in round {runner.session.round + 1} of {runner.config.rounds}"
            screen.print(f"stopped at once, {where}. {go_on}", soft_wrap=True)
            raise typer.Exit(stopping.exit_code) from None
    if result is None:
        where = f"after round {runner.session.round} of {runner.config.rounds}"
        screen.print(f"stopped {where}, and saved. {go_on}", soft_wrap=True)
        raise typer.Exit(stopping.exit_code)
    summary = runner.folder.summary() or {}
    if json:
        print_json(summary | {"run": str(path)})
    else:
        print_summary(runner, summary)


def _play_rounds(runner: Runner, stopping: Stopping, screen: Console, shown: bool) -> Result | None:
    with runner:
        stop = stopping.let_rounds_end()
        if shown:
            thin = flattened(runner.config.graph, runner.config.agents)
            if runner.session.training.graph is not None and thin is not None:
                note(thin)
            console().print(*plan_tables(runner))
        with playing(runner, screen, shown) as update:
            return runner.play(stop=stop, on_round=update)
