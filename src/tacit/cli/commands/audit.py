"""`tacit audit`: attack systems that claim to be private, and report what the attacks prove. Each attack is a command.

A word that is not the name of an attack is a run file, whose settings are checked.
"""

from typing import Any

import typer

from tacit.cli.terminal.command import command_of
from tacit.cli.terminal.errors import Commands
from tacit.registry import AUDITS

CHECK = "check"


class Audits(Commands):
    """The attacks by name; `tacit audit FILE.toml` is the check of that file's settings."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the name of the check before a file."""
        named = next((word for word in args if not word.startswith("-")), "")
        if named not in self.commands and any(word.endswith(".toml") for word in args):
            args = [CHECK, *args]
        return super().parse_args(ctx, args)


command = typer.Typer(
    cls=Audits, no_args_is_help=True, rich_markup_mode="rich", subcommand_metavar="FILE.toml | COMMAND [ARGS]..."
)
for _name, _audit in AUDITS.items():
    command.command(_name, hidden=_audit.hidden)(command_of(_audit))


@command.callback()
def _describe() -> None:
    """Attack a system of your own, and learn how much privacy it loses at least.

    Start with tacit audit FILE.toml, which checks the settings of a run on made-up records in about a minute. Of the attacks
    below, noise is the cheapest and neighbor the strongest.

    Exit code 1 means that a claim was found to be broken; 0 that it was not, which does not prove that it holds.

    Example: tacit audit neighbor --algorithm dsgd --rounds 50
    """
