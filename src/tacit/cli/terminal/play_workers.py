"""What `tacit train` and `tacit resume` do for a run on several workers: they start the ranks and wait for them."""

import json
import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import typer

from tacit.cli.terminal.errors import FAILED
from tacit.cli.terminal.output import complain, note
from tacit.cluster.group import LOST
from tacit.cluster.launching import launch
from tacit.privacy import Budget
from tacit.runs.config import RunConfig
from tacit.runs.folder import RunFolder


@dataclass(frozen=True, kw_only=True)
class WorkersRun:
    """A run in the folder `path` on as many workers as its settings say, and how it is started and shown."""

    config: RunConfig
    path: Path
    restarts: int
    deadline: float
    budget: Budget | None = None
    json: bool = False
    quiet: bool = False

    def play_here(self) -> NoReturn:
        """Play the run on ranks of this machine, and end as rank 0 does."""
        with tempfile.TemporaryDirectory() as folder:
            where = ["--name", self.path.name, "--runs", str(self.path.parent)]
            given = [str(self._write_settings(folder)), *where, "--deadline", str(self.deadline)]
            given += [] if self._budget is None else ["--budget", self._budget]
            given += ["--json"] * self.json + ["--quiet"] * self.quiet
            finished = RunFolder(self.path).summary_file.exists
            code = launch(given, self._workers, finished=finished, restarts=self.restarts, say=note)
        _end(code, self.path)

    def play_on_ray(self) -> NoReturn:
        """Play the run on Ray's workers, which must see its folder, and print here what rank 0 shows."""
        from tacit.cli.rank import play_rank
        from tacit.cluster.on_ray import check_ray, train_on_ray

        check_ray()
        path = self.path.resolve()
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".ray-") as folder:
            given = {"file": self._write_settings(folder), "name": path.name, "runs": path.parent}
            given |= {"deadline": self.deadline, "budget": self._budget, "json": self.json, "quiet": self.quiet}
            train_on_ray(play_rank, given, self._workers, restarts=self.restarts, storage=Path(folder) / "ray")
        raise typer.Exit(0)

    @property
    def _workers(self) -> int:
        assert self.config.workers is not None
        return self.config.workers

    @property
    def _budget(self) -> str | None:
        return None if self.budget is None else json.dumps(self.budget.to_json())

    def _write_settings(self, folder: str) -> Path:
        file = Path(folder) / "settings.toml"
        file.write_bytes(self.config.to_toml().encode())
        return file


def _end(code: int, path: Path) -> NoReturn:
    """End with rank 0's code, and say how to resume a run whose ranks were lost too often."""
    if code == LOST:
        complain(f"the ranks could not finish the run. Resume with: tacit resume {shlex.quote(str(path))}")
        code = FAILED
    raise typer.Exit(code)
