"""What `tacit train` and `tacit resume` share: they print the plan, play the run with its progress, and print its summary.

Ctrl-C and SIGTERM stop between two rounds and save; a second one stops at once, which loses only the current round.
"""

import shlex
from collections.abc import Callable
from pathlib import Path

import typer
from rich.console import Console

from tacit.cli.terminal.output import console, messages, note, print_json
from tacit.cli.terminal.plan import plan_tables
from tacit.cli.terminal.progress import show_rounds, show_steps
from tacit.cli.terminal.summary import print_summary
from tacit.errors import RuleError, StorageError
from tacit.io.stopping import Stopping
from tacit.runs import Runner
from tacit.runs.resuming import after_failure
from tacit.runs.specs import flattened
from tacit.training.results import Result

Begin = Callable[[Callable[[str], None]], Runner]


def play_run(begin: Begin, path: Path, *, json: bool, quiet: bool) -> None:
    """Begin or resume a run in the folder `path`, and play it to its end."""
    shown, screen = not (json or quiet), messages()
    resume = f"Resume with: tacit resume {shlex.quote(str(path))}"
    with Stopping(screen.print) as stopping:
        try:
            with show_steps(screen, shown) as say:
                runner = begin(say)
        except KeyboardInterrupt:
            did, then = ("no query was made", f". {resume}") if path.exists() else ("nothing was started", "")
            screen.print(f"{did}, and nothing was spent{then}")
            raise typer.Exit(stopping.exit_code) from None
        try:
            result = _play_rounds(runner, stopping, screen, shown)
        except StorageError as error:
            raise StorageError(f"{error}. What is on disk stays valid. {resume}") from error
        except RuleError as error:
            raise RuleError(f"{error}. {after_failure(error, path, runner.config)}") from error.__cause__
        except KeyboardInterrupt:
            where = f"in round {runner.session.round + 1:,} of {runner.config.total_rounds:,}"
            screen.print(f"stopped at once, {where}. {resume}")
            raise typer.Exit(stopping.exit_code) from None
    if result is None:
        where = f"after round {runner.session.round:,} of {runner.config.total_rounds:,}"
        screen.print(f"stopped {where}, and saved. {resume}")
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
            for table in plan_tables(runner):
                console().print(table, "")
        with show_rounds(runner, screen, shown) as update:
            return runner.play(stop=stop, on_round=update)
