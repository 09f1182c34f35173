"""What an audit found, printed: the verdict, the claim, and every look with its bounds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from tacit.audit.pages import wording as words
from tacit.cli.audit.playing import PAGE
from tacit.cli.terminal.output import console, plain_table
from tacit.report.wording import ADJACENCIES, counted, percent

Document = Mapping[str, Any]


def print_audit(document: Document, folder: Path) -> None:
    """Print one audit."""
    screen, attack = console(), document["attack"]
    screen.print(Text(f"{attack['title']}: {attack['about']}", style="bold"), soft_wrap=True)
    facts = plain_table()
    facts.show_header = False
    facts.add_column(no_wrap=True)
    facts.add_column(overflow="fold")
    for row in _facts(document):
        facts.add_row(*row)
    screen.print(facts)
    looks = document["looks"]
    kinds = words.methods(looks)
    table = plain_table()
    for place, column in enumerate(("statistic", "cut at", "false alarms", "misses", *map(words.heading, kinds))):
        table.add_column(column, justify="right" if place else "left", no_wrap=True)
    for look in looks:
        table.add_row(
            look["statistic"], f"{look['threshold']:.3g}", *words.errors_of(look), *words.bounds_of(look, kinds)
        )
    screen.print()
    screen.print(table)
    screen.print()
    for method in kinds:
        if method in words.METHODS:
            screen.print("ε ≥ {}: {}".format(*words.METHODS[method]), style="dim")
    screen.print()
    broken = document["verdict"] == "broken"
    screen.print(Text(words.verdict(document), style="bold red" if broken else "bold"))
    screen.print(f"{words.consequence(document)} {words.reach(document)}")
    screen.print(f"Page: {folder / PAGE}", soft_wrap=True)


def print_audits(documents: Sequence[Document], folder: Path, confidence: float) -> None:
    """Print one line for each algorithm; all of them together have the confidence."""
    screen, first = console(), documents[0]
    screen.print(Text(f"{first['attack']['title']}: {first['settings']['dataset']}", style="bold"), soft_wrap=True)
    table = plain_table()
    for place, column in enumerate(("algorithm", "claimed ε", "shown ε ≥", "estimate (interval)", "verdict")):
        table.add_column(column, justify="left" if place in (0, 4) else "right", no_wrap=True)
    for each in documents:
        broken = each["verdict"] == "broken"
        table.add_row(
            each["attack"]["algorithm"],
            words.claimed(each),
            words.lower(each["lower_bound"]),
            words.estimate(each["looks"][0]),
            Text(each["verdict"], style="bold red" if broken else ""),
        )
    screen.print(table)
    screen.print()
    claim = first["claimed"]
    screen.print(
        f"δ = {claim['delta']:g}, {ADJACENCIES[claim['adjacency']]} adjacency; 2 × {counted(first['runs_per_side'], 'run')} a "
        f"line. All lower bounds together hold at {100 * confidence:.6g}\u202f% confidence, and so do all intervals together."
    )
    screen.print(
        "Estimates prove nothing. They are those of the first look: its cut is the one with the largest bound of Gaussian DP "
        "on the first fifth of the runs, and its errors are counted on the other "
        f"2 × {first['looks'][0]['outcomes']['absent']:,}. The bound shown is the largest of all looks."
    )
    screen.print(f"Pages: {folder / '*' / PAGE}", soft_wrap=True)


def _facts(document: Document) -> list[tuple[str, str]]:
    claim, attack = document["claimed"], document["attack"]
    weaker = words.unconditional_bound(document)
    which = "" if weaker is None else f" if only the noise is wrong, else {words.lower(weaker)},"
    rows = [
        (
            "claimed",
            f"ε = {words.claimed(document)} at δ = {claim['delta']:g}, {ADJACENCIES[claim['adjacency']]} adjacency",
        ),
        ("shown", f"ε ≥ {words.lower(document['lower_bound'])}{which} at {words.confidence(document)} confidence"),
        ("runs", f"{document['runs_per_side']:,} with the record and as many without"),
    ]
    if attack.get("share_seen") is not None:
        rows.append(
            (
                "seen",
                f"{percent(attack['share_seen'])} of the {attack['queries']:,} answers of agent {attack['target']}; "
                f"{attack['exact_answers']:,} exactly",
            )
        )
    return rows
