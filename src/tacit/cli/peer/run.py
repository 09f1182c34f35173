"""`tacit peer run`: take part in the run, in this process."""

from pathlib import Path

import typer

from tacit.cli.peer.agreement import HERE
from tacit.cli.peer.options import SiteFolder, at_site
from tacit.cli.terminal.output import console, messages
from tacit.io.stopping import BOTH
from tacit.runs.events import say_links_used
from tacit.runs.folder import RunFolder

STOPPED = 128 + BOTH[1]


def command(site: SiteFolder = HERE) -> None:
    """Take part in the run that this site has signed, until it is finished.

    Start it again after any failure: it continues where it was. SIGTERM or Ctrl-C ends it at the end of a round; a second one at once.
    SIGHUP reads new versions of the agreement. Logs are lines of JSON on stderr. A run that is finished says so at once; it then only
    stays for neighbours that may still need its last messages, for as long as was agreed.

    Example: tacit peer run --site north
    """
    with at_site(site) as here:
        from tacit.peer.logs import log_json_lines
        from tacit.peer.reading import find_finished
        from tacit.peer.service import Service, run_site
        from tacit.peer.site_keys import erase_left_key

        if (done := find_finished(here)) is not None:
            _print_finished(site / done.folder.path)
            if not done.waiting:
                erase_left_key(done.folder)
                return
            names = " and ".join(done.waiting)
            messages().print(f"staying for {names}, who may still need messages of the last rounds; Ctrl-C ends this")
        log_json_lines()
        service: list[Service] = []
        outcome = run_site(here, on_start=service.append)
        run = service[0].chain.current.run_name
        place = site / service[0].settings.runs / run
    if done is not None:
        return
    if outcome == "stopped":
        messages().print(f"stopped after a round. Continue with: tacit peer run --site {site}", soft_wrap=True)
        raise typer.Exit(STOPPED)
    _print_finished(place)


def _print_finished(place: Path) -> None:
    ledger = f"tacit ledger --runs {place.parent}"
    console().print(f"{place}: finished. See models.safetensors, summary.json and report.html there, and {ledger}")
    if (summary := RunFolder(place).summary()) is not None:
        console().print(say_links_used(summary))
