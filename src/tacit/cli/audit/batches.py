"""Plays the batches of an attack in a folder, shows the progress, and keeps the result.

Imported when an audit begins: it loads everything that computes.
"""

import time
from pathlib import Path

from tacit import __version__
from tacit.audit.attacks.collection import collect
from tacit.audit.bounds.findings import judge
from tacit.cli.audit.base import AttackCase, BatchedAudit
from tacit.cli.audit.folder import LOCK, RESULT, SCORES, Document, refuse_used, write_result
from tacit.cli.terminal.output import messages, working
from tacit.cli.terminal.progress import Update, count_progress
from tacit.errors import StorageError
from tacit.io.lock import held
from tacit.io.memory import keep_pages
from tacit.report.wording import duration

_LINE_EVERY = 0.1  # of all runs


class _BatchProgress:
    """Counts runs, and prints a line now and then.

    under_way: how many runs of unfinished batches are done while several processes play.
    """

    def __init__(self, name: str, update: Update, under_way: float) -> None:
        self._name, self._update, self._under_way = name, update, under_way
        self._begun, self._calls, self._printed = time.monotonic(), 0, 0.0
        self._before = self.done = 0  # before: runs that an earlier command has played

    def __call__(self, done: int, total: int) -> None:
        """Report runs that are done: before the first batch and after each."""
        self._before = self._before if self._calls else done
        self.done, self._calls = done, self._calls + 1
        left = ""
        if done < total:
            more, new = min(self._under_way, total - done), done - self._before
            pace = (time.monotonic() - self._begun) / (new + more) if new else None
            left = "timing the first batch" if pace is None else f"about {duration(pace * (total - done - more))} left"
        due = done and (self._calls <= 2 or done / total >= self._printed + _LINE_EVERY or done == total)
        self._printed = done / total if due else self._printed
        line = f"{self._name}: {done:,} of {total:,} runs{', ' + left if left else ''}"
        self._update(done, left, line if due else "")


def play_batches(audit: BatchedAudit, case: AttackCase, folder: Path, *, confidence: float, resume: str) -> Document:
    """Play the missing batches of a case, judge all of them, and return what was written.

    resume: the command that resumes the audit.
    """
    screen, total, progress = messages(), 2 * audit.runs, None
    settings, batch = {**case.settings, "tacit": __version__}, case.settings["batch"]
    name = f"{audit.kind}-{case.description['algorithm']}"
    folder.mkdir(exist_ok=True)
    keep_pages()

    def remedy() -> str:
        kept = progress.done if progress else 0
        return f"{f'{kept:,} of {total:,} runs are kept' if kept else 'no batch was finished'}. Resume with: {resume}"

    with held(folder / LOCK, folder):
        if not (folder / SCORES).exists():
            refuse_used(folder, RESULT)
        try:
            with count_progress(screen, f"{name}: runs", total, shown=not (audit.json or audit.quiet)) as update:
                progress = _BatchProgress(name, update, (audit.processes - 1) * batch / 2)  # half done, on average
                scores = collect(
                    case.attack,
                    audit.runs,
                    batch=batch,
                    workers=audit.processes,
                    file=folder / SCORES,
                    facts=settings,
                    on_progress=progress,
                )
        except KeyboardInterrupt:
            screen.print(f"stopped; {remedy()}", soft_wrap=True)
            raise
        except StorageError as error:
            raise StorageError(f"{error}; {remedy()}") from error
        with working("judging"):
            found = judge(scores, case.claim, confidence=confidence)
        attack = {"kind": audit.kind, **case.description}
        return write_result(folder, {"attack": attack, **found.to_json(), "settings": settings})
