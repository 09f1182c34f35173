"""`tacit resume`: continue a run that was stopped or killed."""

from pathlib import Path
from typing import Any

from tacit.cli.terminal.command import Json, NamedRun, Quiet, RunsFolder
from tacit.runs import RunFolder, find_run
from tacit.runs.config import RunConfig


def command(run: NamedRun, runs: RunsFolder = Path("runs"), json: Json = False, quiet: Quiet = False) -> None:
    """Resume a run that was stopped or killed; no query is made twice.

    A run that was started from Python can be resumed here if everything it was given can be imported by name; if not, the error
    says how to resume it from Python.

    Example: tacit resume dsgt-digits-1
    """
    path = find_run(run, runs)

    from tacit.cli.terminal.play_run import play_run
    from tacit.runs import Runner
    from tacit.runs.resume_checks import check_unfinished

    folder = RunFolder.find(path)
    config = folder.config()
    if isinstance(config, RunConfig) and config.workers is not None:
        check_unfinished(folder)
        from tacit.cli.terminal.play_workers import WorkersRun
        from tacit.cluster.group import DEADLINE
        from tacit.cluster.launching import RESTARTS

        terms: dict[str, Any] = {"restarts": RESTARTS, "deadline": DEADLINE, "json": json, "quiet": quiet}
        WorkersRun(config=config, path=path, **terms).play_here()
    play_run(lambda say: Runner.resume(path, on_step=say), path, json=json, quiet=quiet)
