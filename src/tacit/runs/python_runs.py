"""Runs on disk that are started from Python: `tacit.train(..., run=...)`, and `tacit.resume`.

The same `Runner` as in `tacit train` plays and keeps them.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from tacit.errors import InvalidInput
from tacit.io.stopping import Stopping
from tacit.privacy import Budget, DurableLedger
from tacit.runs.config import RunConfig
from tacit.runs.folder import RunFolder
from tacit.runs.python_config import AnyConfig
from tacit.runs.python_training import config_of
from tacit.runs.resuming import after_failure, how_to_load, is_kept
from tacit.runs.run_names import as_path, find_run
from tacit.runs.runner import Runner
from tacit.runs.user_code import UserCode
from tacit.training.progress import rounds_bar
from tacit.training.results import Result
from tacit.training.settings import Training

SPARE_QUERIES: int = RunConfig.model_fields["spare_queries"].default
_CHECKPOINT_EVERY: int = RunConfig.model_fields["checkpoint_every"].default


def train_kept(
    training: Training,
    names: Mapping[str, UserCode | str],
    run: str,
    runs: str | os.PathLike[str],
    *,
    checkpoint_every: int | None,
    budget: Budget | None,
    tensorboard: bool,
) -> Result:
    """Train in a new run folder and return the result."""
    if not isinstance(run, str):
        raise InvalidInput(f"run is {run!r}; give the run a name")
    folder = as_path("runs", runs)
    for key in ("ledger", "name"):
        if getattr(training, key) is not None:
            raise InvalidInput(f"the run is called {run!r} and charged to {folder / 'ledger.sqlite'}; leave out {key}")
    if budget is not None and not isinstance(budget, Budget):
        raise InvalidInput(f"budget is {budget!r}; give a Budget(epsilon=..., delta=...)")
    every = _CHECKPOINT_EVERY if checkpoint_every is None else checkpoint_every
    if not isinstance(every, int) or isinstance(every, bool) or every < 1:
        raise InvalidInput(f"checkpoint_every is {every!r}; it must be a whole number, at least 1")
    config = config_of(training, names, checkpoint_every=every, tensorboard=tensorboard)
    start = partial(Runner.start, folder, run, config, make=lambda say: training, budget=budget)
    return _play(start, folder / run, config, training.progress)


def resume(
    run: str | os.PathLike[str], *, runs: str | os.PathLike[str] = "runs", progress: bool = False, **objects: Any
) -> Result:
    """Resume a run that was killed or stopped, play it to its end and return the result; no round queries the data twice.

    A run whose objects can all be made again by name needs only its name, and `tacit resume` can resume it as well. Give any others
    again as they were: `model`, `loss`, `data`, `graph`, `algorithm`, `lr`, `sources` or `mixing`. They are compared with what the
    folder keeps of them, and refused where they differ. This runs the code that the run's settings name.

    Ctrl-C is as in `tacit.train(..., run=...)`.

    run: the run's folder, or its name.
    runs: the folder of all runs, where a name is given.
    progress: show a progress bar, if the error stream is a terminal.
    """
    path = find_run(as_path("run", run), as_path("runs", runs))
    begin = partial(Runner.resume, path, given={"progress": progress, **objects})
    return _play(begin, path, RunFolder.find(path).config(), progress)


def _play(begin: Callable[[], Runner], path: Path, config: AnyConfig, progress: bool) -> Result:
    """Play a run to its end. Ctrl-C lets the round finish and saves, a second one stops at once; both say how to resume."""
    runner = None
    with Stopping(_say, _interrupts()) as stopping:
        try:
            runner = begin()
            result, stopped = _play_rounds(runner, stopping.let_rounds_end(), progress), "and saved"
        except KeyboardInterrupt:
            result, stopped = None, "at once"
        except BaseException as error:
            if runner is not None:
                error.add_note(after_failure(error, path, config))
            raise
    if runner is None:
        if path.exists():
            _say(f"stopped before any further query. {is_kept(path, config)}")
        raise KeyboardInterrupt
    if result is None:
        where = f"after round {runner.session.round:,} of {config.total_rounds:,}"
        _say(f"stopped {where}, {stopped}. {is_kept(path, config)}")
        raise KeyboardInterrupt
    if stopping.asked:
        _say(f"the run had reached its end, and is finished: {how_to_load(path, config)} loads it")
        raise KeyboardInterrupt
    return replace(result, ledger=DurableLedger(runner.folder.ledger_file, read_only=True))  # the runner's is closed


def _play_rounds(runner: Runner, stop: Callable[[], bool], progress: bool) -> Result | None:
    with runner, rounds_bar(progress, runner.folder.name, runner.config.total_rounds, runner.session.round) as advanced:
        words = lru_cache(maxsize=1)(lambda count: _words(runner) if progress else "")
        history = runner.session.monitor.histories[0]
        return runner.play(stop=stop, on_round=lambda _: advanced(words(len(history))))


def _interrupts() -> tuple[signal.Signals, ...]:
    """Return the signal of Ctrl-C if this program may handle it: in the main thread, with no other handler."""
    free = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return (signal.SIGINT,) if free and threading.current_thread() is threading.main_thread() else ()


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def _words(runner: Runner) -> str:
    """State the accuracy and ε at the last snapshot, and its round."""
    last = runner.session.monitor.histories[0][-1]
    seen = [] if last.accuracy is None else [f"accuracy {last.accuracy.mean():.1%}"]
    if (spent := runner.state_epsilon_at(last)) is not None:
        seen.append(spent)
    return f"after round {last.round}: {', '.join(seen)}" if seen else ""
