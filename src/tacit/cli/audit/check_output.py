"""What a check of settings found, printed."""

from pathlib import Path

from rich.text import Text

from tacit.audit.pages import check as page_check
from tacit.cli.audit.once import Document
from tacit.cli.audit.playing import PAGE
from tacit.cli.terminal.output import console, plain_table

_STYLES = {"pass": "", "fail": "bold red", "inconclusive": "yellow"}


def print_check(document: Document, folder: Path | None) -> None:
    """Print every finding, what it means, and what such a check cannot show."""
    screen = console()
    screen.print(Text(f"{document['attack']['title']}: {document['attack']['about']}", style="bold"), soft_wrap=True)
    screen.print(document["about"])
    table = plain_table()
    for name, wrapped in (("what", False), ("outcome", False), ("measured", True), ("bound", True)):
        table.add_column(name, no_wrap=not wrapped, overflow="fold")
    for each in document["findings"]:
        outcome = Text(each["outcome"], style=_STYLES[each["outcome"]])
        table.add_row(f"{each['part']}: {each['name']}", outcome, each["measured"], each["bound"])
    screen.print()
    screen.print(table)
    screen.print()
    failed = document["verdict"] == "fault found"
    screen.print(Text(page_check.verdict(document), style="bold red" if failed else "bold"))
    for words in (page_check.risk(document), *document["cannot_show"]):
        screen.print(words, style="dim")
    if folder is not None:
        screen.print(f"Page: {folder / PAGE}", soft_wrap=True)
