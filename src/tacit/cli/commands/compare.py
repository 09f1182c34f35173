"""`tacit compare`: one page that compares several runs."""

from pathlib import Path
from typing import Annotated

from tacit.cli.commands.report import Figures, NamedRuns, print_written
from tacit.cli.terminal.command import RunsFolder, option
from tacit.cli.terminal.output import check_output, note, working
from tacit.errors import InvalidInput
from tacit.runs import find_runs


def command(
    named: NamedRuns,
    runs: RunsFolder = Path("runs"),
    output: Annotated[Path, option("FILE", "The page to write.", "--output", "-o")] = Path("comparison.html"),
    figures: Figures = False,
) -> None:
    """Write one page that compares several runs in the same charts.

    Example: tacit compare dsgt-digits-1 dsgd-digits-1 -o both.html
    """
    check_output(output)
    folders = find_runs(named, runs)
    if len(folders) < 2:
        raise InvalidInput("a comparison takes at least two runs")
    resolved = [folder.resolve() for folder in folders]
    for folder, path in zip(folders, resolved, strict=True):
        if resolved.count(path) > 1:
            raise InvalidInput(f"{folder} is named twice; a run is not compared with itself")
    from tacit.report import RecordedRun, save_comparison, write_comparison
    from tacit.report.compared import describe_observers, name_runs

    loaded, drawn = [RecordedRun.load(folder) for folder in folders], output.with_name(f"{output.stem}-figures")
    if words := describe_observers(name_runs(loaded)):
        note(words)
    with working(f"writing {output}"):
        write_comparison(loaded, output)
        if figures:
            save_comparison(loaded, drawn)
    print_written(output, drawn if figures else None)
