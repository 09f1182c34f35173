"""What `tacit audit distance` found, printed: a line for each agent that is watched."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from tacit.audit.pages.wording import lower
from tacit.cli.audit.systems import plain_dinno
from tacit.cli.terminal.output import console, plain_table, print_whole
from tacit.report.wording import counted, percent, promised


def print_leaks(
    found: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    title: str,
    epsilon: float,
    delta: float,
    confidence: float,
    runs: int,
) -> None:
    """Print what is seen of every target, and what an attack from there proves."""
    screen, table = console(), plain_table()
    screen.print(Text(title, style="bold"), soft_wrap=True)
    screen.print()
    for place, column in enumerate(("algorithm", "distance", "agent", "each seen", "sum seen", "exactly", "ε ≥")):
        table.add_column(column, justify="right" if place else "left", no_wrap=True)
    for rule, rows in found.items():
        for place, row in enumerate(rows):
            table.add_row(
                "" if place else rule,
                str(row["distance"]),
                str(row["target"]),
                percent(row["share"], 2),
                percent(row["sum_share"], 2),
                f"{row['exact']:,} of {row['queries']:,}",
                lower(row["epsilon"]),
                end_section=place == len(rows) - 1,
            )
    print_whole(table)
    screen.print()
    screen.print(
        "Seen: how much of the target's noisy answers reaches the observer, of each on average and of their sum. A record "
        "is in all rounds, so a part of the sum can give it away.",
        style="dim",
    )
    if "dinno" in found:
        screen.print(f"dinno: one plain inner step a round, ρ = {plain_dinno()['rho']:g}.", style="dim")
    screen.print(
        f"Claimed: {promised(epsilon, delta)}, of whoever sees everything. Each ε ≥ holds at "
        f"{100 * confidence:.6g}\u202f% confidence on its own, from 2 × {counted(runs, 'run')}: where more leaks, more runs show more."
    )
