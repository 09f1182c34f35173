"""The page of a check of one's own settings, and the words that a terminal shares with it."""

from tacit.audit.pages.parts import header, settings
from tacit.audit.pages.wording import Document
from tacit.report.html.frame import table, text

PARTS = {
    "influence": "one record's influence",
    "bits": "bits",
    "noise": "noise",
    "lots": "lots",
}
"""What each detector looks at."""


def verdict(document: Document) -> str:
    """Say in one sentence what came out."""
    if document["verdict"] == "no fault found":
        open_ = [
            f"{each['part']}: {each['name']}" for each in document["findings"] if each["outcome"] == "inconclusive"
        ]
        return "No fault was found." + (f" Inconclusive: {', '.join(open_)}." if open_ else "")
    return f"A fault was found: {', '.join(document['failed'])}. Do not rely on the ε of these settings."


def risk(document: Document) -> str:
    """Say how often a sound system fails."""
    return f"Sound settings fail in {document['false_alarm']:.2g} of checks at most."


def parts(document: Document) -> tuple[str, str]:
    """Return the header and the main part."""
    bad = document["verdict"] == "fault found"
    top = header(
        document["attack"],
        bad=bad,
        badge=document["verdict"].upper(),
        figure="Something is not as it should be" if bad else "No fault was found, as far as can be seen",
        terms=f"{len(document['findings'])} findings · {risk(document)}",
        words=verdict(document),
    )
    rows = [
        (PARTS[each["part"]], each["name"], each["outcome"].upper(), text(each["measured"]), text(each["bound"]))
        for each in document["findings"]
    ]
    found = table(("what", "test", "outcome", "measured", "bound"), rows, kind="stack")
    unseen = "".join(f"<p>{text(words)}</p>" for words in document["cannot_show"])
    return top, (
        f'<div class="grid"><section class="card full"><h2>Findings</h2><p class="note">{text(document["about"])}</p>{found}</section>'
        f'<section class="card"><h2>What this cannot show</h2>{unseen}</section>{settings(document)}</div>'
    )
