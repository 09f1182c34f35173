"""The frame of a page: one self-contained HTML file in which the text of a run cannot act as code.

Two things ensure that. All text is escaped where it enters, and the page's own policy allows only two scripts, by their hashes,
and no requests, so that even a mistake here could not run or load anything else.
"""

import base64
import hashlib
import html
import importlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files

from tacit import __version__
from tacit.report.figures.palette import style_variables
from tacit.report.html.charts import Chart
from tacit.report.wording import amount

_LONG = 50  # rows of a table that are shown at once


def text(value: object) -> str:
    """Return anything as escaped text."""
    return html.escape(str(value))


@dataclass(frozen=True)
class Panel:
    """A card with a chart, or with the reason why there is none. `caption` is HTML."""

    id: str
    title: str
    caption: str
    chart: Chart | None
    kind: str = ""
    missing: str = ""

    def __str__(self) -> str:
        height = "plot tall" if "tall" in self.kind else "plot"
        body = (
            f'<div id="{self.id}" class="{height}" role="img" aria-label="Chart: {text(self.title)}"></div>'
            if self.chart is not None
            else f'<p class="none">{text(self.missing)}</p>'
        )
        caption = f"<figcaption><h2>{text(self.title)}</h2>{self.caption}</figcaption>"
        return f'<figure class="card {self.kind}">{caption}{body}</figure>'


def card(title: str, *parts: str, note: str = "", kind: str = "") -> str:
    """Return a card with a title, a note in small print and what follows. All but the title is HTML."""
    small = f'<p class="note">{note}</p>' if note else ""
    return f'<section class="{f"card {kind}".strip()}"><h2>{text(title)}</h2>{small}{"".join(parts)}</section>'


def heading(kind: str, title: str, about: str, more: str = "") -> str:
    """Return the top of a page: what kind of page it is, its title and a line about it. `more` is HTML."""
    return f'<p class="eyebrow">Tacit · {text(kind)}</p><h1>{text(title)}</h1><p class="about">{text(about)}</p>{more}'


def claim(label: str, badge: str, figure: str, terms: str, words: str, *, warned: bool) -> str:
    """Return the card at the top of a page: a badge, which is HTML, what is claimed in large letters, its terms, and what it means."""
    return (
        f'<section class="card guarantee{" warned" * warned}" aria-label="{text(label)}">{badge}'
        f'<p class="figure">{text(figure)}</p><p class="terms">{text(terms)}</p><p>{text(words)}</p></section>'
    )


def warning(words: str) -> str:
    """Return a card that warns of something."""
    return f'<p class="card warning" role="note">{text(words)}</p>'


def tile(name: str, value: str, more: str = "", share: float | None = None) -> str:
    """Return a card with one large number. Everything but the bar is text."""
    bar = (
        ""
        if share is None
        else f'<div class="meter"><span style="width:{100 * min(max(share, 0), 1):.1f}%"></span></div>'
    )
    return (
        f'<div class="card tile"><p class="name">{text(name)}</p><p class="value">{text(value)}</p>{bar}'
        f'<p class="more">{text(more)}</p></div>'
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, kind: str = "") -> str:
    """Return a table in which the first cell of each row, its header, is HTML and all others are text.

    All but the first rows of a very long table are folded away.
    """
    first, rest = rows[:_LONG], rows[_LONG:]
    if not rest:
        return _table(head, rows, kind)
    more = f'<details class="rest"><summary>{len(rest):,} more rows</summary>{_table(head, rest, kind)}</details>'
    return _table(head, first, kind) + more


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], kind: str) -> str:
    top = "".join(f'<th scope="col">{text(name)}</th>' for name in head)
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>'
        + "".join(
            f'<td data-name="{text(name)}">{text(cell)}</td>' for name, cell in zip(head[1:], row[1:], strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table class="{kind}"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def listing(pairs: Sequence[tuple[str, str]]) -> str:
    """Return a list of names with their values; both are text."""
    return "<dl>" + "".join(f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in pairs) + "</dl>"


def document(
    *,
    title: str,
    header: str,
    above: str = "",
    tiles: Iterable[str] = (),
    cards: Sequence[Panel | str],
    source: str = "the files of the run folder",
) -> str:
    """Return a whole page: tiles and cards below a header and what is `above` them. All but `title` and `source` are HTML.

    source: what the page was made from.
    """
    charts = {each.id: each.chart for each in cards if isinstance(each, Panel) and each.chart is not None}
    small, grid = "".join(tiles), f'<div class="grid">{"".join(map(str, cards))}</div>'
    main = above + (f'<div class="tiles">{small}</div>' if small else "") + grid
    library = importlib.import_module("plotly.offline").get_plotlyjs().replace("\r\n", "\n")
    script, style = _asset("page.js"), page_style()
    policy = (
        f"default-src 'none'; script-src '{_hash(library)}' '{_hash(script)}'; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")

    def page(size: str) -> str:
        return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{text(title)}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<header>{header}</header>
<main>{main}
<noscript><p class="card warning">The charts need JavaScript; the rest of this page does not.</p></noscript>
</main>
<footer><p>Made by Tacit {text(__version__)} on {made} from {text(source)}. This page is one file of
{size}, most of which is the library that draws the charts; it loads nothing and sends nothing.</p></footer>
<script id="charts" type="application/json">{_json(charts)}</script>
<script>{library}</script>
<script>{script}</script>
</body>
</html>
"""

    return page(amount(len(page("").encode())))


def page_style() -> str:
    """Return the style sheet of all pages."""
    return style_variables() + _asset("page.css")


def _json(charts: Mapping[str, Chart]) -> str:
    """Return JSON that cannot end the script element that contains it."""
    content = json.dumps(charts, allow_nan=False, separators=(",", ":"))
    return content.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _asset(name: str) -> str:
    return files("tacit.report").joinpath("assets", name).read_text(encoding="utf-8").replace("\r\n", "\n")


def _hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
