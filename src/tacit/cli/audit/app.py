"""`tacit audit`: attack systems that make a promise, and tell what the attacks prove. Each attack is a command.

What is not the name of one is a run file, whose settings are checked.
"""

from typing import Any

import typer

from tacit.cli.audit import check as audit_check
from tacit.cli.audit import distance as audit_distance
from tacit.cli.audit import membership as audit_membership
from tacit.cli.audit import neighbor as audit_neighbor
from tacit.cli.audit import noise as audit_noise
from tacit.cli.audit import one_run as audit_one_run
from tacit.cli.terminal.failing import Commands

CHECK = "check"


class Audits(Commands):
    """The attacks by name; `tacit audit FILE.toml` is the check of that file's settings."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read what was typed, with the check's name put before a file."""
        named = next((word for word in args if not word.startswith("-")), "")
        if named not in self.commands and any(word.endswith(".toml") for word in args):
            args = [CHECK, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=Audits, no_args_is_help=True, rich_markup_mode="rich")


@app.callback()
def _audit() -> None:
    """Attack a system of one's own, and learn how much privacy it loses at least.

    tacit audit FILE.toml checks the settings of a run, with made-up records, in about a minute. Run it first.

    Exit code 1 means that a claim was found broken; 0 that it was not, which is no proof that it holds.

    Example: tacit audit neighbor --algorithm dsgd --rounds 50
    """


app.command(CHECK, hidden=True)(audit_check.check)
app.command("neighbor")(audit_neighbor.neighbor)
app.command("membership")(audit_membership.membership)
app.command("noise")(audit_noise.noise)
app.command("one-run")(audit_one_run.one_run)
app.command("distance")(audit_distance.distance)
