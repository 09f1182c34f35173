"""An audit as a page: what was claimed, what was found, what the attacker saw, and what that means."""

from pathlib import Path

from tacit.audit.pages import charts as page_charts
from tacit.audit.pages import check as page_check
from tacit.audit.pages import noise as page_noise
from tacit.audit.pages import one_run as page_one_run
from tacit.audit.pages.parts import bound_header, bound_tiles, roc_figure, seen, settings
from tacit.audit.pages.wording import (
    METHODS,
    Document,
    bounds_of,
    confidence,
    errors_of,
    estimate,
    heading,
    intervals,
    methods,
    reach,
)
from tacit.io.files import write_atomically
from tacit.report.html.charts import Chart
from tacit.report.html.frame import document as framed
from tacit.report.html.frame import table, text
from tacit.report.wording import number

_CHOSEN = {"on the first part": "first runs"}
_CAPTION = (
    "A hit is a run with the record that the attack calls so; a false alarm is one without it. Higher is worse for privacy. "
    "On the left, lines rest on few runs and may pass the dashed limit by luck; what counts are the bounds, which are measured "
    "at the dots."
)


def write_page(document: Document, path: Path | str) -> Path:
    """Write the page of an audit to `path`, whole or not at all, and return where it is."""
    return write_atomically(path, page(document).encode())


def page(document: Document) -> str:
    """Return the page of an audit, from what `audit.json` has."""
    attack, charts = document["attack"], dict[str, Chart]()
    if document.get("roc"):
        charts["roc"] = page_charts.roc(document)
    if attack["kind"] == "noise":
        header, main = page_noise.parts(document)
    elif attack["kind"] == "check":
        header, main = page_check.parts(document)
    elif attack["kind"] == "one-run":
        header, main = page_one_run.parts(document, charts.get("roc"))
    else:
        header, main = _parts(document, charts["roc"])
    return framed(
        title=f"{attack['title']}, {attack['algorithm']} · Tacit",
        header=header,
        main=main,
        charts=charts,
        source="the scores in the audit’s folder" if "looks" in document else "audit.json alone",
    )


def _parts(document: Document, chart: Chart) -> tuple[str, str]:
    """Return the header and the main part of an audit of many runs with a record and without."""
    runs = document["runs_per_side"]
    tiles = bound_tiles(
        document, ("runs", f"2 × {runs:,}", "with the record, and without"), "that all bounds hold at once"
    )
    main = "".join(
        [
            tiles,
            '<div class="grid">',
            roc_figure(chart, _CAPTION),
            _looks(document),
            seen(document["attack"]),
            _meaning(document),
            settings(document),
            "</div>",
        ]
    )
    return bound_header(document, f"{runs:,} runs with the record and as many without"), main


def _looks(document: Document) -> str:
    looks = document["looks"]
    kinds = methods(looks)
    head = (
        "statistic",
        "cut at",
        "chosen",
        "false alarms",
        "misses",
        *(f"ε ≥ {heading(m)}" for m in kinds),
        "estimate (interval)",
    )
    rows = [
        (
            text(look["statistic"]),
            number(look["threshold"]),
            _CHOSEN.get(look["chosen"], look["chosen"]),
            *errors_of(look),
            *bounds_of(look, kinds),
            estimate(look),
        )
        for look in looks
    ]
    when = " ".join(f"“{heading(m).capitalize()}” {METHODS[m][1]}." for m in kinds if m in METHODS)
    return (
        '<section class="card full"><h2>Looks and bounds</h2><p class="note">Each look calls all runs with a score above '
        "its cut “with the record” and counts the errors. A cut that was chosen on the first runs is measured on the "
        f"others.</p>{table(head, rows, kind='stack')}"
        f'<p class="note">{text(when)} {text(intervals(document))}</p></section>'
    )


def _meaning(document: Document) -> str:
    sure = confidence(document)
    return (
        '<section class="card"><h2>What this means, and what not</h2>'
        f"<p>A lower bound says: at {text(sure)} confidence, at least this much privacy is lost. A bound above the claim "
        "shows that the claim is wrong.</p>"
        "<p>A bound below the claim proves nothing about it. A better attack, another record or more runs might show more. "
        f"With few runs even a bad leak can stay below the claim. {text(reach(document))}</p>"
        "<p>The bounds are about this system with these settings, this one record, and data sets that differ by adding or "
        "removing it. Nothing follows for other settings.</p>"
        '<p class="note">The confidence is that of one audit. Of many audits of sound systems, a few will call one broken '
        "by chance; play such an audit again in a new folder before you believe it.</p></section>"
    )
