"""Many runs on both sides, with the record and without: in batches, on several processes, resumable.

Every finished batch is a line of a file, written at once. A torn last line is dropped, and a batch that is there is not
played again. Batches of the two sides alternate, so that whatever was stopped early is balanced.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Float

from tacit.errors import InvalidInput
from tacit.memory import keep_pages

Scores = dict[str, Float[np.ndarray, " runs"]]
Told = Callable[[int, int], None]
"""Called with how many runs of both sides are done, and of how many."""


class Attack(Protocol):
    """Plays runs on one side and scores them."""

    def scores(self, trials: int, *, present: bool, seed: int) -> Scores:
        """Return one score for each run, by each statistic."""


@dataclass(frozen=True, order=True)
class _Batch:
    number: int
    present: bool
    runs: int


@dataclass(frozen=True)
class Collected:
    """The scores of all runs, by statistic, in the order of their batches."""

    absent: Scores
    present: Scores

    @property
    def statistics(self) -> tuple[str, ...]:
        """Which scores there are."""
        return tuple(self.absent)


def collect(
    attack: Attack,
    runs: int,
    *,
    batch: int,
    workers: int = 1,
    file: Path | None = None,
    facts: dict[str, Any] | None = None,
    told: Told | None = None,
) -> Collected:
    """Play `runs` runs on each side and return their scores.

    file: where batches are kept; what is there already, of an attack with the same `facts`, is taken from it.
    """
    for name, value in (("runs", runs), ("batch", batch), ("workers", workers)):
        if value < 1:
            raise InvalidInput(f"{name} is {value}; it must be at least 1")
    starts = range(0, runs, batch)
    wanted = [
        _Batch(number, side, min(batch, runs - first)) for number, first in enumerate(starts) for side in (False, True)
    ]
    done = _read(file, facts or {}, set(wanted)) if file is not None else {}
    missing = [each for each in wanted if each not in done]
    with _writer(file, facts or {}, fresh=not done) as write:
        for each, scores in _play(attack, missing, batch, workers):
            done[each] = scores
            write(each, scores)
            if told is not None:
                told(sum(played.runs for played in done), 2 * runs)
    sides = [[done[each] for each in wanted if each.present is side] for side in (False, True)]
    absent, present = ({name: np.concatenate([part[name] for part in parts]) for name in parts[0]} for parts in sides)
    return Collected(absent, present)


def _play(attack: Attack, batches: Sequence[_Batch], size: int, workers: int) -> Iterator[tuple[_Batch, Scores]]:
    if workers == 1 or len(batches) < 2:
        for each in batches:
            yield each, _scores(attack, each, size)
        return
    context = get_context("spawn")  # a fork would copy locks of threads that are not there
    pool = ProcessPoolExecutor(min(workers, len(batches)), mp_context=context, initializer=_prepare, initargs=(attack,))
    try:
        futures = {pool.submit(_scores_in_worker, each, size): each for each in batches}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_attack: Attack | None = None


def _prepare(attack: Attack) -> None:
    global _attack
    _attack = attack
    torch.set_num_threads(1)
    keep_pages()


def _scores_in_worker(batch: _Batch, size: int) -> Scores:
    assert _attack is not None
    return _scores(_attack, batch, size)


def _scores(attack: Attack, batch: _Batch, size: int) -> Scores:
    # The two sides start from the same public models.
    return attack.scores(batch.runs, present=batch.present, seed=batch.number * size)


@contextmanager
def _writer(file: Path | None, facts: dict[str, Any], *, fresh: bool) -> Iterator[Callable[[_Batch, Scores], None]]:
    """Yield what appends a finished batch; it is on the disk before the next is asked for."""
    if file is None:
        yield lambda batch, scores: None
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "wb" if fresh else "ab") as stream:

        def line(content: dict[str, Any]) -> None:
            stream.write(json.dumps(content).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())

        def add(batch: _Batch, scores: Scores) -> None:
            listed = {name: values.tolist() for name, values in scores.items()}
            line({"batch": batch.number, "present": batch.present, "runs": batch.runs, "scores": listed})

        if fresh:
            line({"facts": facts})
        yield add


def _read(file: Path, facts: dict[str, Any], wanted: set[_Batch]) -> dict[_Batch, Scores]:
    """Return the batches that a file has, and cut a torn last line off it."""
    if not file.exists():
        return {}
    content = file.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    lines = whole.decode(errors="replace").splitlines()
    if not lines:
        return {}
    try:
        first, *rest = (json.loads(line) for line in lines)
        kept = first["facts"]
        found = {
            _Batch(each["batch"], each["present"], each["runs"]): {
                name: np.asarray(values, dtype=np.float64) for name, values in each["scores"].items()
            }
            for each in rest
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InvalidInput(f"{file} is not a file of scores, or it is damaged; move it away to begin anew") from None
    if kept != json.loads(json.dumps(facts)):
        changed = sorted(key for key in {*kept, *facts} if kept.get(key) != json.loads(json.dumps(facts.get(key))))
        raise InvalidInput(
            f"{file} holds scores of another attack ({', '.join(changed)} differ); choose another folder, or move it away"
        )
    if len(whole) < len(content):
        with open(file, "r+b") as stream:
            stream.truncate(len(whole))
    return {each: scores for each, scores in found.items() if each in wanted}
