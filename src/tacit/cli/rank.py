"""`python -m tacit.cluster`: one rank of a run, which torchrun, a scheduler, Ray or `tacit train --workers` starts."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.terminal.command import Quiet, RunsFolder, option
from tacit.cli.terminal.errors import FAILED, errors_as_sentences
from tacit.cli.terminal.output import complain, note, print_json
from tacit.cli.terminal.play_run import play_run
from tacit.cluster.following import follow
from tacit.cluster.group import DEADLINE, LOST, Group
from tacit.cluster.launching import PIPE
from tacit.cluster.leading import Lead
from tacit.errors import InvalidInput, RankFailed, RankLost
from tacit.io.chains import parse
from tacit.privacy import Budget
from tacit.runs import Runner
from tacit.runs.config import RunConfig
from tacit.runs.folder import RunFolder

_FOUND = "found"
"""Where rank 0 says whether the run is finished already."""
_SAME_MISTAKE = 10.0
"""Seconds for which other ranks leave it to rank 0 to say that a command is wrong: torchrun then ends them, and one sentence is printed."""


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="TOML file with settings, the same for all ranks.")],
    name: Annotated[str, option("NAME", "Name of the run. It is resumed if its folder is there.")],
    runs: RunsFolder = Path("runs"),
    budget: Annotated[
        str | None, option("JSON", "Budget to store in the ledger, as tacit train passes it.", hidden=True)
    ] = None,
    deadline: Annotated[float, option("SECONDS", "Give up on a rank that has not answered for this long.")] = DEADLINE,
    json: Annotated[bool, option("", "Print the summary as JSON only.", "--json")] = False,
    quiet: Quiet = False,
) -> None:
    """Play the agents of one rank. Rank 0 shows what `tacit train` shows; the others are silent."""
    end_with_launcher()
    if os.environ.get("RANK", "0") != "0":
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # rank 0 stops the run
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    raise typer.Exit(play_rank(file, name, runs, budget=budget, deadline=deadline, json=json, quiet=quiet))


def play_rank(
    file: Path, name: str, runs: Path, *, budget: str | None, deadline: float, json: bool = False, quiet: bool = False
) -> int:
    """Join the other ranks and play this one to its end; return its exit code. Only rank 0 reports errors."""
    try:
        group = Group.join(deadline)
    except RankLost as error:
        complain(str(error))
        return LOST
    try:
        if group.rank:
            return _follow(group, file)
        _lead(group, file, name, runs, budget=budget, json=json, quiet=quiet)
        return 0
    except RankLost as error:
        if (why := group.explain_loss()) is not None:
            raise RankFailed(why) from None
        complain(str(error))
        return LOST
    except BaseException as error:
        group.fail(error)
        raise
    finally:
        group.close()


def _lead(group: Group, file: Path, name: str, runs: Path, *, budget: str | None, json: bool, quiet: bool) -> None:
    """Start the run, or resume it if it is there, and play it with the other ranks. A run that is finished stays as it is."""
    config = read_config(file, group.ranks).pinned()
    path, team = runs / name, Lead(group, config)
    there = (path / "config.toml").exists()
    if there:
        _check_same_settings(RunFolder(path), config)
    summary = RunFolder(path).summary()
    group.tell(_FOUND, {"finished": summary is not None})
    if summary is not None:  # as when all ranks start again because one of them died as it left
        if json:
            print_json(summary | {"run": str(path)})
        note(f"run {name!r} is finished already; nothing was done")
        return _leave(group)

    def begin(say: Callable[[str], None]) -> Runner:
        if there:
            return Runner.resume(path, on_step=say, team=team)
        allowed = None if budget is None else Budget.of_json(parse(budget))
        return Runner.start(runs, name, config, budget=allowed, on_step=say, team=team)

    try:
        play_run(begin, path, json=json, quiet=quiet)
    finally:
        if team.ended:
            _leave(group)


def _leave(group: Group) -> None:
    """Let all ranks leave. What has become of the run is on record, so one that dies now changes nothing."""
    try:
        group.leave()
    except (RankLost, RankFailed) as error:
        note(f"{group.explain_loss() or error}. This was after the end of the run, which is on record as it is")


def _check_same_settings(folder: RunFolder, given: RunConfig) -> None:
    """Refuse to resume a run with other settings than it began with: the other ranks play the given settings, not the folder's."""
    began = folder.config().model_dump(mode="json")
    for key, value in given.model_dump(mode="json").items():
        if began.get(key) != value:
            raise InvalidInput(
                f"run {folder.name!r} began with {key} = {began.get(key)!r}, but {key} is {value!r} now; resume it with the settings that it "
                "began with, or choose another name"
            )


def _follow(group: Group, file: Path) -> int:
    """Play a rank other than the first, and say nothing: rank 0 reports what it leaves in the store."""
    try:
        if not group.hear(_FOUND)["finished"]:
            follow(group, read_config(file, group.ranks).pinned())
        with suppress(RankLost):  # whatever becomes of rank 0, nothing is left to do here
            group.leave()
        return 0
    except (RankLost, RankFailed):
        if group.failure() is None:
            return LOST
    except BaseException as error:
        group.fail(error)
    if not group.playing:
        group.let_rank_0_speak()
    return FAILED


def read_config(file: Path, ranks: int) -> RunConfig:
    """Return the settings in a file, for this many ranks; a file with another number of workers is refused."""
    settings = RunConfig.read(file)
    if settings.get("workers", ranks) != ranks:
        raise InvalidInput(f"{file} says workers = {settings['workers']}, but {ranks} ranks were started; use as many")
    return RunConfig.of(settings | {"workers": ranks})


def end_with_launcher() -> None:
    """End this process when the one that started it is gone, so that no rank is left behind."""
    if (pipe := os.environ.get(PIPE)) is None:
        return

    def watch() -> None:
        os.read(int(pipe), 1)
        os._exit(LOST)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Run `python -m tacit.cluster`."""
    app, name = typer.Typer(pretty_exceptions_enable=False, add_completion=False), "python -m tacit.cluster"
    app.command()(command)
    try:
        with errors_as_sentences(lambda: name):
            try:
                code = typer.main.get_command(app)(prog_name=name, standalone_mode=False)
            except typer.TyperException:
                if os.environ.get("RANK", "0") != "0":
                    time.sleep(_SAME_MISTAKE)
                raise
    except typer.Exit as error:
        code = error.exit_code
    sys.exit(code or 0)
