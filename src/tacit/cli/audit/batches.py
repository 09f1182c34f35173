"""Plays the batches of an attack in a folder, shows the progress, and keeps the result.

Imported when an audit begins: it loads everything that computes.
"""

import time
from collections.abc import Callable
from pathlib import Path

import typer

from tacit import __version__
from tacit.audit.attacks.collection import collect
from tacit.audit.bounds.findings import judge
from tacit.cli.audit.batched import AttackCase, BatchedAudit
from tacit.cli.audit.folder import LOCK, RESULT, SCORES, Document, refuse_used, write_result
from tacit.cli.terminal.counter import Update, count_progress
from tacit.cli.terminal.output import messages, working
from tacit.errors import StorageError
from tacit.io.lock import held
from tacit.io.memory import keep_pages
from tacit.io.stopping import Stopping
from tacit.report.wording import duration

_LINE_EVERY = 0.1  # of all runs


def play_batches(
    audit: BatchedAudit, case: AttackCase, folder: Path, *, batch: int, confidence: float, resume: str
) -> Document:
    """Play the missing batches of a case, judge all of them, and return what was written.

    resume: the command that resumes the audit.
    """
    screen, kept, total = messages(), 0, 2 * audit.runs
    settings = {**case.settings, "runs": audit.runs, "batch": batch, "tacit": __version__}
    name = f"{audit.kind}-{case.description['algorithm']}"
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
            return (
                f"{f'{kept:,} of {total:,} runs are kept' if kept else 'no batch was finished'}. Resume with: {resume}"
            )

        try:
            with count_progress(screen, f"{name}: runs", total, shown=audit.shown) as update:
                tell = _teller(name, update, under_way=(audit.processes - 1) * batch / 2)  # half done, on average
                file, workers = folder / SCORES, audit.processes
                scores = collect(
                    case.attack, audit.runs, batch=batch, workers=workers, file=file, facts=settings, on_progress=count
                )
        except KeyboardInterrupt:
            screen.print(f"stopped; {remedy()}", soft_wrap=True)
            raise typer.Exit(stopping.exit_code) from None
        except StorageError as error:
            raise StorageError(f"{error}; {remedy()}") from error
        with working("judging"):
            found = judge(scores, case.claim, confidence=confidence)
        attack = {"kind": audit.kind, **case.description}
        return write_result(folder, {"attack": attack, **found.to_json(), "settings": settings})


def _teller(name: str, update: Update, *, under_way: float) -> Callable[[int, int], None]:
    """Return a function to call before the first batch and after each; few of these calls print a line.

    under_way: how many runs of unfinished batches are done while several processes play.
    """
    begun, calls, printed = time.monotonic(), 0, 0.0
    before: int | None = None  # runs that an earlier command has played

    def tell(done: int, total: int) -> None:
        nonlocal before, calls, printed
        before, calls = done if before is None else before, calls + 1
        left = ""
        if done < total:
            more = min(under_way, total - done)
            seconds = (
                (time.monotonic() - begun) * (total - done - more) / (done - before + more) if done > before else None
            )
            left = "timing the first batch" if seconds is None else f"about {duration(seconds)} left"
        due = done and (calls <= 2 or done / total >= printed + _LINE_EVERY or done == total)
        printed = done / total if due else printed
        update(done, left, f"{name}: {done:,} of {total:,} runs{', ' + left if left else ''}" if due else "")

    return tell
