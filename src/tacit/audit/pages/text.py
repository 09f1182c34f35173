"""The text of a result, as data: a page and the terminal show the same tables and sentences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class ResultTable:
    """A table; all of it is text.

    head: the headings; one that begins with > is aligned to the right.
    marks: rows that need attention, by index: fail or inconclusive.
    wrapped, page_only: headings of columns with long text, and of those that a terminal has no room for.
    before, after: notes on the page.
    """

    title: str
    head: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    marks: Mapping[int, str] = field(default_factory=dict)
    wrapped: tuple[str, ...] = ()
    page_only: tuple[str, ...] = ()
    before: str = ""
    after: str = ""


@dataclass(frozen=True, kw_only=True)
class ResultText:
    """All that is said about a result.

    figure, terms: the large line of the page, and the line below it.
    consequence: what follows from the verdict.
    tiles: name, value, more and the share of a bar; caption: that of the curve of hits; meaning: paragraphs and the title above
    them; note: below them. All of these are on the page only.
    facts, hints, limits: below the title, below the tables and below the verdict, in the terminal only.
    """

    bad: bool
    figure: str
    terms: str
    verdict: str
    consequence: str = ""
    tables: tuple[ResultTable, ...] = ()
    tiles: tuple[tuple[str, str, str, float | None], ...] = ()
    caption: str = ""
    meaning: tuple[str, ...] = ()
    meaning_title: str = "What this means, and what it does not"
    note: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    hints: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
