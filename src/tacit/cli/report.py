"""`tacit report` and `tacit compare`: pages and figures made from run folders."""

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.output import console, working
from tacit.errors import InvalidInput
from tacit.report import Run, save_comparison, save_figures, write_comparison, write_report

Folders = Annotated[list[Path], typer.Argument(help="Run folders, such as runs/dsgt-digits-1.")]


def report(
    runs: Folders,
    figures: Annotated[bool, typer.Option("--figures", help="Also save figures as PNG and PDF.")] = False,
) -> None:
    """Write a page about each run into its folder: `report.html`, in one file that works offline.

    Example: tacit report runs/dsgt-digits-1 --figures
    """
    for folder in runs:
        run = Run.load(folder)
        with working(f"writing {folder / 'report.html'}"):
            write_report(run, folder / "report.html")
            if figures:
                save_figures(run, folder / "figures")
        console().print(f"{folder / 'report.html'}" + (f" and {folder / 'figures'}" if figures else ""))


def compare(
    runs: Folders,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = Path("comparison.html"),
    figures: Annotated[Path | None, typer.Option(help="Also save figures as PNG and PDF in this folder.")] = None,
) -> None:
    """Write one page that lays several runs over each other.

    Example: tacit compare runs/dsgt-digits-1 runs/dsgd-digits-1 -o both.html
    """
    if len(runs) < 2:
        raise InvalidInput("a comparison takes at least two runs")
    loaded = [Run.load(folder) for folder in runs]
    with working(f"writing {output}"):
        write_comparison(loaded, output)
        if figures is not None:
            save_comparison(loaded, figures)
    console().print(f"{output}" + (f" and {figures}" if figures is not None else ""))
