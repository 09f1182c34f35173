"""`tacit peer`: one site of a consortium. Each command is a module of `tacit.cli.peer`."""

import typer

from tacit.cli.terminal.command import add_commands
from tacit.cli.terminal.errors import Commands

COMMANDS = ("init", "card", "agreement", "check", "run", "status", "demo")

command = typer.Typer(cls=Commands, no_args_is_help=True, rich_markup_mode="rich")
add_commands(command, "tacit.cli.peer", COMMANDS)


@command.callback()
def _peer() -> None:
    """Train between real sites: each runs one agent beside its own data and talks to its neighbours alone.

    There is no server. Every site makes a key, all sign one agreement, and each runs its own process. See tacit peer demo for all of
    that on this machine, and docs/peers.md for three hospitals, step by step.

    Example: tacit peer demo --sites 4 --rounds 20
    """
