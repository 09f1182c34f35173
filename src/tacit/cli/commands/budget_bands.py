"""What `tacit budget --bands` adds: noise in sums of answers by number of bands, at one ε, and what is charged."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.console import Console

from tacit.cli.commands.budget_accounting import PlannedQueries
from tacit.cli.terminal.output import digits, plain_table
from tacit.errors import PrivacyError

if TYPE_CHECKING:
    from tacit.privacy.bands import BandChoice


def choose_bands(planned: PlannedQueries, epsilon: float | None, wanted: int | None) -> "tuple[int, list[BandChoice]]":
    """Return how many bands to use, and how numbers of bands compare at this ε; nothing is compared without one."""
    # Imported here: most budgets need no linear algebra.
    from tacit.privacy.bands import best_bands, check_rate, compare_bands

    if planned.adjacency == "replace_one":
        raise PrivacyError(
            "bands divide records into groups, and a record that replaces another may be in another; use --adjacency add_remove"
        )
    if epsilon is None:
        if wanted is None:
            raise PrivacyError("--bands auto compares noise at one ε; give --epsilon, or a number of bands")
        check_rate(wanted, planned.sample_rate)
        return wanted, []

    def calibrate(rate: float, count: int) -> float:
        return replace(planned, sample_rate=rate, queries=count).sigma(epsilon)

    numbers = None if wanted is None else [wanted]
    compared = compare_bands(calibrate, planned.sample_rate, planned.queries, numbers)
    return best_bands(compared) if wanted is None else wanted, compared


def band_facts(planned: PlannedQueries, compared: "Sequence[BandChoice]") -> dict[str, Any]:
    """Return what is added to the JSON document."""
    event = planned.event(1.0)
    return {
        "bands": planned.bands,
        "event": {"sample_rate": event.sample_rate, "queries": event.count},
        "noise_in_sums": {str(each.bands): each.error for each in compared},
    }


def print_bands(screen: Console, planned: PlannedQueries, compared: "Sequence[BandChoice]") -> None:
    """Print what is charged, and the comparison."""
    event, bands = planned.event(1.0), planned.bands
    if bands > 1:
        screen.print(
            f"noise is correlated over {bands} queries, and {bands} groups of records take turns: charged as {event.count:,} queries at "
            f"rate {digits(event.sample_rate)}"
        )
    if not compared:
        screen.print()
        return
    if bands == 1:
        screen.print("no bands: none makes the noise in sums of answers clearly smaller")
    screen.print()
    table = plain_table(
        "Noise in sums of answers, at the same ε", "", ">bands", ">σ", ">rate", ">turns", ">noise in sums"
    )
    for each in compared:
        change = "" if each.bands == 1 else f"{100 * (each.error - 1):+.1f} %"
        cells = (
            "▸" if each.bands == bands else "",
            str(each.bands),
            f"{each.sigma:g}",
            digits(each.rate),
            f"{each.turns:,}",
            change,
        )
        table.add_row(*cells, style="bold" if each.bands == bands else "")
    screen.print(table)
    screen.print()
