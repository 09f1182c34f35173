"""`tacit audit FILE.toml`: the cheap detectors, on the settings of a run file, with made-up records."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.audit.once import Document, NewFolder, Single, see_once
from tacit.cli.audit.shared import PLAYING, AsJson
from tacit.cli.terminal.output import RunsFolder

if TYPE_CHECKING:
    from tacit.runs.config import RunConfig


def check(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="Settings, as tacit train takes them.")],
    false_alarm: Annotated[
        float,
        typer.Option(metavar="SHARE", rich_help_panel=PLAYING, help="Of checks that find a fault in sound settings."),
    ] = 1e-4,
    runs: RunsFolder = Path("runs"),
    folder: NewFolder = None,
    json: AsJson = False,
) -> None:
    """Check the settings of a run: model, loss, data shape, rule and promise.

    One record's influence, bits, noise and lots are measured on made-up records, in about a minute. No private record is
    read and no budget is spent. The outcome is kept beside the runs, where tacit train and tacit report find it.

    Exit code 1 means that a fault was found.

    Example: tacit audit runs/dsgt-digits-1/config.toml
    """

    def make() -> Single:
        from tacit.runs.config import RunConfig

        return check_case(RunConfig.of(RunConfig.read(file)), file, false_alarm=false_alarm, runs=runs)

    see_once(make, _show, folder=folder, json=json)


def check_case(config: "RunConfig", file: Path, *, false_alarm: float, runs: Path) -> Single:
    """Return the check of some settings; playing it also keeps the outcome beside the runs, and in the run of the file."""
    from tacit.audit.detectors.check import check as run_check
    from tacit.audit.detectors.run_files import training_of
    from tacit.runs.checks import check_event, keep_check
    from tacit.runs.folder import RunFolder

    config = config.pinned()
    training, shape = training_of(config)

    def play() -> Document:
        found = run_check(training, false_alarm=false_alarm).to_json()
        event = check_event(config, found)
        own = RunFolder(file.parent)
        is_a_run = file.resolve() == own.config_file.resolve() and own.events_file.is_file()
        keep_check(own.path.parent if is_a_run else runs, event)
        if is_a_run and not own.is_running:
            own.log(event)
        return found

    told = {
        "kind": "check",
        "title": "Check of settings",
        "about": f"{file} · {shape}",
        "algorithm": config.algorithm,
        "agents": training.data.agents,
    }
    return Single(play=play, settings={"audit": "check", "false_alarm": false_alarm, **_plain(config)}, told=told)


def _plain(config: "RunConfig") -> dict[str, Any]:
    return config.model_dump(exclude_none=True)


def _show() -> Callable[[Document, Path], None]:
    from tacit.cli.audit.check_output import print_check

    return print_check
