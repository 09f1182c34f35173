"""How commands fail: with a sentence on stderr and an exit code, and with a traceback only where one is asked for."""

import errno
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import typer
from pydantic import ValidationError
from typer.core import TyperGroup

from tacit.cli.terminal.output import complain
from tacit.errors import TacitError
from tacit.io.validation import mistake

WRONG_INPUT, BROKEN_OUTPUT = 2, 1


class Commands(TyperGroup):
    """A group of commands whose errors are sentences on stderr, never tracebacks."""

    _asked = "tacit"  # the command whose help has the answer

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Read the options that stand before a command."""
        with errors_as_sentences(lambda: self._asked):
            return super().make_context(*args, **options)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that is meant."""
        self._asked = ctx.command_path
        name, command, rest = super().resolve_command(ctx, args)
        self._asked = f"{ctx.command_path} {name}"
        return name, command, rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command and see its output off."""
        with errors_as_sentences(lambda: self._asked, debug=bool(ctx.find_root().params.get("debug"))):
            result = super().invoke(ctx)
            sys.stdout.flush()  # here, where a full disk can still be told
            return result


@contextmanager
def errors_as_sentences(asked: Callable[[], str], *, debug: bool = False) -> Iterator[None]:
    """End with a sentence and an exit code where something raises what a person can do something about.

    debug: show the traceback of the error before the sentence.
    """
    try:
        yield
    except TacitError as error:
        if debug:
            traceback.print_exception(error)
        fail(str(error), WRONG_INPUT)
    except typer.TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # which typer does not export, and answers with the help
            raise
        command = getattr(getattr(error, "ctx", None), "command_path", asked())
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
    complain(message)
    raise typer.Exit(code)


def _sentence(error: typer.TyperException) -> str:
    """Say what was wrong with an option in our words, which name the value and the nearest right name."""
    if option := getattr(error, "option_name", None):
        near = getattr(error, "possibilities", None)
        if near is not None:
            return f"unknown option {option!r}" + (f"; did you mean {near[0]!r}?" if near else "")
    if isinstance(error.__cause__, ValidationError):
        first = error.__cause__.errors(include_url=False)[0]
        name = (*getattr(getattr(error, "param", None), "opts", ()), "a value")[0]
        return mistake(name, first)
    message = error.format_message().rstrip(".")
    return message[:1].lower() + message[1:]


def _drop_stdout() -> None:
    """Let what cannot be written go, so that the interpreter does not try again as it ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
