"""`tacit graph` for links that change: what a schedule does over its rounds, and a picture of the first of them."""

from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from tacit.cli.terminal.output import console, digits, plain_table, print_json, save_picture, working
from tacit.errors import GraphError
from tacit.report.wording import counted

if TYPE_CHECKING:
    from tacit.networks import ScheduleMeasures, Topology

_ROUNDS = 100  # of a schedule that never repeats


def show_schedule(text: str, agents: int | None, seed: int, *, as_json: bool, plot: Path | None) -> None:
    """Print the measures of a schedule, and draw it if asked."""
    from tacit.networks import measure_schedule
    from tacit.runs.specs import parse_schedule

    with working("building"):
        topology = parse_schedule(text, agents, seed)
        measures = measure_schedule(topology, _ROUNDS)
        if plot is not None:
            _draw(plot, topology, measures, text)
    if as_json:
        print_json({"kind": text, **measures.to_dict()})
        return
    screen = console()
    screen.print(Text(_title(text, measures), style="bold"), soft_wrap=True)
    table = plain_table()
    table.add_column("measure", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("meaning")
    for name, value, meaning in _rows(measures, topology.period):
        table.add_row(name, Text(value, style="bold"), meaning)
    screen.print()
    screen.print(table)
    screen.print()
    if plot is not None:
        screen.print(f"Picture: {plot}", soft_wrap=True)


def _title(text: str, measures: "ScheduleMeasures") -> str:
    return f"{text}: {counted(measures.agents, 'agent')}, {counted(measures.pairs, 'link')} in {counted(measures.rounds, 'round')}"


def _rows(measures: "ScheduleMeasures", period: int | None) -> list[tuple[str, str, str]]:
    repeats = (
        "rounds, after which the links repeat" if period is not None else "rounds that were measured; it never repeats"
    )
    exact = measures.contraction == 0
    left = "exact average" if exact else "of disagreement left after these rounds, at worst"
    rows = [
        ("agents", f"{measures.agents:,}", "parties that hold data"),
        ("rounds", f"{measures.rounds:,}", repeats),
        ("window", f"{measures.window:,}", "rounds within which all agents are joined"),
        ("pairs", f"{measures.pairs:,}", "that talk in some round"),
        ("neighbours", f"{measures.most_neighbors}", "whom an agent hears in one exchange, at most"),
        ("messages", digits(measures.messages), "that an agent sends in a round, on average"),
        ("symmetric", "yes" if measures.symmetric else "no", "neighbours weigh each other alike, as real peers must"),
        ("contraction", digits(measures.contraction), left),
    ]
    if not exact:
        rows.append(("  of a round", digits(measures.of_a_round), "on average"))
    return rows


def _draw(path: Path, topology: "Topology", measures: "ScheduleMeasures", text: str) -> None:
    from tacit.cli.terminal.pictures import SCHEDULE_AGENTS, draw_schedule

    if measures.agents > SCHEDULE_AGENTS:
        raise GraphError(
            f"a picture of {measures.agents:,} agents over several rounds would show nothing; --plot draws up to {SCHEDULE_AGENTS}"
        )
    save_picture(draw_schedule(topology, title=_title(text, measures)), path)
