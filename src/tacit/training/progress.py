"""A progress bar over the rounds of a run, on a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text


@contextmanager
def rounds_bar(shown: bool, name: str, rounds: int, done: int = 0) -> Iterator[Callable[..., None]]:
    """Yield a function to call after every round, with words to show. Nothing is drawn without a terminal."""
    console = Console(stderr=True)
    if not (shown and console.is_terminal):
        yield lambda words="": None
        return
    progress = Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    task = progress.add_task(name, total=rounds, completed=done)
    with Live(progress, console=console, refresh_per_second=4, transient=True) as live:

        def advanced(words: str = "") -> None:
            progress.advance(task)
            live.update(Group(progress, Text(words)) if words else progress)  # below the bar, which needs the line

        yield advanced
