"""Parts that the pages of all audits share: the verdict on top, what the attacker saw, and the settings at the end."""

import json
from collections.abc import Mapping
from typing import Any

from tacit.audit.pages.wording import Document
from tacit.report.html.frame import listing, text
from tacit.report.wording import agents, percent

Page = tuple[str, str]
"""The header and the main part of a page, as HTML."""

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


def header(attack: Mapping[str, Any], *, bad: bool, badge: str, figure: str, terms: str, verdict: str) -> str:
    """Return the top of a page: what was audited, and a card with the verdict."""
    warned = " warned" if bad else ""
    return (
        f'<p class="eyebrow">Tacit · audit</p><h1>{text(attack["title"])}</h1>'
        f'<p class="about">{text(attack["about"])}</p>'
        f'<section class="card guarantee{warned}" aria-label="Verdict">'
        f'<span class="badge{warned}">{"✕ " if bad else ""}{text(badge)}</span>'
        f'<p class="figure">{text(figure)}</p><p class="terms">{text(terms)}</p><p>{text(verdict)}</p></section>'
    )


def grid(document: Document, *cards: str) -> str:
    """Return cards side by side, with all settings folded away at the end."""
    settings = text(json.dumps(document["settings"], indent=2, ensure_ascii=False))
    end = f'<details class="card full"><summary>All settings (audit.json)</summary><pre>{settings}</pre></details>'
    return f'<div class="grid">{"".join(cards)}{end}</div>'


def card(title: str, body: str, *, kind: str = "") -> str:
    """Return a card with a heading; `body` is HTML."""
    return f'<section class="card{kind and " " + kind}"><h2>{text(title)}</h2>{body}</section>'


def meaning(*paragraphs: str, note: str = "") -> str:
    """Return the card that says how to read the result; all of it is text."""
    body = "".join(f"<p>{text(each)}</p>" for each in paragraphs)
    return card("What this means, and what it does not", body + f'<p class="note">{text(note)}</p>')


def seen(attack: Mapping[str, Any], **labels: str) -> str:
    """Return the card with what the attacker knew; labels replace those of some fields."""
    fields = (_FIELDS | labels).items()
    pairs = [(label, _field(name, attack[name])) for name, label in fields if attack.get(name) is not None]
    return card("What the attacker saw", f"<p>{text(attack['saw'])}</p><p>{text(attack['record'])}</p>{listing(pairs)}")


def _field(name: str, value: Any) -> str:
    if name == "share_seen":
        return percent(value)
    if name == "observers":
        return agents(sorted(value))
    return f"{value:,}" if isinstance(value, int) else str(value)
