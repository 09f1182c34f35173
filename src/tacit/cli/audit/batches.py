"""Plays the batches of an attack in a folder, shows the progress, and keeps the result.

Imported when an audit begins: it loads everything that computes.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import typer

from tacit import __version__
from tacit.audit.attacks.collecting import collect
from tacit.audit.bounds.findings import judge
from tacit.cli.audit.batched import AttackCase
from tacit.cli.audit.folder import LOCK, RESULT, SCORES, Document, refuse_used, write_result
from tacit.cli.terminal.counter import Update, count_progress
from tacit.cli.terminal.output import messages, working
from tacit.errors import StorageError
from tacit.io.lock import held
from tacit.io.memory import keep_pages
from tacit.io.stopping import Stopping
from tacit.report.wording import duration

_LINE_EVERY = 0.1  # of all runs
_FIRST_BATCH = "timing the first batch"


@dataclass(frozen=True, kw_only=True)
class Batches:
    """How many runs are played, how, and how sure the bounds must be. `resume` is the command that resumes them."""

    kind: str
    runs: int
    batch: int
    workers: int
    confidence: float
    shown: bool
    resume: str

    def play(self, case: AttackCase, folder: Path) -> Document:
        """Play the missing batches of a case, judge all of them, and return what was written."""
        screen, kept = messages(), 0
        decisive = {**case.settings, "runs": self.runs, "batch": self.batch, "tacit": __version__}
        folder.mkdir(exist_ok=True)
        keep_pages()
        with held(folder / LOCK, folder), Stopping(screen.print) as stopping:
            if not (folder / SCORES).exists():
                refuse_used(folder, RESULT)

            def count(done: int, total: int) -> None:
                nonlocal kept
                kept = done
                tell(done, total)

            def remedy() -> str:
                runs = f"{kept:,} of {2 * self.runs:,} runs are kept" if kept else "no batch was finished"
                return f"{runs}. Resume with: {self.resume}"

            name = f"{self.kind}-{case.description['algorithm']}"
            try:
                with count_progress(screen, f"{name}: runs", 2 * self.runs, shown=self.shown) as update:
                    tell = self._teller(name, update)
                    scores = collect(
                        case.attack,
                        self.runs,
                        batch=self.batch,
                        workers=self.workers,
                        file=folder / SCORES,
                        facts=decisive,
                        told=count,
                    )
            except KeyboardInterrupt:
                screen.print(f"stopped; {remedy()}", soft_wrap=True)
                raise typer.Exit(stopping.exit_code) from None
            except StorageError as error:
                raise StorageError(f"{error}; {remedy()}") from error
            with working("judging"):
                found = judge(scores, case.claim, confidence=self.confidence)
            attack = {"kind": self.kind, **case.description}
            return write_result(folder, {"attack": attack, **found.to_json(), "settings": decisive})

    def _teller(self, name: str, update: Update) -> Callable[[int, int], None]:
        """Return what to call before the first batch and after each; few of these calls print a line."""
        begun, calls, printed = time.monotonic(), 0, 0.0
        before: int | None = None  # runs that an earlier command has played

        def tell(done: int, total: int) -> None:
            nonlocal before, calls, printed
            before, calls = done if before is None else before, calls + 1
            left = self._time_left(time.monotonic() - begun, done, done - before, total)
            due = done and (calls <= 2 or done / total >= printed + _LINE_EVERY or done == total)
            printed = done / total if due else printed
            update(done, left, f"{name}: {done:,} of {total:,} runs{', ' + left if left else ''}" if due else "")

        return tell

    def _time_left(self, seconds: float, done: int, new: int, total: int) -> str:
        """Say how long the rest takes, if `new` runs took so many seconds."""
        if done == total:
            return ""
        if not new:
            return _FIRST_BATCH
        under_way = min((self.workers - 1) * self.batch / 2, total - done)  # half done, on average
        return f"about {duration(seconds * (total - done - under_way) / (new + under_way))} left"
