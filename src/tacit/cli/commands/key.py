"""`tacit key`: make keys for signing heads."""

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.terminal.errors import Commands
from tacit.cli.terminal.output import console

command = typer.Typer(cls=Commands, rich_markup_mode="rich", no_args_is_help=True)


@command.callback()
def _key() -> None:
    """Make keys for signing the heads of ledgers and runs.

    Example: tacit key new owner.key
    """


@command.command("new")
def new(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File for the private key; FILE.pub is the public one.")],
) -> None:
    """Make an Ed25519 key. Only its owner can read the private key; no file is ever overwritten.

    Example: tacit key new owner.key
    """
    from tacit.evidence.signatures import new_key, public_file

    public = new_key(file)
    console().print(f"{file}: keep this secret")
    console().print(f"{public_file(file)}: give this to whoever should verify; it is {public}")
