"""An audit as a page: what was claimed, what was found, what the attacker saw, and what that means."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tacit.audit import page_charts
from tacit.audit.page_words import (
    METHODS,
    Document,
    bounds_of,
    claimed,
    confidence,
    consequence,
    errors_of,
    heading,
    lower,
    methods,
    verdict,
    whatever_is_wrong,
)
from tacit.files import write_atomically
from tacit.report.charts import Chart
from tacit.report.frame import document as framed
from tacit.report.frame import figure, listing, table, text, tile
from tacit.report.words import ADJACENCIES, agents, number, percent

_CHOSEN = {"on the first part": "on first runs"}
_FIELDS = {
    "algorithm": "algorithm",
    "dataset": "data",
    "agents": "agents",
    "graph": "graph",
    "target": "attacked agent",
    "observers": "watching agents",
    "queries": "answers of the attacked agent",
    "exact_answers": "answers seen exactly",
    "share_seen": "share of its answers seen",
}


def write_page(document: Document, path: Path | str) -> Path:
    """Write the page of an audit to `path`, whole or not at all, and return where it is."""
    return write_atomically(path, page(document).encode())


def page(document: Document) -> str:
    """Return the page of an audit, from what `audit.json` has."""
    attack, chart = document["attack"], page_charts.roc(document)
    main = "".join(
        [
            _tiles(document),
            '<div class="grid">',
            figure("roc", "How well the attack tells", _caption(chart), chart, kind="full tall"),
            _looks(document),
            _seen(attack),
            _meaning(document),
            _settings(document),
            "</div>",
        ]
    )
    return framed(
        title=f"{attack['title']}, {attack['algorithm']} · Tacit",
        header=_header(document),
        main=main,
        charts={"roc": chart},
        source="the scores in the audit’s folder",
    )


def _header(document: Document) -> str:
    attack, claim = document["attack"], document["claimed"]
    broken = document["verdict"] == "broken"
    badge = '<span class="badge warned">✕ BROKEN</span>' if broken else '<span class="badge">NO VIOLATION FOUND</span>'
    terms = (
        f"claimed: ε = {claimed(document)} at δ = {claim['delta']:g}, {ADJACENCIES[claim['adjacency']]} adjacency · "
        f"{document['runs_per_side']:,} runs with the record and as many without"
    )
    return (
        f'<p class="eyebrow">Tacit · audit</p><h1>{text(attack["title"])}</h1>'
        f'<p class="about">{text(attack["about"])}</p>'
        f'<section class="card guarantee{" warned" if broken else ""}" aria-label="Verdict">{badge}'
        f'<p class="figure">ε ≥ {lower(document["lower_bound"])}</p><p class="terms">{text(terms)}</p>'
        f"<p>{text(verdict(document))} {text(consequence(document))}</p></section>"
    )


def _tiles(document: Document) -> str:
    runs, bound, claim = document["runs_per_side"], document["lower_bound"], document["claimed"]
    share = bound / claim["epsilon"] if claim["epsilon"] else None
    weaker = whatever_is_wrong(document)
    more = "of all looks below" if weaker is None else f"if only the noise is wrong; else {lower(weaker)}"
    return (
        '<div class="tiles">'
        + tile("claimed ε", claimed(document), f"at δ = {claim['delta']:g}")
        + tile("largest lower bound", lower(bound), more, share)
        + tile("runs", f"2 × {runs:,}", "with the record, and without")
        + tile("confidence", confidence(document), "that all bounds hold at once")
        + "</div>"
    )


def _caption(chart: Chart) -> str:
    """Say how the chart is read, with a key for where there is little room."""
    key = "".join(
        f'<span><span class="swatch {trace["line"]["dash"]}" style="border-top-color:var({trace["line"]["color"]})"></span>'
        f"{trace['name']}</span>"
        for trace in chart["data"]
        if trace.get("showlegend", True)
    )
    return (
        "A hit is a run with the record that the attack calls so; a false alarm is one without it. Higher is worse for "
        "privacy. On the left, lines rest on few runs and may pass the dashed limit by luck; what counts are the bounds, "
        f'which are measured at the dots.<div class="key">{key}</div>'
    )


def _looks(document: Document) -> str:
    looks = document["looks"]
    kinds = methods(looks)
    head = (
        "statistic",
        "cut at",
        "chosen",
        "false alarms",
        "misses",
        *(f"ε ≥ ({heading(m)})" for m in kinds),
        "estimate",
    )
    rows = [
        (
            text(look["statistic"]),
            number(look["threshold"]),
            _CHOSEN.get(look["chosen"], look["chosen"]),
            *errors_of(look),
            *bounds_of(look, kinds),
            number(look["estimate"], 3),
        )
        for look in looks
    ]
    when = " ".join(f"“{heading(m).capitalize()}” {METHODS[m][1]}." for m in kinds if m in METHODS)
    return (
        '<section class="card full"><h2>Looks and bounds</h2><p class="note">Each look calls all runs with a score above '
        "its cut “with the record” and counts the errors. A cut that was chosen on the first runs is measured on the "
        f"others.</p>{table(head, rows, kind='stack')}"
        f'<p class="note">{text(when)} “Estimate” takes the counts at their face and proves nothing.</p></section>'
    )


def _seen(attack: Mapping[str, Any]) -> str:
    """What the attacker had to go by."""
    pairs = [(label, _field(name, attack[name])) for name, label in _FIELDS.items() if attack.get(name) is not None]
    return (
        f'<section class="card"><h2>What the attacker saw</h2><p>{text(attack["saw"])}</p>'
        f"<p>{text(attack['record'])}</p>{listing(pairs)}</section>"
    )


def _field(name: str, value: Any) -> str:
    if name == "share_seen":
        return percent(value)
    if name == "observers":
        return agents(sorted(value))
    return f"{value:,}" if isinstance(value, int) else str(value)


def _meaning(document: Document) -> str:
    sure = confidence(document)
    return (
        '<section class="card"><h2>What this means, and what not</h2>'
        f"<p>A lower bound says: at {text(sure)} confidence, at least this much privacy is lost. A bound above the claim "
        "shows that the claim is wrong.</p>"
        "<p>A bound below the claim proves nothing about it. A better attack, another record or more runs might show more. "
        "With few runs even a bad leak can stay below the claim.</p>"
        "<p>The bounds are about this system with these settings, this one record, and data sets that differ by adding or "
        "removing it. Nothing follows for other settings.</p>"
        '<p class="note">The confidence is that of one audit. Of many audits of sound systems, a few will call one broken '
        "by chance; play such an audit again in a new folder before you believe it.</p></section>"
    )


def _settings(document: Document) -> str:
    return (
        '<details class="card full"><summary>All settings (audit.json)</summary>'
        f"<pre>{text(json.dumps(document['settings'], indent=2, ensure_ascii=False))}</pre></details>"
    )
