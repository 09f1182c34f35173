"""How commands fail: with a sentence on stderr and an exit code, and with a traceback only under --debug."""

import errno
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import typer
from pydantic import ValidationError
from typer.core import TyperGroup

from tacit.cli.terminal.output import complain
from tacit.errors import TacitError, suggest
from tacit.io.validation import mistake

FAILED = 2
"""The exit code where a command could not do what was asked. 1 is a verdict, as that of an audit, and never a mishap."""


class Commands(TyperGroup):
    """A group of commands whose errors are sentences on stderr, never tracebacks."""

    def __init__(self, *, help: str | None = None, **options: Any) -> None:
        super().__init__(help=_unwrap(help), **options)
        for command in self.commands.values():
            command.help = _unwrap(command.help)

    _asked = "tacit"  # the command whose help explains what was wrong

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options of the group itself."""
        return _show_flags_without_type(super().get_params(ctx))

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Read the options before a command."""
        with errors_as_sentences(lambda: self._asked):
            return super().make_context(*args, **options)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that is meant."""
        self._asked = ctx.command_path
        name, command, rest = super().resolve_command(ctx, args)
        assert command is not None
        _show_flags_without_type(command.get_params(ctx))
        self._asked = f"{ctx.command_path} {name}"
        return name, command, rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command and flush its output."""
        with errors_as_sentences(lambda: self._asked, debug=bool(ctx.find_root().params.get("debug"))):
            result = super().invoke(ctx)
            sys.stdout.flush()  # here, so that a full disk is still reported
            return result


@contextmanager
def errors_as_sentences(asked: Callable[[], str], *, debug: bool = False) -> Iterator[None]:
    """Turn errors that a user can do something about into a sentence and an exit code.

    debug: show the traceback of the error before the sentence.
    """
    try:
        yield
    except TacitError as error:
        if debug:
            traceback.print_exception(error)
        fail(str(error), FAILED)
    except typer.TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # typer does not export it, and answers it with the help
            raise
        command = getattr(getattr(error, "ctx", None), "command_path", asked())
        fail(f"{_sentence(error)} (see '{command} --help')", error.exit_code)
    except MemoryError as error:
        fail(f"this does not fit into memory: {error}", FAILED)
    except OSError as error:
        if error.errno == errno.EPIPE:  # the reader has closed the pipe
            raise
        _drop_stdout()
        fail(f"{error.filename or 'output'}: {error.strerror or error}", FAILED)


def fail(message: str, code: int) -> NoReturn:
    """Print what was wrong and end."""
    complain(message)
    raise typer.Exit(code)


class _Unquoted(str):
    __repr__ = str.__str__


def _sentence(error: typer.TyperException) -> str:
    """Say what was wrong with an option, with its value and the nearest right name."""
    if (option := getattr(error, "option_name", None)) and getattr(error, "possibilities", None) is not None:
        context: Any = getattr(error, "ctx", None)
        params = [] if context is None else context.command.params
        known = [name for each in params for name in each.opts if name.startswith("--")]
        return f"unknown option {option!r}{suggest(option, known, cutoff=0.6)}"
    if isinstance(error.__cause__, ValidationError):
        first: dict[str, Any] = {**error.__cause__.errors(include_url=False)[0]}
        if first["type"].startswith(("greater_than", "less_than")):  # then it is a number
            first["input"] = _Unquoted(first["input"])
        name = (*getattr(getattr(error, "param", None), "opts", ()), "a value")[0]
        return mistake(name, first)
    message = error.format_message().rstrip(".")
    return message[:1].lower() + message[1:]


def _show_flags_without_type(options: list[Any]) -> list[Any]:
    """Let help show no type for options that take no value, such as --help."""
    for each in options:
        if getattr(each, "is_flag", False) and each.metavar is None:
            each.metavar = ""
    return options


def _unwrap(help: str | None) -> str | None:
    """Join the lines of each paragraph, so that they are wrapped at the width of the terminal."""
    return help and re.sub(r"(?<!\n)\n(?!\n)", " ", help)


def _drop_stdout() -> None:
    """Drop what cannot be written, so that the interpreter does not try again when it exits."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
