"""Scores of many runs, with the record and without: in batches, on several processes, resumable.

Every finished batch is a line of a journal and is not played again. Batches of the two sides alternate, so that an audit that is
stopped early is balanced.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float

from tacit.errors import InvalidInput
from tacit.io import journal
from tacit.io.processes import spread

Scores = dict[str, Float[np.ndarray, " runs"]]
OnRuns = Callable[[int, int], None]
"""Called with the number of runs done, of both sides, and the total: before the first batch and after each."""


class Attack(Protocol):
    """Plays runs of one side and scores them."""

    def scores(self, trials: int, *, present: bool, seed: int) -> Scores:
        """Return one score per run for each statistic."""


@dataclass(frozen=True, order=True)
class _AttackBatch:
    batch: int
    present: bool
    runs: int


@dataclass(frozen=True)
class Collected:
    """The scores of all runs, by statistic, in the order of their batches."""

    absent: Scores
    present: Scores

    @property
    def statistics(self) -> tuple[str, ...]:
        """The names of the scores."""
        return tuple(self.absent)


def collect(
    attack: Attack,
    runs: int,
    *,
    batch: int,
    workers: int = 1,
    file: Path | None = None,
    facts: dict[str, Any] | None = None,
    on_progress: OnRuns = lambda done, total: None,
) -> Collected:
    """Play `runs` runs on each side and return their scores; run i has seed i.

    file: where batches are kept. Batches already there, of an attack with the same `facts` and batch size, are not played again.
    """
    for name, value in (("runs", runs), ("batch", batch), ("workers", workers)):
        if value < 1:
            raise InvalidInput(f"{name} is {value}; it must be at least 1")
    wanted = [
        _AttackBatch(number, side, min(batch, runs - first))
        for number, first in enumerate(range(0, runs, batch))
        for side in (False, True)
    ]
    facts = {**(facts or {}), "batch": batch}
    done: dict[_AttackBatch, Scores] = {}
    if file is not None:
        kept = journal.read(file, facts, _parse, pieces="scores", work="attack")
        done = {each: scores for each, scores in kept if each in wanted}
    missing = [each for each in wanted if each not in done]
    with closing(spread(partial(_score, attack, batch), missing, workers)) as batches:
        on_progress(sum(played.runs for played in done), 2 * runs)
        for each, scores in batches:
            done[each] = scores
            if file is not None:
                listed = {name: values.tolist() for name, values in scores.items()}
                journal.append(file, facts, {**asdict(each), "scores": listed})
            on_progress(sum(played.runs for played in done), 2 * runs)
    sides = [[done[each] for each in wanted if each.present is side] for side in (False, True)]
    absent, present = ({name: np.concatenate([part[name] for part in parts]) for name in parts[0]} for parts in sides)
    return Collected(absent, present)


def _score(attack: Attack, size: int, batch: _AttackBatch) -> Scores:
    # The two sides start from the same public models.
    return attack.scores(batch.runs, present=batch.present, seed=batch.batch * size)


def _parse(line: dict[str, Any]) -> tuple[_AttackBatch, Scores]:
    batch = _AttackBatch(line["batch"], line["present"], line["runs"])
    scores = {name: np.asarray(values, dtype=np.float64) for name, values in line["scores"].items()}
    if any(values.shape != (batch.runs,) for values in scores.values()):
        raise ValueError(f"batch {batch.batch} is incomplete")
    return batch, scores
