"""`tacit train`, with an option for every setting of a run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.terminal.command import option
from tacit.cli.terminal.options import RUN_PANEL, given_settings, with_settings
from tacit.cli.terminal.output import FOUND_FAULT, complain, console, working
from tacit.errors import InvalidInput, PrivacyError
from tacit.runs.config import RunConfig

if TYPE_CHECKING:
    from tacit.privacy import Budget


@with_settings
def command(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="TOML file with settings")] = None,
    name: Annotated[str | None, option("NAME", "name of the run; default: a new one", panel=RUN_PANEL)] = None,
    runs: Annotated[Path, option("FOLDER", "folder of all runs, with their ledger", panel=RUN_PANEL)] = Path("runs"),
    budget: Annotated[
        float | None,
        option(
            "ε",
            "store in the ledger that all runs together may spend this, at this run's δ and adjacency",
            panel="Privacy",
        ),
    ] = None,
    budget_against: Annotated[
        str,
        option(
            "K|all",
            "whom --budget limits ε against: any K curious agents together, or all others",
            "--budget-against",
            panel="Privacy",
        ),
    ] = "all",
    check: Annotated[
        bool,
        option(
            "", "check these settings first, as tacit audit does; end if there is a fault", "--check", panel="Privacy"
        ),
    ] = False,
    json: Annotated[bool, option("", "print the summary as JSON only", "--json", panel=RUN_PANEL)] = False,
    quiet: Annotated[bool, option("", "show no plan and no progress", "--quiet", "-q", panel=RUN_PANEL)] = False,
    **settings: Any,
) -> None:
    """Train agents that never show each other their data, in a folder that survives crashes.

    Settings come from a TOML file, from options, or from both; options win. Defaults are in brackets. A setting that a file turns on
    is turned off by --no-…, as in --no-tensorboard. The config.toml of any run is such a file.

    --model, --loss, --algorithm, --dataset and --graph also take code of your own, as file.py:NAME or package.module:NAME.

    Example: tacit train --algorithm dsgt --dataset digits --graph ring --epsilon 4 --delta 1e-3 --lot-size 48 --rounds 100 --lr 4 --lr-final 0.4
    """
    config = RunConfig.of({} if file is None else RunConfig.read(file), given_settings(settings))
    allowed = _make_budget(budget, budget_against, config)
    from tacit.cli.terminal.play_run import play_run
    from tacit.runs import Runner, fresh_name

    name = name or fresh_name(runs, config)
    if check:
        _check_settings(config, runs, shown=not (json or quiet))
    play_run(
        lambda say: Runner.start(runs, name, config, budget=allowed, on_step=say), runs / name, json=json, quiet=quiet
    )


def _make_budget(epsilon: float | None, against: str, config: RunConfig) -> "Budget | None":
    """Return the budget of all runs, in the terms of this run; None if none is given."""
    from tacit.privacy import Budget, Observer

    if epsilon is None:
        if against != "all":
            raise InvalidInput("--budget-against says whom a budget limits ε against, and --budget is missing")
        return None
    try:
        observer = Observer.of_key(against)
    except PrivacyError:
        raise InvalidInput(f"--budget-against is {against!r}; give a number of curious agents, or all") from None
    if not config.private:
        raise InvalidInput(
            "--budget limits what private runs spend; after a run without privacy nothing is promised about these records"
        )
    terms: dict[str, Any] = {"delta": config.delta, "adjacency": config.adjacency, "accountant": config.accountant}
    return Budget(epsilon=epsilon, observer=observer, **terms)


def _check_settings(config: RunConfig, runs: Path, *, shown: bool) -> None:
    """Check the settings, keep the outcome for the run that follows, and end if there is a fault."""
    from tacit.audit.detectors.check import FALSE_ALARM
    from tacit.cli.audit.check import check_case, print_check

    with working("checking settings"):
        case = check_case(config, Path("these settings"), FALSE_ALARM, runs)
        found = case.play()
    if shown:
        print_check({"attack": case.description, **found}, None)
        console().print()
    if found["failed"]:
        complain(f"the check found a fault ({', '.join(found['failed'])}); no query was made, and nothing was spent")
        raise typer.Exit(FOUND_FAULT)
