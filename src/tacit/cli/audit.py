"""`tacit audit`: attack systems that make a promise, and tell what the attacks prove. Each attack is a command."""

import typer

from tacit.cli import audit_distance, audit_membership, audit_neighbor, audit_noise, audit_one_run
from tacit.cli.failing import Commands

app = typer.Typer(cls=Commands, no_args_is_help=True, rich_markup_mode="rich")


@app.callback()
def _audit() -> None:
    """Attack a system of one's own, and learn how much privacy it loses at least.

    Exit code 1 means that a claim was found broken; 0 that it was not, which is no proof that it holds.

    Example: tacit audit neighbor --algorithm dsgd --rounds 50
    """


app.command("neighbor")(audit_neighbor.neighbor)
app.command("membership")(audit_membership.membership)
app.command("noise")(audit_noise.noise)
app.command("one-run")(audit_one_run.one_run)
app.command("distance")(audit_distance.distance)
