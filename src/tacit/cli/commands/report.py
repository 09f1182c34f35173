"""`tacit report` and `tacit compare`: pages and figures made from run folders.

What makes them is imported where it is used: drawing takes its time to import, and most commands draw nothing.
"""

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.terminal.output import RunsFolder, check_output, console, working
from tacit.errors import InvalidInput
from tacit.runs import find_runs

Named = Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders, or names of runs.")]
Figures = Annotated[bool, typer.Option("--figures", metavar="", help="Also save figures as PNG and PDF.")]


def report(named: Named, runs: RunsFolder = Path("runs"), figures: Figures = False) -> None:
    """Write a page about each run into its folder: `report.html`, in one file that works offline.

    Example: tacit report dsgt-digits-1 --figures
    """
    from tacit.report import RecordedRun, save_figures, write_report

    for folder in find_runs(named, runs):
        run = RecordedRun.load(folder)
        with working(f"writing {folder / 'report.html'}"):
            write_report(run, folder / "report.html")
            if figures:
                save_figures(run, folder / "figures")
        _print_written(folder / "report.html", folder / "figures" if figures else None)


def compare(
    named: Named,
    runs: RunsFolder = Path("runs"),
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The page to write.")] = Path(
        "comparison.html"
    ),
    figures: Figures = False,
) -> None:
    """Write one page that lays several runs over each other; figures go beside it.

    Example: tacit compare dsgt-digits-1 dsgd-digits-1 -o both.html
    """
    check_output(output)
    folders = find_runs(named, runs)
    if len(folders) < 2:
        raise InvalidInput("a comparison takes at least two runs")
    places = [folder.resolve() for folder in folders]
    for place, folder in zip(places, folders, strict=True):
        if places.count(place) > 1:
            raise InvalidInput(f"{folder} is named twice; a run is not compared with itself")
    from tacit.report import RecordedRun, save_comparison, write_comparison

    loaded = [RecordedRun.load(folder) for folder in folders]
    beside = output.with_name(f"{output.stem}-figures")
    with working(f"writing {output}"):
        write_comparison(loaded, output)
        if figures:
            save_comparison(loaded, beside)
    _print_written(output, beside if figures else None)


def _print_written(page: Path, figures: Path | None) -> None:
    console().print(f"{page}" + ("" if figures is None else f" and {figures}"), soft_wrap=True)
