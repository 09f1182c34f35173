"""The door from Python to runs on disk: `tacit.train(..., run=...)`, and `tacit.resume`.

What plays and keeps them is the same `Runner` that `tacit train` has.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from tacit.config import RunConfig
from tacit.errors import InvalidInput
from tacit.naming import Own
from tacit.privacy import Budget, DurableLedger
from tacit.privacy.guarantees import per, shown, terms
from tacit.results import Result
from tacit.runs.names import find_run
from tacit.runs.objects import config_of
from tacit.runs.runner import Runner
from tacit.settings import Training
from tacit.training import rounds_bar

SPARE_QUERIES: int = RunConfig.model_fields["spare_queries"].default
_CHECKPOINT_EVERY: int = RunConfig.model_fields["checkpoint_every"].default


def train_kept(
    training: Training,
    names: Mapping[str, Own],
    run: str,
    runs: str | os.PathLike[str],
    *,
    checkpoint_every: int | None,
    budget: Budget | None,
    tensorboard: bool,
) -> Result:
    """Train in a folder of its own and return what came of it."""
    if not isinstance(run, str):
        raise InvalidInput(f"run is {run!r}; give the run a name")
    for key in ("ledger", "name"):
        if getattr(training, key) is not None:
            raise InvalidInput(
                f"a run that is kept is called {run!r} and has its queries in {Path(runs) / 'ledger.sqlite'}; leave out {key}"
            )
    if budget is not None and not isinstance(budget, Budget):
        raise InvalidInput(f"budget is {budget!r}; give a Budget(epsilon=..., delta=...)")
    every = _CHECKPOINT_EVERY if checkpoint_every is None else checkpoint_every
    if not isinstance(every, int) or isinstance(every, bool) or every < 1:
        raise InvalidInput(f"checkpoint_every is {every!r}; it must be a whole number, at least 1")
    config = config_of(training, names, checkpoint_every=every, tensorboard=tensorboard)
    return _play(Runner.start(Path(runs), run, config, make=lambda say: training, budget=budget), training.progress)


def resume(
    run: str | os.PathLike[str], *, runs: str | os.PathLike[str] = "runs", progress: bool = False, **objects: Any
) -> Result:
    """Go on with a run that was killed or stopped, play it to its end and return what came of it; no round is asked twice.

    A run whose objects can all be had by name needs no more than its name, and `tacit resume` goes on with it, too. Others are
    given again as they were: `model`, `loss`, `data`, `graph`, `algorithm`, `lr`, `sources` or `mixing`. They are held against what the
    folder keeps of them, and refused where they differ. This runs the code that the run's settings name.

    run: the run's folder, or its name.
    runs: the folder of all runs, where a name is given.
    progress: show a progress bar, if the error stream is a terminal.
    """
    path = find_run(Path(run), Path(runs))
    return _play(Runner.resume(path, given={"progress": progress, **objects}), progress)


def _play(runner: Runner, progress: bool) -> Result:
    """Play a run to its end. Whatever stops it on the way is told how to go on."""
    try:
        with runner, rounds_bar(progress, runner.folder.name, runner.config.rounds, runner.session.round) as advanced:
            words = lru_cache(maxsize=1)(lambda looks: _words(runner) if progress else "")
            looks = runner.session.watch.histories[0]
            result = runner.play(stop=lambda: False, on_round=lambda _: advanced(words(len(looks))))
    except BaseException as error:
        error.add_note(f"The run is kept; go on with tacit.resume({str(runner.folder.path)!r})")
        raise
    assert result is not None
    return replace(result, ledger=DurableLedger(runner.folder.ledger_file, read_only=True))  # the runner's is closed


def _words(runner: Runner) -> str:
    """Say what the last look saw and what was spent until then, under the round that it was after."""
    look = runner.session.watch.histories[0][-1]
    seen = [] if look.accuracy is None else [f"accuracy {look.accuracy.mean():.1%}"]
    spent, promise = runner.epsilon_at(look), runner.session.plan.privacy
    if spent is not None and promise is not None:
        seen.append(
            f"{per(runner.protected, shown(spent))} at {terms(promise.delta, promise.adjacency, promise.accountant)}"
        )
    return f"after round {look.round}: {', '.join(seen)}" if seen else ""
