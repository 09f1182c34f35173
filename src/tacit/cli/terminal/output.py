"""How all commands print, and write files.

A result goes to stdout, as text that fits 80 columns or as one JSON document; everything else goes to stderr. Text
is printed as it is: square brackets in the name of a file are not markup. A file that cannot be written is refused early.
"""

import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from tacit.errors import InvalidInput
from tacit.io.files import finite
from tacit.privacy.accounting import ceil_digits

if TYPE_CHECKING:  # matplotlib is slow to import, and most commands draw nothing
    from matplotlib.figure import Figure

FOUND_FAULT = 1
"""The exit code where a claim is broken, or a record does not hold."""
_EIGHTHS = " ▏▎▍▌▋▊▉█"
PICTURES = (".png", ".pdf", ".svg")


class _Screen(Console):
    """Wraps sentences at words. One with a path, and any message in a log, stays on one line, to be copied or searched for."""

    def print(self, *results: Any, **options: Any) -> None:
        if all(isinstance(each, str | Text) for each in results):
            words = " ".join(map(str, results)).split()
            too_long = any(len(word) > self.width for word in words)
            kept = too_long if self.is_terminal else self.stderr or any("/" in word for word in words)
            options.setdefault("soft_wrap", kept)
        super().print(*results, **options)


def console() -> Console:
    """Return the console of results."""
    return _Screen(highlight=False, markup=False)


def messages() -> Console:
    """Return the console of everything else."""
    return _Screen(stderr=True, highlight=False, markup=False)


def note(words: str) -> None:
    """Print on stderr what a user may not have expected."""
    _say("note: ", "bold", words)


def complain(words: str) -> None:
    """Print on stderr what is wrong, without ending."""
    _say("error: ", "bold red", words)


def print_whole(result: RenderableType) -> None:
    """Print a result; a table in a file or a pipe is as wide as it needs to be."""
    screen = console()
    if not screen.is_terminal:
        screen.width = max(screen.width, Measurement.get(screen, screen.options.update(width=10_000), result).maximum)
    screen.print(result)


def print_sentence(screen: Console, words: str) -> None:
    """Print a sentence that may also be wrapped at a slash, as in names of owners, unless a word is too long for a line."""
    screen.print(words, soft_wrap=any(len(word) > screen.width for word in words.split()))


def print_apart(screen: Console, *results: RenderableType) -> None:
    """Print results with an empty line before and after each."""
    for result in results:
        screen.print()
        screen.print(result)
    screen.print()


def break_command(command: str, width: int) -> str:
    """Return a command on lines that fit a width, broken before options, with a backslash at the end of each line but the last."""
    first, *options = command.split(" --")
    lines = [first]
    for each in options:
        if len(lines[-1]) + len(each) + len(" -- \\") > width:
            lines[-1] += " \\"
            lines.append(f"    --{each}")
        else:
            lines[-1] += f" --{each}"
    return "\n".join(lines)


@contextmanager
def working(message: str) -> Iterator[None]:
    """Show that something takes a moment, if stderr is a terminal."""
    screen = messages()
    if screen.is_terminal:
        with screen.status(message):
            yield
    else:
        yield


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document: a line for each key with all of its value, and null for numbers that are not finite."""
    lines = [f"  {json.dumps(key)}: {json.dumps(finite(value), allow_nan=False)}" for key, value in document.items()]
    sys.stdout.write("{\n" + ",\n".join(lines) + "\n}\n")


def _say(begin: str, style: str, words: str) -> None:
    messages().print(Text.assemble((begin, style), words))


class PlainTable(Table):
    """A table in the style of all commands. A heading may be wider than the columns below it."""

    def __init__(self, heading: str | None) -> None:
        super().__init__(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        self.heading = heading

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.heading is not None:
            yield Text(self.heading, style="bold")
        yield from super().__rich_console__(console, options)


def plain_table(
    heading: str | None = None, *columns: str, rows: Iterable[Sequence[RenderableType]] = (), no_wrap: bool = False
) -> PlainTable:
    """Return a table with these columns and rows; a column whose name begins with > is aligned to the right."""
    table = PlainTable(heading)
    for column in columns:
        justify: JustifyMethod = "right" if column.startswith(">") else "left"
        table.add_column(column.removeprefix(">"), justify=justify, no_wrap=no_wrap, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def bar(share: float, width: int) -> str:
    """Return a bar that fills a share of this many columns, to an eighth of a column."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def digits(value: float, count: int = 4) -> str:
    """Return a number with this many digits, and with an exponent only if it is very small or large."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if 1e-4 <= abs(value) < 10**count:
        return f"{value:#.{count}g}".rstrip(".")
    return f"{value:,.0f}" if 1 < abs(value) < 1e7 else f"{value:.{count}g}"


def round_up(epsilon: float) -> str:
    """Return ε with four digits, rounded up: what is shown is never less than what is spent."""
    return digits(ceil_digits(epsilon))


def check_output(path: Path | None) -> None:
    """Refuse a file that cannot be written, before anything is computed."""
    if path is None:
        return
    if os.path.isdir(path):
        raise InvalidInput(f"{path}: this is a folder; name a file in it")
    nearest = next(folder for folder in path.parents if os.path.lexists(folder))
    if not os.path.isdir(nearest):
        raise InvalidInput(f"{path}: cannot be written, because {nearest} is not a folder")
    if not os.access(nearest, os.W_OK):
        raise InvalidInput(f"{path}: cannot be written, because {nearest} is read-only")


def check_picture(path: Path | None) -> None:
    """Refuse a picture that cannot be saved, before anything is computed."""
    check_output(path)
    if path is not None and path.suffix.lower() not in PICTURES:
        kind = f"ends in {path.suffix!r}" if path.suffix else "has no ending"
        raise InvalidInput(f"{path}: a picture is saved as {', '.join(PICTURES)}, but this name {kind}")


def save_picture(figure: "Figure", path: Path) -> None:
    """Save a figure in the format that the name of the file ends in, completely or not at all."""
    from tacit.report.figures.style import save_figure

    check_picture(path)
    save_figure(figure, path)
