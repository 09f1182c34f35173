"""The page of a check of one's own settings, and the texts that it shares with the terminal."""

from tacit.audit.pages.parts import Page, card, grid, header
from tacit.audit.pages.wording import Document
from tacit.report.html.frame import table, text

PARTS = {"influence": "one record's influence", "bits": "bits", "noise": "noise", "lots": "lots"}
"""What each detector tests."""


def verdict(document: Document) -> str:
    """Say in one sentence what was found."""
    if document["verdict"] == "fault found":
        return f"A fault was found: {', '.join(document['failed'])}. Do not rely on the ε of these settings."
    unclear = [f"{each['part']}: {each['name']}" for each in document["findings"] if each["outcome"] == "inconclusive"]
    return "No fault was found." + (f" Inconclusive: {', '.join(unclear)}." if unclear else "")


def risk(document: Document) -> str:
    """Say how often sound settings fail."""
    return f"Sound settings fail in at most {document['false_alarm']:.2g} of checks."


def make_page(document: Document) -> Page:
    """Return the header and the main part."""
    bad = document["verdict"] == "fault found"
    top = header(
        document["attack"],
        bad=bad,
        badge=document["verdict"].upper(),
        figure="Something is not as it should be" if bad else "These tests found no fault",
        terms=f"{len(document['findings'])} findings · {risk(document)}",
        verdict=verdict(document),
    )
    rows = [
        (PARTS[each["part"]], each["name"], each["outcome"].upper(), each["measured"], each["bound"])
        for each in document["findings"]
    ]
    found = table(("what", "test", "outcome", "measured", "bound"), rows, kind="stack")
    limits = "".join(f"<p>{text(each)}</p>" for each in document["cannot_show"])
    return top, grid(
        document,
        card("Findings", f'<p class="note">{text(document["about"])}</p>{found}', kind="full"),
        card("What this cannot show", limits),
    )
