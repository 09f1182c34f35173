"""`tacit peer check`: everything that can be wrong before the run begins."""

from typing import Annotated

import typer

from tacit.cli.peer.agreement import HERE
from tacit.cli.peer.options import SiteFolder, at_site
from tacit.cli.terminal.command import option
from tacit.cli.terminal.output import FOUND_FAULT, console, plain_table


def command(
    site: SiteFolder = HERE,
    seconds: Annotated[float, option("SECONDS", "How long to wait for neighbours.", min=0)] = 10.0,
) -> None:
    """Check signatures, code, data, budget, reachability, clocks and versions, without training.

    Neighbours answer while they run tacit peer check or tacit peer run. Exit code 1 if something is wrong; a neighbour that did not
    answer is shown, and is not an error.

    Example: tacit peer check --site north
    """
    with at_site(site) as here:
        from tacit.peer.checking import check_site

        found = check_site(here, seconds)
    rows = [(line.what, {True: "ok", False: "WRONG", None: "?"}[line.good], line.words) for line in found]
    console().print(plain_table(None, "check", "result", "", rows=rows))
    if any(line.good is False for line in found):
        raise typer.Exit(FOUND_FAULT)
