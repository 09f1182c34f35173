"""`tacit train`, with an option for every setting of a run."""

from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tacit.cli.audit.check import check_case
from tacit.cli.terminal.budgets import BudgetAgainst, BudgetOfRuns, make_budget
from tacit.cli.terminal.command import Json, Quiet, RunsFolder, option
from tacit.cli.terminal.options import PRIVACY, RUN, given_settings, with_settings
from tacit.cli.terminal.output import FOUND_FAULT, complain, console, working
from tacit.errors import InvalidInput
from tacit.registry import DATA_SETS, GRAPHS, MODELS, RULES, SCHEDULES
from tacit.runs.config import RunConfig
from tacit.runs.folder import RunFolder

Where = Literal["here", "ray"]
_OPTION_OF = {
    **dict.fromkeys((*DATA_SETS, "synthetic"), "--dataset"),
    **dict.fromkeys(MODELS, "--model"),
    **dict.fromkeys((*GRAPHS, *SCHEDULES), "--graph"),
    **dict.fromkeys(RULES, "--algorithm"),
}
"""The option for each name that might be given where a file is expected."""


@with_settings(own=RUN)
def command(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="TOML file with settings")] = None,
    name: Annotated[str | None, option("NAME", "Name of the run; default: a new one.")] = None,
    runs: RunsFolder = Path("runs"),
    budget: BudgetOfRuns = None,
    budget_against: BudgetAgainst = "all",
    check: Annotated[
        bool,
        option(
            "", "Check these settings first, as tacit audit does; end if there is a fault.", "--check", panel=PRIVACY
        ),
    ] = False,
    on: Annotated[
        Where,
        option("WHERE", "with --workers: on this machine (here), or on the workers of a Ray cluster"),
    ] = "here",
    restarts: Annotated[int, option("N", "with --workers: how often all start again when one is killed", min=0)] = 3,
    deadline: Annotated[
        float,
        option("SECONDS", "with --workers: give up on one that has not answered for this long", min=1),
    ] = 600,
    json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Train agents that never show each other their data, in a folder that survives crashes.

    Settings come from a TOML file, from options, or from both; options win. Defaults are in brackets. A setting that a file turns on
    is turned off by --no-…, as in --no-tensorboard. The config.toml of any run is such a file.

    --model, --loss, --algorithm, --dataset and --graph also take code of your own, as file.py:NAME or package.module:NAME.

    Example: tacit train --algorithm dsgt --dataset digits --graph ring --epsilon 4 --delta 1e-3 --lot-size 48 --rounds 100 --lr 4 --lr-final 0.4
    """
    config = RunConfig.of({} if file is None else _read_settings(file), given_settings(settings))
    allowed = make_budget(budget, budget_against, config)
    from tacit.cli.terminal.play_run import play_run
    from tacit.runs import Runner, fresh_name

    name = name or fresh_name(runs, config)
    if check:
        _check_settings(config, runs, shown=not (json or quiet))
    if config.workers is not None:
        from tacit.cli.terminal.play_workers import WorkersRun

        RunFolder.unused(runs, name)  # ranks resume a run that is there
        where: dict[str, Any] = {"config": config, "path": runs / name, "budget": allowed}
        run = WorkersRun(**where, restarts=restarts, deadline=deadline, json=json, quiet=quiet)
        run.play_on_ray() if on == "ray" else run.play_here()
    if on == "ray":
        raise InvalidInput("--on ray needs --workers, the number of Ray's workers that share the agents")
    play_run(
        lambda say: Runner.start(runs, name, config, budget=allowed, on_step=say), runs / name, json=json, quiet=quiet
    )


def _read_settings(file: Path) -> dict[str, Any]:
    """Return the settings in a file. Where there is no such file, but a part has such a name, say which option takes it."""
    name, colon, behind = str(file).partition(":")
    near = get_close_matches(name, _OPTION_OF, n=1, cutoff=0.8)
    if near and not file.exists():
        meant = f"{_OPTION_OF[near[0]]} {near[0]}{colon}{behind}"
        raise InvalidInput(f"there is no file {file} with settings; did you mean {meant}?")
    return RunConfig.read(file)


def _check_settings(config: RunConfig, runs: Path, *, shown: bool) -> None:
    """Check the settings, keep the outcome for the run that follows, and end if there is a fault."""
    from tacit.audit.detectors.check import FALSE_ALARM
    from tacit.cli.audit.printing import print_audit

    with working("checking settings"):
        case = check_case(config, Path("these settings"), FALSE_ALARM, runs)
        found = case.play()
    if shown:
        print_audit({"attack": case.description, **found}, None)
        console().print()
    if found["failed"]:
        complain(f"the check found a fault ({', '.join(found['failed'])}); no query was made, and nothing was spent")
        raise typer.Exit(FOUND_FAULT)
