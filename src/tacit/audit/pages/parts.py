"""Parts that the pages of all audits have: the verdict on top, what the attacker saw, and the settings at the end."""

import json
from collections.abc import Mapping
from typing import Any

from tacit.audit.pages.wording import Document, claimed, confidence, consequence, lower, verdict, whatever_is_wrong
from tacit.report.html.charts import Chart
from tacit.report.html.frame import figure, listing, text, tile
from tacit.report.wording import ADJACENCIES, agents, percent

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


def header(attack: Mapping[str, Any], *, bad: bool, badge: str, figure: str, terms: str, words: str) -> str:
    """Return the top of a page: what was audited, and a card with the verdict."""
    shown = f'<span class="badge warned">✕ {text(badge)}</span>' if bad else f'<span class="badge">{text(badge)}</span>'
    return (
        f'<p class="eyebrow">Tacit · audit</p><h1>{text(attack["title"])}</h1>'
        f'<p class="about">{text(attack["about"])}</p>'
        f'<section class="card guarantee{" warned" if bad else ""}" aria-label="Verdict">{shown}'
        f'<p class="figure">{text(figure)}</p><p class="terms">{text(terms)}</p><p>{text(words)}</p></section>'
    )


def bound_header(document: Document, played: str) -> str:
    """Return the top of a page on a claim and a lower bound. `played` says how much was."""
    claim, broken = document["claimed"], document["verdict"] == "broken"
    return header(
        document["attack"],
        bad=broken,
        badge="BROKEN" if broken else "NO VIOLATION FOUND",
        figure=f"ε ≥ {lower(document['lower_bound'])}",
        terms=f"claimed: ε = {claimed(document)} at δ = {claim['delta']:g}, {ADJACENCIES[claim['adjacency']]} adjacency · "
        f"{played}",
        words=f"{verdict(document)} {consequence(document)}",
    )


def bound_tiles(document: Document, played: tuple[str, str, str], sure: str) -> str:
    """Return the claim, the bound, how much was played, and the confidence; `sure` says of what."""
    bound, claim = document["lower_bound"], document["claimed"]
    share = bound / claim["epsilon"] if claim["epsilon"] else None
    weaker = whatever_is_wrong(document)
    more = "of all bounds below" if weaker is None else f"if only the noise is wrong; else {lower(weaker)}"
    return (
        '<div class="tiles">'
        + tile("claimed ε", claimed(document), f"at δ = {claim['delta']:g}")
        + tile("largest lower bound", lower(bound), more, share)
        + tile(*played)
        + tile("confidence", confidence(document), sure)
        + "</div>"
    )


def roc_figure(chart: Chart, words: str) -> str:
    """Return the chart of hits against false alarms, with how it is read and a key for where there is little room."""
    key = "".join(
        f'<span><span class="swatch {trace["line"]["dash"]}" style="border-top-color:var({trace["line"]["color"]})"></span>'
        f"{trace['name']}</span>"
        for trace in chart["data"]
        if trace.get("showlegend", True)
    )
    return figure("roc", "How well the attack tells", f'{words}<div class="key">{key}</div>', chart, kind="full tall")


def seen(attack: Mapping[str, Any], **labels: str) -> str:
    """Return what the attacker had to go by; labels may be named otherwise."""
    pairs = [
        (label, _field(name, attack[name]))
        for name, label in (_FIELDS | labels).items()
        if attack.get(name) is not None
    ]
    return (
        f'<section class="card"><h2>What the attacker saw</h2><p>{text(attack["saw"])}</p>'
        f"<p>{text(attack['record'])}</p>{listing(pairs)}</section>"
    )


def settings(document: Document) -> str:
    """Return all settings, folded away."""
    return (
        '<details class="card full"><summary>All settings (audit.json)</summary>'
        f"<pre>{text(json.dumps(document['settings'], indent=2, ensure_ascii=False))}</pre></details>"
    )


def _field(name: str, value: Any) -> str:
    if name == "share_seen":
        return percent(value)
    if name == "observers":
        return agents(sorted(value))
    return f"{value:,}" if isinstance(value, int) else str(value)
