"""Writes the command reference from the program itself while the site is built, so that it cannot go stale.

`commands.md` has one line, `{{ commands }}`, in whose place this puts a section for every command.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer.main
from sphinx.application import Sphinx

from tacit.cli import app as tacit_app

PLACE = "{{ commands }}"
_NAMES = {int: "INTEGER", float: "NUMBER", str: "TEXT", Path: "PATH"}
_MARKUP = re.compile(r"(?<!\\)\[/?[a-z ]*\]")


def setup(app: Sphinx) -> dict[str, Any]:
    """Tell Sphinx about it."""
    app.connect("source-read", _fill_in)
    return {"parallel_read_safe": True}


def _fill_in(app: Sphinx, docname: str, source: list[str]) -> None:
    source[0] = source[0].replace(PLACE, "\n".join(_sections()))


def _sections() -> Iterator[str]:
    for name, command in _commands(typer.main.get_command(tacit_app)):
        text, example = _help(command.help)
        arguments = [param for param in command.params if not param.opts[0].startswith("-")]
        options = [param for param in command.params if param.opts[0].startswith("-")]
        given = ["COMMAND", "[OPTIONS]"] if hasattr(command, "commands") else ["[OPTIONS]"]
        usage = " ".join(["tacit", name, *given, *map(_placeholder, arguments)])
        yield from (f"## tacit {name}", "", text, "", "```text", usage, "```", "")
        if example:
            yield from ("Example:", "", "```sh", example, "```", "")
        if not command.params:
            continue
        yield from ("| option | takes | default | meaning |", "|---|---|---|---|")
        for param in [*arguments, *options]:
            if not param.hidden:
                yield "| " + " | ".join(cell.replace("|", "\\|") for cell in _row(param)) + " |"
        yield ""


def _commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every command with its name; those of a group of commands come after it."""
    for name, command in sorted(group.commands.items()):
        yield f"{before}{name}", command
        if hasattr(command, "commands"):
            yield from _commands(command, f"{before}{name} ")


def _help(text: str) -> tuple[str, str]:
    """Return what a command says of itself, and its example."""
    before, _, after = _plain(text).partition("Example")
    return before.strip(), " ".join(after.strip(" :\n").split())


def _row(param: Any) -> tuple[str, str, str, str]:
    meaning = _plain(param.help or "")
    default = "" if param.default is None or param.default is False else str(param.default)
    if found := re.search(r" \\?\[(.*)\]$", meaning):  # where it stands in the text
        meaning, default = meaning[: found.start()], found[1]
    names = ", ".join(f"`{name}`" for name in (*param.opts, *param.secondary_opts))
    if param.required:
        default = "required"
    elif default:
        default = f"`{default}`"
    return names, _kind(param), default, meaning


def _kind(param: Any) -> str:
    if getattr(param, "is_flag", False):
        return ""
    kind = param.type_descriptor.annotation
    if get_origin(kind) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(kind))
    return param.metavar or _NAMES.get(get_args(kind)[0] if get_origin(kind) is list else kind, "TEXT")


def _placeholder(argument: Any) -> str:
    name = (argument.metavar or argument.name).upper() + ("..." if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _plain(text: str) -> str:
    """Take the terminal's markup out."""
    return _MARKUP.sub("", text)
