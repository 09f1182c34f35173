"""`train`, the front door, and `train_trials` for several independent systems side by side."""

import os
from dataclasses import MISSING, fields
from typing import Any

from tacit.algorithms import Algorithm
from tacit.algorithms.averaged import is_pooled, name_of
from tacit.data import DataSet
from tacit.errors import InvalidInput, choose, setting_called
from tacit.privacy import Budget, Privacy
from tacit.runs.config import RunConfig
from tacit.runs.shipped import BY_NAME, by_name
from tacit.runs.specs import parse_split
from tacit.runs.user_code import UserCode
from tacit.training.progress import rounds_bar
from tacit.training.results import Result
from tacit.training.runtimes import Stacked
from tacit.training.session import Session
from tacit.training.settings import Training, explain_undivided
from tacit.training.trials import play_trials

# Settings of the command line that are elsewhere in Python, besides those of `Privacy`.
_ELSEWHERE = {
    "workers": "one run is shared by several processes with tacit train --workers, and trials with tacit.train_trials(..., workers=...)",
    "step": "give the algorithm a step, as in DSGT(step=Adam())",
    "momentum": "give the algorithm a step, as in DSGT(step=Momentum(0.9))",
}
_DIVISION = ("agents", "split")
_OF_SAVED_RUNS = ("run", "runs", "budget", "checkpoint_every", "tensorboard")  # parameters of `train`
AGENTS: int = RunConfig.model_fields["agents"].default
SPLIT: str = RunConfig.model_fields["split"].default


def train(
    algorithm: Algorithm[Any] | str,
    *,
    run: str | None = None,
    runs: str | os.PathLike[str] | None = None,
    budget: Budget | None = None,
    checkpoint_every: int | None = None,
    tensorboard: bool = False,
    **settings: Any,
) -> Result:
    """Train once and return the result. The settings are the fields of `Training`, which documents them.

    The algorithm, `model`, `loss`, `data` and `graph` may also be given by the names that `tacit train` takes: shipped ones, such as
    `"dsgt"`, `"logistic"`, `"digits"` and `"ring"`, and your own, as `"package.module:name"` or `"file.py:name"`.

    agents, split: how undivided data, given by name or as a `DataSet`, is divided: by default among 10 agents by A(1), as in
        `tacit train`. `split` is a partition or its name, such as `"iid"`. `seed` decides who gets which records.
    run: save the run in a folder of this name, as `tacit train` does. It can then be resumed after a crash (`tacit.resume`),
        loaded when finished (`tacit.load`), and listed, compared and reported by `tacit`. Its queries are in the ledger beside
        it, and two spare ones are added unless `spare_queries` is given. Ctrl-C lets the round finish, saves, says how to resume
        and raises KeyboardInterrupt; a second one stops at once.
    runs: the folder of all saved runs, with their ledger; default `runs`.
    budget: stored in that ledger; it bounds what all runs there spend together.
    checkpoint_every: rounds between checkpoints of a saved run, default 50.
    tensorboard: whether a saved run also writes event files for TensorBoard.
    """
    if run is None:
        kept = {"budget": budget, "checkpoint_every": checkpoint_every, "tensorboard": tensorboard, "runs": runs}
        for name, value in kept.items():
            if value is not None and value is not False:
                advice = "; for a run that is not kept, pass ledger=Ledger(Budget(...))" if name == "budget" else ""
                raise InvalidInput(f'{name} is for a run that is kept; give it a name with run="NAME"{advice}')
        return _play_here(_training(algorithm, settings)[0], 1)[0]
    from tacit.runs.python_runs import SPARE_QUERIES, train_kept

    private = isinstance(settings.get("privacy"), Privacy)
    spare = {"spare_queries": SPARE_QUERIES} if private and "spare_queries" not in settings else {}
    training, names = _training(algorithm, settings, spare)
    how: dict[str, Any] = {"checkpoint_every": checkpoint_every, "budget": budget, "tensorboard": tensorboard}
    return train_kept(training, names, run, "runs" if runs is None else runs, **how)


def train_trials(
    trials: int, algorithm: Algorithm[Any] | str, *, workers: int | None = None, **settings: Any
) -> list[Result]:
    """Train several independent systems on the same data, side by side; trial t starts from `seed + t`.

    workers: share the trials out to so many processes of this machine, with one thread each. With seeded sources the models are the same, to the
        bit, for every number of workers. Without it, all trials are played here, in larger steps and with all threads, and last bits
        may differ. All queries of a trial are charged before it begins. A script needs `if __name__ == "__main__":` around the
        call, and what it passes must be found by other processes: no lambda.
    """
    if "run" in settings or "runs" in settings:
        raise InvalidInput(
            "a folder keeps one run; train several with tacit.train(..., run=...), each under its own name"
        )
    training, _ = _training(algorithm, settings)
    return _play_here(training, trials) if workers is None else play_trials(training, trials, workers)


def _play_here(training: Training, trials: int) -> list[Result]:
    with Session(training, Stacked(trials)) as session:
        with rounds_bar(training.progress, name_of(training.algorithm), training.rounds) as advanced:
            while not session.finished:
                session.advance()
                advanced()
        return session.results()


def _training(
    algorithm: Algorithm[Any] | str, settings: dict[str, Any], more: dict[str, Any] | None = None
) -> tuple[Training, dict[str, UserCode | str]]:
    """Return all settings in one object, and what was given by name: the user's own, and names of what is shipped."""
    for key in settings:
        _check_name(key)
    needed = [field.name for field in fields(Training) if field.default is MISSING and field.name != "algorithm"]
    if missing := [name for name in needed if name not in settings]:
        raise InvalidInput(
            f"give {' and '.join(f'{name}=' for name in missing)}; help(tacit.Training) explains all settings"
        )
    found: dict[str, Any] = {"algorithm": algorithm, **settings}
    division = {key: found.pop(key) for key in _DIVISION if key in found}
    names: dict[str, UserCode | str] = {}
    for key in BY_NAME:
        if isinstance(text := found.get(key), str):
            found[key], own = by_name(key, text, found.get("data"), found.get("seed", 0))
            names[key] = own or text
        if key == "data":
            found[key] = _divide(found[key], division, found.get("seed", 0), named=key in names)
    if "data" in names and is_pooled(found["algorithm"]):
        found["data"] = found["data"].pooled()
    return Training(**found, **(more or {})), names


def _check_name(key: str) -> None:
    """Refuse a setting that `train` does not have, and say where it is, or which one was meant."""
    known = [*_DIVISION, *_OF_SAVED_RUNS, *(field.name for field in fields(Training))]
    setting = setting_called(key)[0] or key
    if key not in known and setting in _ELSEWHERE:
        raise InvalidInput(f"there is no setting {key!r}; {_ELSEWHERE[setting]}")
    if key not in known and setting in {field.name for field in fields(Privacy)}:
        raise InvalidInput(
            f"there is no setting {key!r}; give privacy=Privacy({setting}=..., ...), which has all settings of privacy"
        )
    choose("setting", key, known)


def _divide(data: Any, division: dict[str, Any], seed: int, *, named: bool) -> Any:
    """Return undivided data as divided among agents."""
    if not isinstance(data, DataSet):
        if division:
            raise InvalidInput(
                f"{' and '.join(division)} says how data that is given as a whole is divided, and data is {data!r}; leave it out"
            )
        return data
    if not (named or division):
        raise InvalidInput(explain_undivided(data))
    agents, how = division.get("agents", AGENTS), division.get("split", SPLIT)
    return data.split(agents, parse_split(how) if isinstance(how, str) else how, seed=seed)
