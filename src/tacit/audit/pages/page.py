"""The page of an audit: what was claimed, what was found, what the attacker saw, and what that means."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tacit.audit.pages.charts import roc
from tacit.audit.pages.results import describe
from tacit.audit.pages.statements import Document
from tacit.audit.pages.text import ResultTable
from tacit.io.files import write_atomically
from tacit.report.html import frame
from tacit.report.html.charts import Chart
from tacit.report.html.frame import Panel, card, listing, table, text, tile
from tacit.report.wording import list_agents, percent

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
    settings = text(json.dumps(document["settings"], indent=2, ensure_ascii=False))
    meaning = "".join(f"<p>{text(each)}</p>" for each in words.meaning)
    mark, warned = ("✕ ", " warned") if words.bad else ("", "")
    badge = f'<span class="badge{warned}">{mark}{text(document["verdict"].upper())}</span>'
    verdict = f"{words.verdict} {words.consequence}".rstrip()
    claim = frame.claim("Verdict", badge, words.figure, words.terms, verdict, warned=words.bad)
    return frame.document(
        title=f"{attack['title']}, {attack['algorithm']} · Tacit",
        header=frame.heading("audit", attack["title"], attack["about"], claim),
        tiles=[tile(*each) for each in words.tiles],
        cards=[
            *([_roc_panel(roc(document), words.caption)] if document.get("roc") else []),
            *map(_table_card, words.tables),
            *([_seen(attack, words.labels)] if "saw" in attack else []),
            card(words.meaning_title, f'{meaning}<p class="note">{text(words.note)}</p>'),
            f'<details class="card full"><summary>All settings (audit.json)</summary><pre>{settings}</pre></details>',
        ],
        source="the scores in the audit’s folder" if "thresholds" in document else "audit.json alone",
    )


def _table_card(shown: ResultTable) -> str:
    head = [name.removeprefix(">") for name in shown.head]
    rows = [(text(first), *rest) for first, *rest in shown.rows]
    before, after = (f'<p class="note">{text(note)}</p>' if note else "" for note in (shown.before, shown.after))
    return card(shown.title, before, table(head, rows, kind="stack"), after, kind="full")


def _roc_panel(chart: Chart, caption: str) -> Panel:
    """Return the chart of hits against false alarms, with a key for narrow screens."""
    key = "".join(
        f'<span><span class="swatch {trace["line"]["dash"]}" style="border-top-color:var({trace["line"]["color"]})"></span>'
        f"{trace['name']}</span>"
        for trace in chart["data"]
        if trace.get("showlegend", True)
    )
    return Panel("roc", "How good the attack is", f'{caption}<div class="key">{key}</div>', chart, kind="full tall")


def _seen(attack: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """Return the card with what the attacker knew; `labels` replace those of some fields."""
    fields = (_FIELDS | dict(labels)).items()
    pairs = [(label, _field(name, attack[name])) for name, label in fields if attack.get(name) is not None]
    seen = f"<p>{text(attack['saw'])}</p><p>{text(attack['record'])}</p>"
    return card("What the attacker saw", seen, listing(pairs))


def _field(name: str, value: Any) -> str:
    if name == "share_seen":
        return percent(value)
    if name == "observers":
        return list_agents(sorted(value))
    return f"{value:,}" if isinstance(value, int) else str(value)
