"""Batches are kept as they finish, taken up again, and never mixed with those of another attack."""

import json
import signal
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from tacit.audit.attacks.collection import Collected, collect
from tacit.errors import InvalidInput


@dataclass(frozen=True)
class Counting:
    """Scores that tell which run they are of; remembers what was played."""

    played: list[tuple[int, int, bool]] = field(default_factory=list)
    fails_after: int = 10**9

    def scores(self, trials: int, *, present: bool, seed: int) -> dict[str, np.ndarray]:
        if len(self.played) >= self.fails_after:
            raise KeyboardInterrupt
        self.played.append((seed, trials, present))
        return {"a": np.arange(seed, seed + trials) + 1000.0 * present, "b": np.full(trials, 0.1)}


class Deaf(Counting):
    """Also tells whether Ctrl-C is blocked, which is inherited from the moment the process was started."""

    def scores(self, trials: int, *, present: bool, seed: int) -> dict[str, np.ndarray]:
        deaf = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        deaf = deaf and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        return {**super().scores(trials, present=present, seed=seed), "deaf": np.full(trials, float(deaf))}


def same(one: Collected, other: Collected) -> bool:
    pairs = [(one.absent, other.absent), (one.present, other.present)]
    return all(np.array_equal(x[name], y[name]) for x, y in pairs for name in x)


def test_runs_of_both_sides_come_back_in_order() -> None:
    found = collect(Counting(), 25, batch=10)
    assert found.absent["a"].tolist() == list(range(25))
    assert found.present["a"].tolist() == [1000 + i for i in range(25)]
    assert found.statistics == ("a", "b")


@pytest.mark.slow
def test_two_processes_find_the_same_and_were_born_deaf_to_ctrl_c() -> None:
    found = collect(Deaf(), 25, batch=10, workers=2)
    assert same(collect(Counting(), 25, batch=10), found)
    assert set(found.absent["deaf"]) == {1.0}
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_stopped_attack_goes_on_where_it_was(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "scores.jsonl"
    with pytest.raises(KeyboardInterrupt):
        collect(Counting(fails_after=3), 25, batch=10, file=file, facts={"x": 1})
    rest = Counting()
    told: list[tuple[int, int]] = []
    found = collect(rest, 25, batch=10, file=file, facts={"x": 1}, on_progress=lambda *now: told.append(now))
    assert rest.played == [(10, 10, True), (20, 5, False), (20, 5, True)]
    assert told == [(30, 50), (40, 50), (45, 50), (50, 50)]
    assert same(found, collect(Counting(), 25, batch=10))
    nothing = Counting()
    assert same(collect(nothing, 25, batch=10, file=file, facts={"x": 1}), found)
    assert not nothing.played


def test_more_runs_are_added_to_those_there(tmp_path: Path) -> None:
    file = tmp_path / "scores.jsonl"
    collect(Counting(), 20, batch=10, file=file)
    more = Counting()
    collect(more, 30, batch=10, file=file)
    assert more.played == [(20, 10, False), (20, 10, True)]


def test_torn_line_is_dropped(tmp_path: Path) -> None:
    file = tmp_path / "scores.jsonl"
    whole = collect(Counting(), 20, batch=10, file=file)
    file.write_bytes(file.read_bytes()[:-7])
    again = Counting()
    assert same(collect(again, 20, batch=10, file=file), whole)
    assert again.played == [(10, 10, True)]
    assert len([json.loads(line) for line in file.read_text().splitlines()]) == 5


def test_other_attack_in_the_same_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "scores.jsonl"
    collect(Counting(), 10, batch=10, file=file, facts={"rounds": 5, "rule": "dsgd"})
    before = file.read_bytes()
    with pytest.raises(InvalidInput, match="another attack \\(rounds differ\\)"):
        collect(Counting(), 10, batch=10, file=file, facts={"rounds": 6, "rule": "dsgd"})
    assert file.read_bytes() == before


@pytest.mark.parametrize("content", [b"hello\n", b"[1]\n", b'{"facts": {}}\n{"batch": 1}\n', b'{"facts": {}}\nnull\n'])
def test_foreign_file_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "scores.jsonl"
    file.write_bytes(content)
    with pytest.raises(InvalidInput, match="not a file of scores"):
        collect(Counting(), 10, batch=10, file=file)
    assert file.read_bytes() == content


def test_other_batches_are_refused_and_nothing_is_erased(tmp_path: Path) -> None:
    file = tmp_path / "scores.jsonl"
    collect(Counting(), 20, batch=10, file=file)
    before = file.read_bytes()
    with pytest.raises(InvalidInput, match="batch differ"):
        collect(Counting(), 5, batch=5, file=file)
    fewer = collect(Counting(), 5, batch=10, file=file)  # a shorter last batch is a batch of its own
    assert len(fewer.absent["a"]) == 5
    assert file.read_bytes().startswith(before)


def test_shortened_batch_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "scores.jsonl"
    collect(Counting(), 10, batch=10, file=file)
    file.write_text(file.read_text().replace("1.0, 2.0, ", ""))
    with pytest.raises(InvalidInput, match="damaged"):
        collect(Counting(), 10, batch=10, file=file)


@pytest.mark.parametrize("name", ["runs", "batch", "workers"])
def test_counts_must_be_positive(name: str) -> None:
    with pytest.raises(InvalidInput, match=name):
        collect(Counting(), **{"runs": 1, "batch": 1, name: 0})
