"""What an audit found, printed: the claim, the tables of its page, and the verdict."""

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from tacit.audit.pages import statements
from tacit.audit.pages.results import describe
from tacit.audit.pages.text import ResultTable
from tacit.cli.audit.folder import PAGE, Document
from tacit.cli.terminal.output import console, plain_table, print_apart
from tacit.report.wording import ADJACENCIES, counted, lower_bound

_STYLES = {"fail": "bold red", "inconclusive": "yellow"}


def print_audit(document: Document, folder: Path | None) -> None:
    """Print one audit; nothing is said of its page where there is no folder."""
    screen, words, attack = console(), describe(document), document["attack"]
    screen.print(Text(f"{attack['title']}: {attack['about']}", style="bold"))
    if words.facts:
        facts = plain_table(None, "", "", rows=words.facts)
        facts.show_header = False
        screen.print(facts)
    if tables := [table for table in map(_table, words.tables) if table.columns]:
        print_apart(screen, *tables)
    else:
        screen.print()
    for hint in words.hints:
        screen.print(hint, style="dim")
    if words.hints:
        screen.print()
    screen.print(Text(words.verdict, style="bold red" if words.bad else "bold"))
    if words.consequence:
        screen.print(words.consequence)
    for limit in words.limits:
        screen.print(limit, style="dim")
    if folder is not None:
        screen.print(f"Page: {folder / PAGE}")


def _table(shown: ResultTable) -> Table:
    kept = [place for place, name in enumerate(shown.head) if name not in shown.page_only]
    table = plain_table(shown.title, *(shown.head[place] for place in kept))
    for column, place in zip(table.columns, kept, strict=True):
        column.no_wrap = shown.head[place] not in shown.wrapped
    for number, row in enumerate(shown.rows):
        table.add_row(*(row[place] for place in kept), style=_STYLES.get(shown.marks.get(number, ""), ""))
    return table


def print_audits(documents: Sequence[Document], folder: Path, confidence: float) -> None:
    """Print one line for each algorithm; the bounds of all of them together have the confidence."""
    screen, first = console(), documents[0]
    screen.print(Text(f"{first['attack']['title']}: {first['settings']['dataset']}", style="bold"))
    columns = ("algorithm", ">claimed ε", ">shown ε ≥", ">estimate (interval)", "verdict")
    table = plain_table(None, *columns, no_wrap=True)
    for each in documents:
        table.add_row(
            each["attack"]["algorithm"],
            statements.claimed(each),
            lower_bound(each["lower_bound"]),
            statements.estimate(each["thresholds"][0]),
            each["verdict"],
            style="bold red" if each["verdict"] == "broken" else "",
        )
    screen.print(table)
    claim = first["claimed"]
    screen.print(
        f"\nδ = {claim['delta']:g}, {ADJACENCIES[claim['adjacency']]} adjacency; 2 × {counted(first['runs_per_side'], 'run')} "
        f"for each line. All lower bounds together hold at {statements.percentage(confidence)} confidence, and so do all intervals "
        "together."
    )
    screen.print(
        "Estimates prove nothing. They are those at the first threshold, which has the largest bound of Gaussian DP on the first "
        "fifth of the runs; its errors are counted on the other "
        f"2 × {first['thresholds'][0]['outcomes']['absent']:,}. The bound shown is the largest of all thresholds."
    )
    screen.print(f"Pages: {folder / '*' / PAGE}")
