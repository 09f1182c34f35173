"""The page of an audit: what was claimed, what was found, what the attacker saw, and what that means."""

from collections.abc import Callable
from pathlib import Path

from tacit.audit.pages import charts, check, noise
from tacit.audit.pages.bounds import one_run_page, scores_page
from tacit.audit.pages.parts import Page
from tacit.audit.pages.wording import Document
from tacit.io.files import write_atomically
from tacit.report.html.frame import document as frame

PAGES: dict[str, Callable[[Document], Page]] = {
    "check": check.make_page,
    "noise": noise.make_page,
    "one-run": one_run_page,
}
"""The pages of audits that are not attacks with scores of many runs, by kind; all others share one."""


def write_page(document: Document, path: Path | str) -> Path:
    """Write the page of an audit to `path`, atomically, and return the path."""
    return write_atomically(path, page(document).encode())


def page(document: Document) -> str:
    """Return the page of an audit, from what `audit.json` has."""
    attack = document["attack"]
    header, main = PAGES.get(attack["kind"], scores_page)(document)
    return frame(
        title=f"{attack['title']}, {attack['algorithm']} · Tacit",
        header=header,
        main=main,
        charts={"roc": charts.roc(document)} if document.get("roc") else {},
        source="the scores in the audit’s folder" if "looks" in document else "audit.json alone",
    )
