"""Progress as a count: a bar on a terminal, lines elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

Update = Callable[[int, str, str], None]
"""Takes how many are done, what to write beside the bar, and the line to print without a bar; an empty one is not printed."""


@contextmanager
def count_progress(screen: Console, what: str, total: int, *, shown: bool) -> Iterator[Update]:
    """Yield a function to call whenever more is done."""
    if not shown:
        yield lambda done, beside, line: None
    elif screen.is_terminal:
        columns = (TextColumn(what), BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, TextColumn("{task.fields[beside]}"), console=screen, transient=True) as progress:
            task = progress.add_task("", total=total, beside="")
            yield lambda done, beside, line: progress.update(task, completed=done, beside=beside)
    else:
        yield lambda done, beside, line: screen.print(line) if line else None
