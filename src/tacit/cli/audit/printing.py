"""What an audit found, printed: the claim, every look with its bounds, and the verdict."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tacit.audit.pages import wording
from tacit.cli.audit.folder import PAGE, Document
from tacit.cli.audit.systems import display_name
from tacit.cli.terminal.output import console, plain_table, print_apart
from tacit.report.wording import ADJACENCIES, counted, percent


def print_audit(document: Document, folder: Path) -> None:
    """Print one audit."""
    screen, looks = console(), document["looks"]
    print_title(screen, document)
    print_facts(screen, _facts(document))
    kinds = wording.methods(looks)
    headings = (f">{wording.heading(kind)}" for kind in kinds)
    table = plain_table(None, "statistic", ">cut at", ">false alarms", ">misses", *headings, no_wrap=True)
    for look in looks:
        errors, bounds = wording.errors_of(look), wording.bounds_of(look, kinds)
        table.add_row(look["statistic"], f"{look['threshold']:.3g}", *errors, *bounds)
    print_apart(screen, table)
    for method in kinds:
        if method in wording.METHODS:
            screen.print("ε ≥ {}: {}".format(*wording.METHODS[method]), style="dim")
    screen.print()
    consequence = f"{wording.consequence(document)} {wording.reach(document)}"
    print_verdict(screen, wording.verdict(document), consequence, folder, bad=document["verdict"] == "broken")


def print_audits(documents: Sequence[Document], folder: Path, confidence: float) -> None:
    """Print one line for each algorithm; the bounds of all of them together have the confidence."""
    screen, first = console(), documents[0]
    screen.print(Text(f"{first['attack']['title']}: {first['settings']['dataset']}", style="bold"), soft_wrap=True)
    columns = ("algorithm", ">claimed ε", ">shown ε ≥", ">estimate (interval)", "verdict")
    table = plain_table(None, *columns, no_wrap=True)
    for each in documents:
        table.add_row(
            display_name(each["attack"]["algorithm"]),
            wording.claimed(each),
            wording.lower(each["lower_bound"]),
            wording.estimate(each["looks"][0]),
            Text(each["verdict"], style="bold red" if each["verdict"] == "broken" else ""),
        )
    screen.print(table)
    screen.print()
    claim = first["claimed"]
    screen.print(
        f"δ = {claim['delta']:g}, {ADJACENCIES[claim['adjacency']]} adjacency; 2 × {counted(first['runs_per_side'], 'run')} "
        f"for each line. All lower bounds together hold at {100 * confidence:.6g}\u202f% confidence, and so do all intervals "
        "together."
    )
    screen.print(
        "Estimates prove nothing. They are those of the first look: its cut is the one with the largest bound of Gaussian DP "
        "on the first fifth of the runs, and its errors are counted on the other "
        f"2 × {first['looks'][0]['outcomes']['absent']:,}. The bound shown is the largest of all looks."
    )
    screen.print(f"Pages: {folder / '*' / PAGE}", soft_wrap=True)


def print_title(screen: Console, document: Document) -> None:
    """Print what was attacked, and how."""
    attack = document["attack"]
    screen.print(Text(f"{attack['title']}: {attack['about']}", style="bold"), soft_wrap=True)


def print_facts(screen: Console, rows: Sequence[tuple[str, str]]) -> None:
    """Print names and values below each other."""
    facts = plain_table()
    facts.show_header = False
    facts.add_column(no_wrap=True)
    facts.add_column(overflow="fold")
    for row in rows:
        facts.add_row(*row)
    screen.print(facts)


def print_verdict(screen: Console, verdict: str, consequence: str, folder: Path, *, bad: bool) -> None:
    """Print the verdict, what it means, and where the page is."""
    screen.print(Text(verdict, style="bold red" if bad else "bold"))
    screen.print(consequence)
    screen.print(f"Page: {folder / PAGE}", soft_wrap=True)


def claim_row(document: Document) -> tuple[str, str]:
    """Return the claim as a row of facts."""
    claim = document["claimed"]
    stated = f"ε = {wording.claimed(document)} at δ = {claim['delta']:g}"
    against = document["attack"].get("against")
    whom = "" if against is None else f", against {against}"
    return "claimed", f"{stated}, {ADJACENCIES[claim['adjacency']]} adjacency{whom}"


def _facts(document: Document) -> list[tuple[str, str]]:
    attack, weaker = document["attack"], wording.unconditional_bound(document)
    which = "" if weaker is None else f" if only the noise is wrong, else {wording.lower(weaker)},"
    rows = [
        claim_row(document),
        ("shown", f"ε ≥ {wording.lower(document['lower_bound'])}{which} at {wording.confidence(document)} confidence"),
        ("runs", f"{document['runs_per_side']:,} with the record and as many without"),
    ]
    if attack.get("share_seen") is not None:
        seen = f"{percent(attack['share_seen'])} of the {attack['queries']:,} answers of agent {attack['target']}"
        rows.append(("seen", f"{seen}; {attack['exact_answers']:,} exactly"))
    return rows
