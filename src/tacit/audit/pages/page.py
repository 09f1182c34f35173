"""The page of an audit: what was claimed, what was found, what the attacker saw, and what that means."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tacit.audit.pages.charts import roc
from tacit.audit.pages.results import describe
from tacit.audit.pages.statements import Document
from tacit.audit.pages.text import ResultTable, ResultText
from tacit.io.files import write_atomically
from tacit.report.html.charts import Chart
from tacit.report.html.frame import document as frame
from tacit.report.html.frame import figure, listing, table, text, tile
from tacit.report.wording import agents, percent

_FIELDS = {
    "algorithm": "algorithm",
    "dataset": "data",
    "agents": "agents",
    "graph": "graph",
    "target": "attacked agent",
    "observers": "observers",
    "queries": "answers of the attacked agent",
    "exact_answers": "answers seen exactly",
    "share_seen": "share of its answers seen",
}


def write_page(document: Document, path: Path | str) -> Path:
    """Write the page of an audit to `path`, atomically, and return the path."""
    return write_atomically(path, page(document).encode())


def page(document: Document) -> str:
    """Return the page of an audit, from what `audit.json` has."""
    attack, words = document["attack"], describe(document)
    charts = {"roc": roc(document)} if document.get("roc") else {}
    settings = text(json.dumps(document["settings"], indent=2, ensure_ascii=False))
    tiles = "".join(tile(*each) for each in words.tiles)
    cards = [_roc_figure(chart, words.caption) for chart in charts.values()]
    cards += [_table_card(each) for each in words.tables]
    cards += [_seen(attack, words.labels)] if "saw" in attack else []
    meaning = "".join(f"<p>{text(each)}</p>" for each in words.meaning)
    cards.append(_card(words.meaning_title, f'{meaning}<p class="note">{text(words.note)}</p>'))
    cards.append(
        f'<details class="card full"><summary>All settings (audit.json)</summary><pre>{settings}</pre></details>'
    )
    return frame(
        title=f"{attack['title']}, {attack['algorithm']} · Tacit",
        header=_header(document, words),
        main=(f'<div class="tiles">{tiles}</div>' if tiles else "") + f'<div class="grid">{"".join(cards)}</div>',
        charts=charts,
        source="the scores in the audit’s folder" if "thresholds" in document else "audit.json alone",
    )


def _header(document: Document, words: ResultText) -> str:
    """Return the top of a page: what was audited, and a card with the verdict."""
    attack, warned = document["attack"], " warned" if words.bad else ""
    return (
        f'<p class="eyebrow">Tacit · audit</p><h1>{text(attack["title"])}</h1>'
        f'<p class="about">{text(attack["about"])}</p>'
        f'<section class="card guarantee{warned}" aria-label="Verdict">'
        f'<span class="badge{warned}">{"✕ " if words.bad else ""}{text(document["verdict"].upper())}</span>'
        f'<p class="figure">{text(words.figure)}</p><p class="terms">{text(words.terms)}</p>'
        f"<p>{text(f'{words.verdict} {words.consequence}'.rstrip())}</p></section>"
    )


def _card(title: str, body: str, *, kind: str = "") -> str:
    """Return a card with a heading; `body` is HTML."""
    return f'<section class="card{kind and " " + kind}"><h2>{text(title)}</h2>{body}</section>'


def _table_card(shown: ResultTable) -> str:
    head = [name.removeprefix(">") for name in shown.head]
    rows = [(text(first), *rest) for first, *rest in shown.rows]
    before, after = (f'<p class="note">{text(note)}</p>' if note else "" for note in (shown.before, shown.after))
    return _card(shown.title, f"{before}{table(head, rows, kind='stack')}{after}", kind="full")


def _roc_figure(chart: Chart, caption: str) -> str:
    """Return the chart of hits against false alarms, with a key for narrow screens."""
    key = "".join(
        f'<span><span class="swatch {trace["line"]["dash"]}" style="border-top-color:var({trace["line"]["color"]})"></span>'
        f"{trace['name']}</span>"
        for trace in chart["data"]
        if trace.get("showlegend", True)
    )
    return figure("roc", "How good the attack is", f'{caption}<div class="key">{key}</div>', chart, kind="full tall")


def _seen(attack: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Return the card with what the attacker knew; `labels` replace those of some fields."""
    fields = (_FIELDS | dict(labels)).items()
    pairs = [(label, _field(name, attack[name])) for name, label in fields if attack.get(name) is not None]
    return _card(
        "What the attacker saw", f"<p>{text(attack['saw'])}</p><p>{text(attack['record'])}</p>{listing(pairs)}"
    )


def _field(name: str, value: Any) -> str:
    if name == "share_seen":
        return percent(value)
    if name == "observers":
        return agents(sorted(value))
    return f"{value:,}" if isinstance(value, int) else str(value)
