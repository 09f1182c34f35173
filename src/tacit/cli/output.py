"""What all commands share: how they print, how they fail, how they save a picture.

A result goes to stdout, as text that fits 80 columns or as one JSON document; everything else goes to stderr. Text
is printed as it is: square brackets in a file's name are no markup.
"""

import errno
import io
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from pydantic import ValidationError
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from tacit.errors import InvalidInput, TacitError
from tacit.files import write_atomically

if TYPE_CHECKING:  # matplotlib is slow to import, and most commands draw nothing
    from matplotlib.figure import Figure

WRONG_INPUT, BROKEN_OUTPUT = 2, 1
PICTURES = (".png", ".pdf", ".svg")
_WANTED = {
    "int_parsing": "a whole number",
    "float_parsing": "a number",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
}
_EIGHTHS = " ▏▎▍▌▋▊▉█"


class Commands(TyperGroup):
    """A group of commands whose errors are sentences on stderr, never tracebacks."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Read the options that stand before a command."""
        with errors_as_sentences():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run the command and see its output off."""
        with errors_as_sentences():
            result = super().invoke(ctx)
            sys.stdout.flush()  # here, where a full disk can still be told
            return result


@contextmanager
def errors_as_sentences() -> Iterator[None]:
    """End with a sentence and an exit code where something raises what a person can do something about."""
    try:
        yield
    except TacitError as error:
        fail(str(error), WRONG_INPUT)
    except typer.TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # which typer does not export, and answers with the help
            raise
        command = getattr(getattr(error, "ctx", None), "command_path", "tacit")
        fail(f"{_sentence(error)} (see '{command} --help')", error.exit_code)
    except MemoryError as error:
        fail(f"this does not fit into memory: {error}", BROKEN_OUTPUT)
    except OSError as error:
        if error.errno == errno.EPIPE:  # whoever reads has seen enough
            raise
        _drop_stdout()
        fail(f"{error.filename or 'output'}: {error.strerror or error}", BROKEN_OUTPUT)


def fail(message: str, code: int) -> NoReturn:
    """Say what was wrong and end."""
    screen = Console(stderr=True, highlight=False, markup=False)
    # A line in a log or a pipe stays a line, so that it can be searched for.
    screen.print(Text.assemble(("error: ", "bold red"), message), soft_wrap=not screen.is_terminal)
    raise typer.Exit(code)


def console() -> Console:
    """Return where text results go."""
    return Console(highlight=False, markup=False)


@contextmanager
def working(message: str) -> Iterator[None]:
    """Show on a terminal's stderr that something takes a moment; elsewhere show nothing."""
    screen = Console(stderr=True, highlight=False)
    if screen.is_terminal:
        with screen.status(message):
            yield
    else:
        yield


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document: a key on a line, whatever it holds behind it."""
    lines = [f"  {json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in document.items()]
    sys.stdout.write("{\n" + ",\n".join(lines) + "\n}\n")


def plain_table(title: str | None = None) -> Table:
    """Return a table in the one style that all commands use."""
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )


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
    if epsilon == 0 or not math.isfinite(epsilon):
        return f"{epsilon:g}"
    scale = 10.0 ** (3 - math.floor(math.log10(epsilon)))
    return digits(math.ceil(epsilon * scale * (1 - 1e-12)) / scale)


def counted(number: int, noun: str) -> str:
    """Return a number of things: 1 agent, 2,000 agents."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


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
    import matplotlib as mpl

    check_picture(path)
    content, ending = io.BytesIO(), path.suffix.lower().removeprefix(".")
    # The same command makes the same file: no date, names that are not drawn by lot, nobody's own settings.
    metadata = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}[ending]
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update({"svg.hashsalt": "tacit", "pdf.fonttype": 42})
        figure.savefig(content, format=ending, dpi=200, metadata=metadata)
    write_atomically(path, content.getvalue())


def _sentence(error: typer.TyperException) -> str:
    """Say what was wrong with an option in our words, which name the value and the nearest right name."""
    if option := getattr(error, "option_name", None):
        near = getattr(error, "possibilities", None)
        if near is not None:
            return f"unknown option {option!r}" + (f"; did you mean {near[0]!r}?" if near else "")
    if isinstance(error.__cause__, ValidationError):
        first = error.__cause__.errors(include_url=False)[0]
        name = (*getattr(getattr(error, "param", None), "opts", ()), "a value")[0]
        if wanted := _WANTED.get(first["type"]):
            return f"{name} is {first['input']!r}, but it must be {wanted.format(**first.get('ctx', {}))}"
        return f"{name}: {first['msg'].removeprefix('Value error, ').rstrip('.')}"
    message = error.format_message().rstrip(".")
    return message[:1].lower() + message[1:]


def _drop_stdout() -> None:
    """Let what cannot be written go, so that the interpreter does not try again as it ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
