"""Independent trials shared out to processes of this machine: each plays some of them side by side, and nothing crosses between them.

Accounts belong to this process. It opens all of them together, by one plan, and charges every query that a trial will make before any process
begins, so whatever happens to a process, no answer exists that was not charged.
"""

import pickle
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from multiprocessing import current_process
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.algorithms.averaged import name_of
from tacit.errors import InvalidInput, ProcessLost
from tacit.io.processes import spread
from tacit.privacy import Account, Diagnostics, Plan, Secret
from tacit.privacy.accounts import Line
from tacit.training.prepared import TrialShare
from tacit.training.progress import rounds_bar
from tacit.training.results import Result, Snapshot
from tacit.training.runtimes import Stacked
from tacit.training.schedules import as_schedule, only_rows
from tacit.training.session import Session
from tacit.training.settings import Training

_GIVEN = ("algorithm", "model", "loss", "lr", "graph", "mixing", "sources", "privacy")
"""Settings that may hold code or objects of the user's own."""


class _Whole(NamedTuple):
    """What every process is given: the settings, and what was settled for all trials."""

    training: Training
    trials: int
    plan: Plan
    lines: tuple[Line, ...]
    queries: int
    """How many queries a trial is charged for."""


class _Played(NamedTuple):
    """What a process returns of one trial. All of it is public, except for diagnostics that the experimenter asked for."""

    theta: NDArray[np.uint8]
    """The models' bytes: what numpy holds is sent as it is, while a tensor would be put into shared memory."""
    history: list[Snapshot]
    finished: bool
    seconds: float
    evaluation_seconds: float
    private_diagnostics: list[Diagnostics] | None


def play_trials(training: Training, trials: int, workers: int) -> list[Result]:
    """Play independent trials in this many processes with one thread each, and return their results.

    A step is shaped for the agents of one trial unless `step_agents` says otherwise, so that with seeded sources the models are the same, to the
    bit, for every number of workers.
    """
    if not isinstance(workers, int) or isinstance(workers, bool) or workers < 1:
        raise InvalidInput(f"workers is {workers!r}; it must be a whole number, at least 1")
    if training.step_agents is None:
        training = replace(training, step_agents=training.data.agents)
    _check_given(training, workers)
    # This session settles the plan and holds the accounts; it plays nothing, so nothing needs to be compiled.
    with Session(replace(training, compile=False), Stacked(trials)) as session:
        queries = 1 if session.plan.privacy is None else session.cost.queries
        whole = _Whole(
            replace(training, ledger=None, name=None, progress=False),
            trials,
            session.plan,
            session.accounts[0].lines,
            queries,
        )
        parts = _share_out(trials, workers)
        for account in session.accounts:
            for _ in range(queries):
                account.spend()
        played: dict[int, _Played] = {}
        bar = rounds_bar(training.progress, f"{name_of(training.algorithm)}, trials", trials)
        with _one_thread(), bar as advanced, closing(spread(partial(_play, whole), parts, workers)) as outcomes:
            for part, each in _explained(outcomes):
                for trial, one in zip(part, each, strict=True):
                    played[trial] = one
                    session.accounts[trial].close(finished=one.finished)
                    advanced()
        return [
            replace(
                result,
                theta=torch.from_numpy(played[trial].theta).view(result.theta.dtype).to(result.theta.device),
                history=played[trial].history,
                seconds=played[trial].seconds,
                evaluation_seconds=played[trial].evaluation_seconds,
                private_diagnostics=played[trial].private_diagnostics,
            )
            for trial, result in enumerate(session.results())
        ]


def _share_out(trials: int, workers: int) -> list[range]:
    """Return the numbers of the trials of each process: about as many each, one after another."""
    count = min(workers, trials)
    bounds = [trials * part // count for part in range(count + 1)]
    return [range(first, last) for first, last in pairwise(bounds)]


def _play(whole: _Whole, part: range) -> list[_Played]:
    """Play some of the trials, charged by now, in this process."""
    training, plan = whole.training, whole.plan
    agents = training.data.agents
    rows = range(part.start * agents, part.stop * agents)
    changes: dict[str, Any] = {"lr": only_rows(as_schedule(training.lr), rows, whole.trials * agents)}
    if isinstance(training.graph, Sequence) and len(training.graph) > 1:
        changes["graph"] = [training.graph[trial] for trial in part]
    accounts = [Account(str(trial), whole.lines, whole.queries) for trial in part]
    share = TrialShare(part.start, plan)
    with Session(replace(training, **changes), Stacked(len(part)), accounts=accounts, share=share) as session:
        while not session.finished:
            session.advance()
        results = session.results()
    return [
        _Played(
            result.theta.cpu().contiguous().view(torch.uint8).numpy(),
            result.history,
            account.state == "finished",
            result.seconds,
            result.evaluation_seconds,
            result.private_diagnostics,
        )
        for result, account in zip(results, accounts, strict=True)
    ]


def _check_given(training: Training, workers: int) -> None:
    """Refuse what other processes cannot be given, or what would not work as it does in one."""
    if training.taps:
        raise InvalidInput(
            "taps see the messages of this process, and with workers trials are played in others; leave one of them out"
        )
    if training.chosen_sources.secret and not isinstance(training.chosen_sources, Secret):
        raise InvalidInput(
            "copies of secret sources in several processes could draw the same noise; with workers, use Secret()"
        )
    if workers == 1:
        return
    if getattr(current_process(), "_inheriting", False):  # as this script is read again by a process that it started
        raise InvalidInput('workers start by reading your script: put what it does below if __name__ == "__main__":')
    given = {name: getattr(training, name) for name in _GIVEN} | {"prepare of the data": training.data.dataset.prepare}
    for name, value in given.items():
        try:
            pickle.dumps(value)
        except Exception as error:
            raise InvalidInput(
                f"{name} cannot be given to other processes: {error}. With workers, use functions and classes from the top of a module, no "
                "lambda, or leave workers out"
            ) from None


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute on one thread, as other processes do: how a sum is rounded follows from the number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _explained(outcomes: Iterator[tuple[range, list[_Played]]]) -> Iterator[tuple[range, list[_Played]]]:
    """Yield the outcomes; if a process is gone, say what may be the reason and what that costs."""
    try:
        yield from outcomes
    except ProcessLost:
        raise ProcessLost(
            "a process that played trials is gone, or could not begin: memory may have run out (use fewer workers); your script may lack "
            'if __name__ == "__main__":, so that it ran again there; or your functions are not found there, as those that are typed at a '
            "prompt. All trials that did not end are charged their whole plan"
        ) from None
