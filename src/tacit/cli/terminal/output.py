"""What all commands share: how they print and how they save a picture.

A result goes to stdout, as text that fits 80 columns or as one JSON document; everything else goes to stderr. Text
is printed as it is: square brackets in a file's name are no markup.
"""

import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from tacit.errors import InvalidInput
from tacit.io.files import finite
from tacit.privacy.accounting import ceil_digits

if TYPE_CHECKING:  # matplotlib is slow to import, and most commands draw nothing
    from matplotlib.figure import Figure

RunsFolder = Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of all runs, with their ledger.")]
Json = Annotated[bool, typer.Option("--json", metavar="", help="Print one JSON document, and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", metavar="", help="Show no plan and no progress.")]
PICTURES = (".png", ".pdf", ".svg")
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def console() -> Console:
    """Return where text results go."""
    return Console(highlight=False, markup=False)


def messages() -> Console:
    """Return where everything else goes."""
    return Console(stderr=True, highlight=False, markup=False)


def note(words: str) -> None:
    """Say on stderr what a user may not have expected."""
    _say("note: ", "bold", words)


def complain(words: str) -> None:
    """Say on stderr what is wrong, without ending."""
    _say("error: ", "bold red", words)


def print_whole(result: RenderableType) -> None:
    """Print a result; a table in a file or a pipe is as wide as it needs to be."""
    screen = console()
    if not screen.is_terminal:
        screen.width = max(screen.width, Measurement.get(screen, screen.options.update(width=10_000), result).maximum)
    screen.print(result)


@contextmanager
def working(message: str) -> Iterator[None]:
    """Show on a terminal's stderr that something takes a moment; elsewhere show nothing."""
    screen = messages()
    if screen.is_terminal:
        with screen.status(message):
            yield
    else:
        yield


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document: a key on a line, whatever it holds behind it, with null for what is not finite."""
    lines = [f"  {json.dumps(key)}: {json.dumps(finite(value), allow_nan=False)}" for key, value in document.items()]
    sys.stdout.write("{\n" + ",\n".join(lines) + "\n}\n")


def _say(begin: str, style: str, words: str) -> None:
    screen = messages()
    # A line in a log or a pipe stays a line, so that it can be searched for.
    screen.print(Text.assemble((begin, style), words), soft_wrap=not screen.is_terminal)


class PlainTable(Table):
    """A table in the one style that all commands use. A heading may be wider than the columns below it."""

    def __init__(self, heading: str | None) -> None:
        super().__init__(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        self.heading = heading

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.heading is not None:
            yield Text(self.heading, style="bold")
        yield from super().__rich_console__(console, options)


def plain_table(heading: str | None = None) -> PlainTable:
    """Return an empty table."""
    return PlainTable(heading)


def bar(share: float, width: int) -> str:
    """Return a bar of a share of this many columns, to an eighth of a column."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def digits(value: float, count: int = 4) -> str:
    """Return a number to so many digits, without an exponent where a reader needs none."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if 1e-4 <= abs(value) < 10**count:
        return f"{value:#.{count}g}".rstrip(".")
    return f"{value:,.0f}" if 1 < abs(value) < 1e7 else f"{value:.{count}g}"


def round_up(epsilon: float) -> str:
    """Return ε to four digits, rounded up: what is shown is never less than what is spent."""
    return digits(ceil_digits(epsilon))


def check_output(path: Path | None) -> None:
    """Refuse a file that could not be written, before anything is computed."""
    if path is None:
        return
    if os.path.isdir(path):
        raise InvalidInput(f"{path}: this is a folder; name a file in it")
    standing = next(folder for folder in path.parents if os.path.lexists(folder))
    if not os.path.isdir(standing):
        raise InvalidInput(f"{path}: cannot be written, because {standing} is not a folder")


def check_picture(path: Path | None) -> None:
    """Refuse a picture that could not be saved, before anything is computed."""
    check_output(path)
    if path is not None and path.suffix.lower() not in PICTURES:
        kind = f"ends in {path.suffix!r}" if path.suffix else "has no ending"
        raise InvalidInput(f"{path}: a picture is saved as {', '.join(PICTURES)}, but this name {kind}")


def save_picture(figure: "Figure", path: Path) -> None:
    """Save a figure in the format that its file's name ends in, all of it or nothing."""
    from tacit.report.figures.style import save_figure

    check_picture(path)
    save_figure(figure, path)
