"""What an audit in one go found, printed: of noise and lots, and of guesses about canaries."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tacit.audit.pages import noise as noise_words
from tacit.audit.pages import wording as page_words
from tacit.cli.audit.once import Document
from tacit.cli.audit.playing import PAGE
from tacit.cli.terminal.output import console, plain_table
from tacit.report.wording import ADJACENCIES, percent


def print_noise(document: Document, folder: Path) -> None:
    """Print σ, q and ε of every agent, and what each test found."""
    screen = console()
    _print_title(screen, document)
    table = plain_table()
    for column in ("agent", "", "stated", "estimated", "interval"):
        table.add_column(column, justify="left" if column in ("", "interval") else "right", no_wrap=True)
    for each in document["agents"]:
        for place, row in enumerate(noise_words.quantities(each)):
            table.add_row("" if place else str(each["agent"]), *row)
    screen.print()
    screen.print(table)
    screen.print()
    tests = plain_table()
    for column in ("test", "number", "least p", "found"):
        tests.add_column(column, justify="right" if column in ("number", "least p") else "left")
    for looks_at, count, least, found, failed in noise_words.tests(document):
        tests.add_row(looks_at, count, least, Text(found, style="bold red" if failed else ""))
    screen.print(tests)
    screen.print()
    for words in (noise_words.ABOUT_EPSILON, f"A test fails where p is below {document['threshold']:.2g}."):
        screen.print(words, style="dim")
    screen.print()
    _print_verdict(
        screen,
        document["verdict"] == "not as stated",
        noise_words.verdict(document),
        f"{noise_words.consequence(document)} {noise_words.risk(document)}",
        folder,
    )


def print_guesses(document: Document, folder: Path) -> None:
    """Print how many canaries were told apart, and what that proves."""
    screen, outcome, claim = console(), document["outcome"], document["claimed"]
    _print_title(screen, document)
    share = percent(outcome["correct"] / outcome["guesses"])
    rows = [
        (
            "claimed",
            f"ε = {page_words.claimed(document)} at δ = {claim['delta']:g}, {ADJACENCIES[claim['adjacency']]} adjacency",
        ),
        ("canaries", f"{outcome['canaries']:,}, each in or out by a coin"),
        ("guessed", f"{outcome['guesses']:,}, the surest; how many was fixed beforehand"),
        ("right", f"{outcome['correct']:,} ({share}); about half would be by chance"),
    ]
    for bound in document["bounds"]:
        heading, when = page_words.METHODS[bound["method"]]
        rows.append((f"{heading}", f"ε ≥ {page_words.lower(bound['epsilon'])}; this {when}"))
    _print_facts(screen, rows)
    screen.print()
    _print_verdict(
        screen,
        document["verdict"] == "broken",
        page_words.verdict(document),
        page_words.consequence(document),
        folder,
    )


def _print_title(screen: Console, document: Document) -> None:
    attack = document["attack"]
    screen.print(Text(f"{attack['title']}: {attack['about']}", style="bold"), soft_wrap=True)


def _print_facts(screen: Console, rows: Sequence[tuple[str, str]]) -> None:
    facts = plain_table()
    facts.show_header = False
    facts.add_column(no_wrap=True)
    facts.add_column(overflow="fold")
    for row in rows:
        facts.add_row(*row)
    screen.print(facts)


def _print_verdict(screen: Console, bad: bool, verdict: str, consequence: str, folder: Path) -> None:
    screen.print(Text(verdict, style="bold red" if bad else "bold"))
    screen.print(consequence)
    screen.print(f"Page: {folder / PAGE}", soft_wrap=True)
