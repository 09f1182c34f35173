"""The program `tacit` and its commands.

A command is the module of its name in `tacit.cli.commands`, and a line in `COMMANDS`.
"""

from typing import Annotated

import typer

from tacit.cli.terminal.command import add_commands
from tacit.cli.terminal.errors import Commands

COMMANDS = (
    "train",
    "resume",
    "tune",
    "list",
    "ledger",
    "report",
    "compare",
    "budget",
    "graph",
    "data",
    "export",
    "verify",
    "sign",
    "key",
    "audit",
    "reproduce",
    "peer",
)

app = typer.Typer(
    name="tacit",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
add_commands(app, "tacit.cli.commands", COMMANDS)


def _print_version(asked: bool) -> None:
    if asked:
        from tacit import __version__

        typer.echo(f"tacit {__version__}")
        raise typer.Exit


@app.callback()
def _tacit(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Also show the Python traceback of an error, for code of your own.")
    ] = False,
) -> None:
    """Train one model across parties that do not trust each other."""
