"""The files of one run. `events.jsonl` is the truth for everything but ε, which comes from the ledger beside the runs.

runs/ledger.sqlite            what was spent, by all runs in this folder
runs/checks.jsonl             checks of settings, by `tacit audit FILE.toml`
runs/<name>/config.toml       the resolved settings
runs/<name>/events.jsonl      plan, snapshots, checkpoints, resumes, the end
runs/<name>/checkpoint.safetensors
runs/<name>/answers-*.bin     answers since the checkpoint
runs/<name>/budget.json       a budget that the run brings along, until the ledger has it
runs/<name>/private.jsonl     private diagnostics, only where asked for
runs/<name>/tensorboard/      event files, only where asked for
runs/<name>/ranks/            of a run on several processes: who hosts whom, and what every process but the first saves
runs/<name>/models.safetensors   all agents' final models, once it is finished
runs/<name>/summary.json      once it is finished
runs/<name>/agreement.json    of one site among peers: what all members agreed on; beside its journal.sqlite and records.json
"""

import json
import re
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tacit.errors import InvalidInput, StorageError
from tacit.io import chains, lock
from tacit.io.files import finite, sync_folder, write_atomically
from tacit.io.jsonl import append_line
from tacit.privacy import Budget
from tacit.runs import events
from tacit.runs.config import RunConfig
from tacit.runs.event_types import LogEvent
from tacit.runs.python_config import AnyConfig, read_config

LEDGER = "ledger.sqlite"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def ledger_in(runs: Path) -> Path:
    """Return the ledger of a folder of runs, or the file itself if a ledger elsewhere is meant."""
    path = runs if runs.is_file() else runs / LEDGER
    if not path.is_file():
        raise InvalidInput(f"there is no ledger {path}; `tacit train` makes one")
    return path


class RunFolder:
    """One run's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_file = path / "config.toml"
        self.events_file = path / "events.jsonl"
        self.checkpoint_file = path / "checkpoint.safetensors"
        self.models_file = path / "models.safetensors"
        self.summary_file = path / "summary.json"
        self.agreement_file = path / "agreement.json"
        self.private_file = path / "private.jsonl"
        self.budget_file = path / "budget.json"
        self.board_folder = path / "tensorboard"

    @property
    def name(self) -> str:
        """The run's name, which is the folder's."""
        return self.path.name

    @property
    def ledger_file(self) -> Path:
        """The ledger of all runs beside this one."""
        return self.path.parent / LEDGER

    @staticmethod
    def create(runs: Path, name: str, config: AnyConfig, budget: Budget | None = None) -> "RunFolder":
        """Make the folder of a new run with its settings in it; a name that is taken is an error.

        A budget is kept until the run's account brings it into the ledger: a run that is killed before that still has it when it is resumed.
        """
        folder = RunFolder.unused(runs, name)
        try:
            folder.path.mkdir(parents=True)
            sync_folder(runs)
        except FileExistsError:
            raise folder._taken() from None
        except OSError as error:
            raise StorageError(f"{folder.path} cannot be made: {error.strerror}") from error
        try:
            if budget is not None:
                write_atomically(folder.budget_file, json.dumps(budget.to_json()).encode())
            write_atomically(folder.config_file, config.to_toml().encode())
        except StorageError:
            folder.budget_file.unlink(missing_ok=True)
            folder.path.rmdir()
            raise
        return folder

    def remove(self) -> None:
        """Remove the folder of a run that did not begin; if anything else is in it, this fails and leaves that alone."""
        for path in (self.path / ".lock", self.budget_file, self.config_file, self.shards_file, self.meeting_file):
            path.unlink(missing_ok=True)
        if self.shards_file.parent.exists():
            self.shards_file.parent.rmdir()
        self.path.rmdir()

    @staticmethod
    def unused(runs: Path, name: str) -> "RunFolder":
        """Return the folder of a run that does not exist yet; a name that is taken, or not a name, is an error."""
        if not _NAME.fullmatch(name):
            raise InvalidInput(f"a run cannot be called {name!r}; use letters, digits, dots, dashes and underscores")
        folder = RunFolder(runs / name)
        if folder.path.exists():
            raise folder._taken()
        return folder

    def _taken(self) -> InvalidInput:
        done = self.summary_file.exists()
        if self.is_running:
            return InvalidInput(
                f"{self.path} already exists: a process is working on that run now; choose another name"
            )
        advice = "that run is finished; choose another name" if done else "choose another name, or resume that run"
        return InvalidInput(f"{self.path} already exists: {advice}")

    @staticmethod
    def find(path: Path) -> "RunFolder":
        """Return the folder of an existing run."""
        folder = RunFolder(path)
        if not path.is_dir():
            raise InvalidInput(f"there is no run folder {path}")
        if not folder.config_file.is_file():
            raise InvalidInput(f"{path} is not a run folder: it has no config.toml")
        return folder

    def config(self) -> AnyConfig:
        """Read the settings."""
        return read_config(RunConfig.read(self.config_file))

    def budget(self) -> Budget | None:
        """Return the budget that a run is to bring into the ledger, if it has not done so yet."""
        if not self.budget_file.exists():
            return None
        try:
            return Budget.of_json(chains.parse(self.budget_file.read_bytes()))
        except (OSError, ValueError) as error:
            raise StorageError(f"{self.budget_file} cannot be read: {error}") from error

    def locked(self) -> AbstractContextManager[None]:
        """Keep every other process off this run; the lock goes with the process, however it ends."""
        return lock.held(self.path / ".lock", self.path)

    @property
    def is_running(self) -> bool:
        """Whether a process is working on this run. Asking does not block one."""
        return lock.is_held(self.path / ".lock")

    def log(self, event: LogEvent) -> None:
        """Append one event and wait until it is on disk."""
        events.append(self.events_file, event)

    @property
    def events_head(self) -> str:
        """The hash that covers all events."""
        return events.head(self.events_file)

    def log_private(self, facts: dict[str, Any]) -> None:
        """Append what a query saw of the private data, to a file of its own that only its owner can read."""
        self.private_file.touch(mode=0o600)
        append_line(self.private_file, json.dumps(finite(facts), ensure_ascii=False).encode() + b"\n")

    def events(self) -> events.Events:
        """Return all events; a last line that a crash cut off is left out."""
        return events.read(self.events_file)

    def summarise(self, summary: dict[str, Any]) -> None:
        """Write the summary of a finished run."""
        write_atomically(self.summary_file, json.dumps(finite(summary), indent=1).encode() + b"\n")

    def summary(self) -> dict[str, Any] | None:
        """Return the summary, if the run is finished."""
        if not self.summary_file.exists():
            return None
        try:
            content = json.loads(self.summary_file.read_text(encoding="utf-8"))
        except OSError as error:
            raise StorageError(f"{self.summary_file} cannot be read: {error}") from error
        except ValueError as error:
            raise InvalidInput(f"{self.summary_file} is not JSON: {error}") from error
        if not isinstance(content, dict):
            raise InvalidInput(f"{self.summary_file} holds {type(content).__name__}, not a summary")
        return content

    @property
    def shards_file(self) -> Path:
        """Which agents each process of a cluster hosts."""
        return self.path / "ranks" / "shards.json"

    @property
    def meeting_file(self) -> Path:
        """A number that the first process of a cluster writes whenever it begins; the others read it to check that they see this folder."""
        return self.path / "ranks" / "meeting.txt"

    def rank_checkpoint_file(self, rank: int, round: int) -> Path:
        """Return the checkpoint of a process other than the first, of one round."""
        return self.path / "ranks" / f"{rank:04d}-checkpoint-{round:08d}.safetensors"

    def rank_answers_file(self, rank: int, answered: int) -> Path:
        """Return where such a process writes its answers after the first `answered`."""
        return self.path / "ranks" / f"{rank:04d}-answers-{answered:08d}.bin"

    def answers_file(self, answered: int) -> Path:
        """Return where answers after the first `answered` are written."""
        return self.path / f"answers-{answered:08d}.bin"
