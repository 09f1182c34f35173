"""`train`, the front door, and `train_trials` for several independent systems side by side."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tacit.algorithms import Algorithm
from tacit.algorithms.averaged import name_of
from tacit.errors import InvalidInput, choose
from tacit.naming import Own, find, is_own
from tacit.own import make_own
from tacit.privacy import Budget, Privacy
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
_BY_NAME = ("data", "algorithm", "model", "loss", "graph")  # the data first: a model or a graph may be made for it


def train(
    algorithm: Algorithm[Any] | str,
    *,
    run: str | None = None,
    runs: str | os.PathLike[str] = "runs",
    budget: Budget | None = None,
    checkpoint_every: int | None = None,
    tensorboard: bool = False,
    **settings: Any,
) -> Result:
    """Train once and return what came of it. The settings are the fields of `Training`, which documents them.

    The algorithm, `model`, `loss`, `data` and `graph` may also be given by name, as `"package.module:name"` or `"file.py:name"`.

    run: keep the run in a folder of this name, as `tacit train` does. It can then be resumed after it was killed (`tacit.resume`),
        loaded when it is finished (`tacit.load`), and listed, compared and reported by `tacit`. Its queries are in the
        ledger beside it, and two spare ones are added unless `spare_queries` says otherwise. Ctrl-C lets the round finish, saves,
        says how to resume and raises KeyboardInterrupt; a second one stops at once.
    runs: the folder of all runs, with their ledger.
    budget: stored in that ledger; it bounds what all runs there spend together.
    checkpoint_every: rounds between checkpoints of a run that is kept, 50 unless given.
    tensorboard: whether a run that is kept also writes event files for TensorBoard.
    """
    if run is None:
        for name, value in (("budget", budget), ("checkpoint_every", checkpoint_every), ("tensorboard", tensorboard)):
            if value:
                advice = "; for a run that is not kept, pass ledger=Ledger(Budget(...))" if name == "budget" else ""
                raise InvalidInput(f"{name} is for a run that is kept; give it a name with run={advice}")
        return train_trials(1, algorithm, **settings)[0]
    from tacit.runs.doors import SPARE_QUERIES, train_kept

    private = isinstance(settings.get("privacy"), Privacy)
    spare = {"spare_queries": SPARE_QUERIES} if private and "spare_queries" not in settings else {}
    training, names = _training(algorithm, settings, spare)
    kept: dict[str, Any] = {"checkpoint_every": checkpoint_every, "budget": budget, "tensorboard": tensorboard}
    return train_kept(training, names, run, runs, **kept)


def train_trials(trials: int, algorithm: Algorithm[Any] | str, **settings: Any) -> list[Result]:
    """Train several independent systems on the same data, side by side; trial t starts from `seed + t`."""
    if "run" in settings:
        raise InvalidInput(
            "a folder keeps one run; train several with tacit.train(..., run=...), each under its own name"
        )
    training, _ = _training(algorithm, settings)
    with Session(training, Stacked(trials)) as session:
        with rounds_bar(training.progress, name_of(training.algorithm), training.rounds) as advanced:
            while not session.finished:
                session.advance()
                advanced()
        return session.results()


def _training(
    algorithm: Algorithm[Any] | str, settings: dict[str, Any], more: dict[str, Any] | None = None
) -> tuple[Training, dict[str, Own]]:
    """Return all settings in one object, and what was given by name."""
    for key in settings:
        if key in _OTHER_NAMES:
            raise InvalidInput(f"there is no setting {key!r}; {_OTHER_NAMES[key]}")
        choose("setting", key, [field.name for field in fields(Training)])
    found: dict[str, Any] = {"algorithm": algorithm, **settings}
    names: dict[str, Own] = {}
    for key in _BY_NAME:
        if isinstance(text := found.get(key), str) and is_own(text):
            names[key] = find(key, text)
            found[key] = make_own(key, names[key], found.get("data"), found.get("seed", 0))
    return Training(**found, **(more or {})), names


@contextmanager
def rounds_bar(shown: bool, name: str, rounds: int, done: int = 0) -> Iterator[Callable[..., None]]:
    """Yield what to call after every round, with what there is to say. Nothing is drawn where there is no terminal to draw on."""
    console = Console(stderr=True)
    if not (shown and console.is_terminal):
        yield lambda words="": None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[words]}"), console=console, transient=True) as progress:
        task = progress.add_task(name, total=rounds, completed=done, words="")
        yield lambda words="": progress.update(task, advance=1, words=words)
