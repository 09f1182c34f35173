"""`tacit report`: a page about each run, made from its folder."""

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.terminal.command import RunsFolder, option
from tacit.cli.terminal.output import console, working
from tacit.runs import find_runs

NamedRuns = Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders, or names of runs.")]
Figures = Annotated[bool, option("", "Also save figures as PNG and PDF.", "--figures")]


def command(named: NamedRuns, runs: RunsFolder = Path("runs"), figures: Figures = False) -> None:
    """Write a page about each run into its folder: `report.html`, one file that works offline.

    Example: tacit report dsgt-digits-1 --figures
    """
    from tacit.report import RecordedRun, save_figures, write_report

    for folder in find_runs(named, runs):
        run, page, drawn = RecordedRun.load(folder), folder / "report.html", folder / "figures"
        with working(f"writing {page}"):
            write_report(run, page)
            if figures:
                save_figures(run, drawn)
        print_written(page, drawn if figures else None)


def print_written(page: Path, figures: Path | None) -> None:
    """Print where a page and its figures are."""
    console().print(f"{page}" + ("" if figures is None else f" and {figures}"))
