"""`train`, the front door, and `train_trials` for several independent systems side by side."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tacit.algorithms import Algorithm
from tacit.algorithms.averaged import name_of
from tacit.errors import InvalidInput, choose
from tacit.results import Result
from tacit.runtimes import Stacked
from tacit.session import Session
from tacit.settings import Training

# What other libraries call things.
_OTHER_NAMES = {
    "learning_rate": "the step size is lr",
    "epochs": "give the number of rounds",
    "iterations": "give the number of rounds",
    "batch_size": "the lot size is part of the promise: Privacy(lot_size=...)",
    "epsilon": "the promise is privacy=Privacy(epsilon=..., delta=..., clip=..., lot_size=...)",
}


def train(algorithm: Algorithm[Any], **settings: Any) -> Result:
    """Train once and return what came of it. The settings are the fields of `Training`, which documents them."""
    return train_trials(1, algorithm, **settings)[0]


def train_trials(trials: int, algorithm: Algorithm[Any], **settings: Any) -> list[Result]:
    """Train several independent systems on the same data, side by side; trial t starts from `seed + t`."""
    for key in settings:
        if key in _OTHER_NAMES:
            raise InvalidInput(f"there is no setting {key!r}; {_OTHER_NAMES[key]}")
        choose("setting", key, [field.name for field in fields(Training)])
    training = Training(algorithm=algorithm, **settings)
    with Session(training, Stacked(trials)) as session:
        with _progress(training.progress, name_of(algorithm), training.rounds) as advanced:
            while not session.finished:
                session.advance()
                advanced()
        return session.results()


@contextmanager
def _progress(shown: bool, name: str, rounds: int) -> Iterator[Callable[[], None]]:
    """Yield what to call after every round. Nothing is drawn where there is no terminal to draw on."""
    console = Console(stderr=True)
    if not (shown and console.is_terminal):
        yield lambda: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(name, total=rounds)
        yield lambda: progress.advance(task)
