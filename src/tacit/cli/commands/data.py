"""`tacit data`: which agent gets which records of a data set, as a table that is also a heat map."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from tacit.cli.terminal.command import Json, Plot, option
from tacit.cli.terminal.options import PLAIN, given_settings, with_settings
from tacit.cli.terminal.output import check_picture, console, note, plain_table, print_json, save_picture, working
from tacit.errors import InvalidInput
from tacit.registry import DATA_SETS
from tacit.report.wording import counted
from tacit.runs.config import RunConfig

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Counts = npt.NDArray[np.int64]

SHOWN = 20  # agents; the others are only in the summary
NUMBERED = 66  # columns for the counts of all classes on a line of 80
CELLS = 50  # shaded cells on a line; with more classes than that, a cell is several classes
_SHADES = "·░▒▓█"
_PALE, _DEEP = (198, 219, 239), (8, 69, 148)
_PRIVATE = "how many records of each class an agent holds is private: do not publish or forward these counts"


@with_settings({PLAIN: ("agents", "split", "seed", "data_dir")})
def command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help=DATA_SETS.listed("synthetic:RECORDS", "or your own as file.py:NAME."),
        ),
    ],
    private_counts: Annotated[
        bool, option("", "Count the classes of your own data, too, for your eyes alone.", "--private-counts")
    ] = False,
    json: Json = False,
    plot: Plot = None,
    **settings: Any,
) -> None:
    """Show which agent gets which records when a data set is divided as tacit train divides it.

    Your own data may be divided already. Showing it runs your file. Records that no run would accept are refused here, too. How many records of
    each class an agent holds is shown for published data; of your own data it is private, and shown with --private-counts alone.

    [bold]Example[/]

    tacit data mnist --agents 10 --split 0.5 --plot split.png
    """
    from tacit.data import IID, Schema
    from tacit.data.schema import check_records
    from tacit.runs.specs import parse_split

    check_picture(plot)
    config = RunConfig.of({"dataset": name, "private": False}, given_settings(settings))
    how = parse_split(config.split)
    with working("loading and dividing"):
        held = config.load_data()
        schema = Schema.draft(held.dataset) if held.dataset.schema is None else held.dataset.schema
        check_records(held, schema)
        hidden = held.dataset.classes is not None and not (held.dataset.published or private_counts)
        counts = None if held.dataset.classes is None or hidden else held.counts
        divided = held.partition.startswith(f"{held.dataset.name}/{how}/")
        ways = (
            f"{how}, {counted(held.agents, 'agent')}, seed {config.seed}" if divided else counted(held.agents, "agent")
        )
        title = f"{name}, {ways}: {sum(held.sizes):,} training records"
        if plot is not None:
            if hidden:
                raise InvalidInput(
                    f"{name} is not published, and {_PRIVATE}; to draw them for yourself alone, give --private-counts"
                )
            if counts is None:
                raise InvalidInput(f"{name} has no classes, so there is no heat map to draw; leave out --plot")
            from tacit.cli.terminal.pictures import draw_partition

            save_picture(draw_partition(counts, title=title), plot)
    if counts is not None and not held.dataset.published:
        note(_PRIVATE)
    if json:
        print_json(
            {
                "name": name,
                "agents": held.agents,
                "classes": held.dataset.classes,
                "sizes": list(held.sizes),
                "counts": None if counts is None else counts.tolist(),
                "split": config.split if divided else None,
                "seed": config.seed,
                "schema": schema.to_dict(),
            }
        )
        return
    screen = console()
    screen.print(Text(title, style="bold"))
    screen.print(f"records of an agent: {_spread(held.sizes)}")
    if counts is not None:
        screen.print(f"classes of an agent, of {counts.shape[1]}: {_spread((counts > 0).sum(axis=1).tolist())}")
    screen.print(Text(f"a record: {schema}"))
    screen.print()
    if counts is None:
        rows = [(str(agent), f"{size:,}") for agent, size in enumerate(held.sizes[:SHOWN])]
        screen.print(plain_table(None, ">agent", ">records", rows=rows))
    elif counts.shape[1] * _width(counts) <= NUMBERED:
        _print_numbers(screen, counts)
    else:
        _print_shades(screen, counts)
    if held.agents > SHOWN:
        screen.print(f"The first {SHOWN} of {held.agents:,} agents; --json lists all.")
    if hidden:
        screen.print("How many are of each class is private; --private-counts shows it to you.")
        if divided and not isinstance(how, IID):
            screen.print("This split goes by class, so that the numbers of records above are private, too.")
    if plot is not None:
        screen.print(f"Picture: {plot}")


def _width(counts: "Counts") -> int:
    """Return the width of a cell: a space, a shade and the largest number."""
    return 2 + len(str(counts.sum(axis=0).max()))


def _print_numbers(screen: Console, counts: "Counts") -> None:
    """Print the counts, a darker cell for a larger count; without colours, each number has a shade before it."""
    import numpy as np

    coloured, width = screen.color_system is not None, _width(counts)
    table = plain_table()
    table.padding = (0, 0, 0, 0)
    table.add_column("agent", justify="right", no_wrap=True)
    for label in range(counts.shape[1]):
        table.add_column(str(label), justify="right", no_wrap=True, min_width=width - 1)
    table.add_column("   all", justify="right", no_wrap=True)
    for agent, row in enumerate(counts[:SHOWN]):
        cells = [_cell(count, count / counts.max(), width, coloured) for count in row]
        table.add_row(str(agent), *cells, Text(str(row.sum()), style="bold"))
    if len(counts) > SHOWN:
        table.add_row("…", *["…"] * (counts.shape[1] + 1))
    table.add_section()
    with_all = np.column_stack([counts, counts.sum(axis=1)])
    if len(counts) > 1:
        for name in ("min", "mean", "max"):
            table.add_row(name, *(f"{value:.0f}" for value in getattr(with_all, name)(axis=0)))
    table.add_row("all", *map(str, with_all.sum(axis=0)), style="bold")
    screen.print(table)


def _cell(count: int, share: float, width: int, coloured: bool) -> Text:
    if not count:
        return Text(_SHADES[0], style="dim")
    if not coloured:
        return Text(f"{_shade(share)}{count}")
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(_PALE, _DEEP, strict=True))
    ink = "#ffffff" if share > 0.5 else "#000000"
    return Text(f"{count:>{width - 1}}", style=f"{ink} on rgb({red},{green},{blue})")


def _print_shades(screen: Console, counts: "Counts") -> None:
    """Print one character for each class, or for a few classes together."""
    import numpy as np

    classes = counts.shape[1]
    together = -(-classes // CELLS)
    cells = np.add.reduceat(counts, np.arange(0, classes, together), axis=1)
    table = plain_table(None, ">agent", ">records", ">classes", no_wrap=True)
    last = str(classes - 1)
    table.add_column("0" + last.rjust(cells.shape[1] - 1), no_wrap=True)
    for agent, row in enumerate(cells[:SHOWN]):
        drawn = "".join(_shade(value / cells.max()) if value else _SHADES[0] for value in row)
        held = (counts[agent] > 0).sum()
        table.add_row(str(agent), f"{counts[agent].sum():,}", str(held), Text(drawn, style="cyan"))
    if len(counts) > SHOWN:
        table.add_row("…", "…", "…", "…")
    screen.print(table)
    steps = len(_SHADES) - 1
    legend = ", ".join(f"{_SHADES[step]} up to {cells.max() * step // steps:,}" for step in range(1, steps + 1))
    unit = "a class" if together == 1 else f"{together} classes"
    screen.print(f"each cell is {unit}: {_SHADES[0]} none, {legend}")


def _shade(share: float) -> str:
    """Return the shade of a share above zero."""
    return _SHADES[max(1, math.ceil(share * (len(_SHADES) - 1)))]


def _spread(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}, {sum(values) / len(values):,.1f} on average"
