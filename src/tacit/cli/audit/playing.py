"""Plays an audit in its folder, shows how far it is, and keeps what came out of it.

A folder has `scores.jsonl`, which grows batch by batch, and at the end `audit.json` and `audit.html`.
"""

import json
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tacit import __version__
from tacit.audit.attacks.collection import collect
from tacit.audit.bounds.findings import judge
from tacit.audit.pages.page import write_page
from tacit.cli.audit.shared import Case, How
from tacit.cli.terminal.output import check_output, messages, working
from tacit.errors import InvalidInput, StorageError
from tacit.io.files import finite, write_atomically
from tacit.io.lock import held
from tacit.io.memory import keep_pages
from tacit.io.stopping import Stopping
from tacit.report.wording import duration

SCORES, RESULT, PAGE, LOCK = "scores.jsonl", "audit.json", "audit.html", "lock"
AUDITS = Path("audits")
_LINE_EVERY = 0.1  # of all runs

Document = dict[str, Any]
Told = Callable[[int, int], None]


def make_folder(given: Path | None, name: str) -> Path:
    """Return the folder that was asked for, or one with a number that no other has."""
    if given is not None:
        check_output(given / RESULT)
        given.mkdir(parents=True, exist_ok=True)
        return given
    check_output(AUDITS / name / RESULT)
    AUDITS.mkdir(exist_ok=True)
    number = 1
    while True:
        try:
            folder = AUDITS / f"{name}-{number}"
            folder.mkdir()
            return folder
        except FileExistsError:
            number += 1


def play(case: Case, how: How, folder: Path, again: str) -> Document:
    """Play what is missing of an audit, judge all of it, and return what was written."""
    screen = messages()
    settings = {**case.settings, "runs": how.runs, "batch": how.batch, "tacit": __version__}
    folder.mkdir(exist_ok=True)
    keep_pages()
    with held(folder / LOCK, folder), Stopping(screen.print) as stopping:
        done = 0
        if (folder / RESULT).exists() and not (folder / SCORES).exists():
            raise InvalidInput(f"{folder} holds another audit; choose another folder")

        def count(now: int, total: int) -> None:
            nonlocal done
            done = now
            told(now, total)

        def how_to_go_on() -> str:
            kept = f"{done:,} of {2 * how.runs:,} runs are kept" if done else "no batch was done"
            return f"{kept}. Resume with: {again}"

        try:
            with showing(screen, how, case.name) as told:
                scores = collect(
                    case.attack,
                    how.runs,
                    batch=how.batch,
                    workers=how.workers,
                    file=folder / SCORES,
                    facts=settings,
                    on_progress=count,
                )
        except KeyboardInterrupt:
            screen.print(f"stopped; {how_to_go_on()}", soft_wrap=True)
            raise typer.Exit(stopping.exit_code) from None
        except StorageError as error:
            raise StorageError(f"{error}; {how_to_go_on()}") from error
        with working("judging"):
            found = judge(scores, case.claim, confidence=how.confidence)
        return write(folder, {"attack": case.told, **found.to_json(), "settings": settings})


def write(folder: Path, found: Document) -> Document:
    """Write what was found and its page into a folder, and return it as it was written."""
    document = finite(found)
    write_atomically(folder / RESULT, json.dumps(document, indent=1, allow_nan=False).encode() + b"\n")
    write_page(document, folder / PAGE)
    return document


def command(ctx: typer.Context, folder: Path) -> str:
    """Return the command that goes on in a folder: the one that was given, with the folder named."""
    words = ctx.command_path.split()
    for param in ctx.command.params:
        value = ctx.params.get(param.name or "")
        if param.name == "folder" or value is None or value == param.default or value == []:
            continue
        if isinstance(value, bool):
            words.append((param.opts if value else param.secondary_opts)[0])
            continue
        for each in value if isinstance(value, list | tuple) else (value,):
            words += [param.opts[0], f"{each:g}" if isinstance(each, float) else str(each)]
    return shlex.join([*words, "--folder", str(folder)])


@contextmanager
def showing(screen: Console, how: How, name: str) -> Iterator[Told]:
    """Yield what to tell before the first batch and after each: a bar on a terminal, some lines elsewhere."""
    if not how.shown:
        yield lambda done, total: None
    elif screen.is_terminal:
        with _bar(screen, how, name) as told:
            yield told
    else:
        yield _lines(screen, how, name)


@contextmanager
def _bar(screen: Console, how: How, name: str) -> Iterator[Told]:
    left = _time_left(how)
    columns = (
        TextColumn(f"{name}: runs"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, console=screen, transient=True) as progress:
        task = progress.add_task("", total=2 * how.runs, left="timing the first batch")
        yield lambda done, total: progress.update(task, completed=done, left=left(done, total))


def _lines(screen: Console, how: How, name: str) -> Told:
    left, calls, last = _time_left(how), 0, 0.0

    def told(done: int, total: int) -> None:
        nonlocal calls, last
        calls, words = calls + 1, left(done, total)
        due = calls <= 2 or done / total >= last + _LINE_EVERY or done == total
        if done and due:
            last = done / total
            screen.print(f"{name}: {done:,} of {total:,} runs{', ' + words if words else ''}", soft_wrap=True)

    return told


def _time_left(how: How) -> Callable[[int, int], str]:
    """Return what tells the time left, from the time since now and what was played in it."""
    begun, before = time.monotonic(), None

    def left(done: int, total: int) -> str:
        nonlocal before
        if before is None:
            before = done  # what was there already
        if done == before:
            return "timing the first batch" if done < total else ""
        under_way = min((how.workers - 1) * how.batch / 2, total - done)  # half done, on average
        seconds = (time.monotonic() - begun) * (total - done - under_way) / (done - before + under_way)
        return f"about {duration(seconds)} left" if done < total else ""

    return left
