"""`tacit peer status`: what this site knows of its run."""

import json as json_module
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from tacit.cli.peer.agreement import HERE
from tacit.cli.peer.options import SiteFolder, at_site
from tacit.cli.terminal.command import Json
from tacit.cli.terminal.output import console, plain_table, print_apart, print_json, round_up


def command(site: SiteFolder = HERE, json: Json = False) -> None:
    """Show what this site knows: rounds, links and which of them were used, ε against its budget.

    A site that is running and has a status page is asked; otherwise its folder is read.

    Example: tacit peer status --site north
    """
    with at_site(site) as here:
        found = _from_page(here)
        if found is None or found["phase"] in ("finishing", "finished"):  # then the folder says more
            from tacit.peer.reading import status_in_folder

            found = status_in_folder(here)
    if json:
        print_json(found)
        return
    screen, facts = console(), plain_table(f"{found['name']}: run {found['run']}", "what", "value")
    facts.add_row("state", found["phase"])
    facts.add_row("round", f"{found['round']} of {found['rounds']}")
    if found["last_used"] is not None:
        facts.add_row("links in the last round", f"{found['last_used'][0]} of {found['last_used'][1]} used")
    if found["epsilon_charged"] is not None:
        allowed = "" if found["epsilon_allowed"] is None else f" of {found['epsilon_allowed']:g} allowed,"
        ended = found["phase"] in ("finishing", "finished")
        named = "ε spent" if ended else "ε charged"
        facts.add_row(named, f"{round_up(found['epsilon_charged'])}{allowed} {found['epsilon_terms']}")
        if found["epsilon_against_all"] is not None:
            facts.add_row("", f"{round_up(found['epsilon_against_all'])} against all other members together")
        if not ended:
            facts.add_row("", "the whole plan is charged until the run is finished")
            facts.add_row(
                "ε so far", f"at most {round_up(found['epsilon_made'])}, of {found['queries']:,} queries made"
            )
    if found["accuracy"] is not None:
        facts.add_row("accuracy", f"{100 * found['accuracy']:.1f} %")
    rows = [[str(link[key]) for key in ("neighbor", "used", "skipped", "state")] for link in found["links"]]
    print_apart(screen, facts, plain_table("links", "neighbour", ">used", ">skipped", "now", rows=rows))


def _from_page(here: Path) -> dict[str, Any] | None:
    """Ask the running process, if it has a page."""
    from tacit.peer.settings import SiteSettings

    address = SiteSettings.read(here).status
    if not address:
        return None
    try:
        with build_opener(ProxyHandler({})).open(f"http://{address}/status", timeout=5) as answer:
            found: dict[str, Any] = json_module.loads(answer.read())
    except (URLError, OSError, ValueError):
        return None
    for link in found["links"]:
        link["state"] = "up" if link["up"] else f"down: {link['why']}"
        if link["waits_why"]:
            link["state"] += f"; waiting for {link['waits_seconds']:.0f} s: {link['waits_why']}"
    return found
