"""`tacit audit FILE.toml`: the cheap detectors, applied to the settings in a run file, on made-up records."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from tacit.cli.audit.base import SingleAudit, SingleCase
from tacit.cli.audit.folder import Document
from tacit.cli.audit.options import execution
from tacit.cli.terminal.command import NOT_RECORDED, RunsFolder
from tacit.runs.config import RunConfig
from tacit.runs.folder import RunFolder


@dataclass(frozen=True, kw_only=True)
class CheckAudit(SingleAudit):
    """Check the settings of a run: model, loss, shape of the data, rule and privacy.

    The influence of one record, bits, noise and lots are measured on made-up records, in about a minute. No private record
    is read and no budget is spent. The outcome is kept beside the runs, where tacit train and tacit report find it.

    Exit code 1 means that a fault was found.

    Example: tacit audit runs/dsgt-digits-1/config.toml
    """

    kind: ClassVar[str] = "check"
    hidden: ClassVar[bool] = True
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="A file of settings for tacit train."), NOT_RECORDED]
    false_alarm: Annotated[
        float, execution("SHARE", "Highest probability that a fault is reported in sound settings.")
    ] = 1e-4
    runs: Annotated[RunsFolder, NOT_RECORDED] = Path("runs")

    def case(self) -> SingleCase:
        """Return the check of the settings in the file."""
        return check_case(RunConfig.of(RunConfig.read(self.file)), self.file, self.false_alarm, self.runs)


def check_case(config: RunConfig, file: Path, false_alarm: float, runs: Path) -> SingleCase:
    """Return the check of some settings, which also keeps the outcome beside the runs, and in the run of the file."""
    from tacit.audit.detectors.check import check as run_check
    from tacit.audit.detectors.check import training_of
    from tacit.runs.checks import check_event, keep_check

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

    description = {
        "title": "Check of settings",
        "about": f"{file} · {shape}",
        "algorithm": config.algorithm,
        "agents": training.data.agents,
    }
    return SingleCase(play=play, settings=config.model_dump(exclude_none=True), description=description)
