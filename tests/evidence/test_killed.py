"""A run that was killed at any moment is verified without a false alarm, and to the bit once it was resumed and finished."""

import random
import time
from contextlib import closing

import forked
import pytest
from auditing import not_held

from tacit.cli.commands.ledger_verification import find_misstatements
from tacit.evidence.archive import pack
from tacit.evidence.verification import verify
from tacit.privacy import DurableLedger
from tacit.runs import RunFolder, Runner
from tacit.runs.config import RunConfig
from tacit.training.session import Session

SETTINGS = {
    "agents": 3,
    "split": "iid",
    "noise_multiplier": 3.0,
    "lot_size": 24,
    "rounds": 150,
    "checkpoint_every": 2,  # many checkpoints, to be killed between their files, events and anchors
    "evaluate_every": 3,
    "spare_queries": 9,
    "source": "seeded",
}


def play_on(tell, path):
    with Runner.resume(path) as runner:
        runner.play(stop=lambda: False, on_round=lambda runner: tell(runner.session.round))


def problems(runs):
    with closing(DurableLedger(runs / "ledger.sqlite", read_only=True)) as ledger:
        return [*ledger.verify(), *find_misstatements(ledger, ledger, runs)]


@pytest.mark.slow
def test_kill_9_at_random_moments_raises_no_false_alarm(tmp_path):
    Runner.start(tmp_path, "one", RunConfig.of(SETTINGS)).close()
    moments, heads = random.Random(1), []
    for _ in range(4):
        child, said = forked.start(play_on, tmp_path / "one")
        with said:
            said.readline()
            time.sleep(moments.uniform(0.0, 0.2))
            child.kill()
        child.join()
        assert problems(tmp_path) == []
        with closing(DurableLedger(tmp_path / "ledger.sqlite", read_only=True)) as ledger:
            heads.append(ledger.head.hash)
        findings = verify(pack(RunFolder.find(tmp_path / "one")), head=heads[-1], replay=False)
        assert [each for each in findings if each.outcome == "fails"] == []
    if (tmp_path / "one" / "summary.json").exists():
        return  # a machine that is quick enough to finish has shown all there is
    with Runner.resume(tmp_path / "one") as runner:
        runner.play(stop=lambda: False)
    assert problems(tmp_path) == []
    for head in heads:
        findings = {each.what: each for each in verify(pack(RunFolder.find(tmp_path / "one")), head=head, replay=False)}
        assert findings["earlier head"].outcome == "holds"
    findings = verify(pack(RunFolder.find(tmp_path / "one")), head=heads[-1])
    assert not_held({each.what: each for each in findings}) == {}


class Died(BaseException):
    """What stands for the end of the process."""


def dies(monkeypatch, owner, name, at, kind=None):
    """Let the process end when a method is called for the `at`-th time, of an event of some kind if one is named."""
    whole, calls = getattr(owner, name), []

    def method(self, *given, **options):
        if kind is None or getattr(given[0], "event", None) == kind:
            calls.append(1)
            if len(calls) == at:
                raise Died
        return whole(self, *given, **options)

    monkeypatch.setattr(owner, name, method)


MOMENTS = {
    "a checkpoint without its event": (RunFolder, "log", 1, "checkpoint"),
    "a second checkpoint without its event": (RunFolder, "log", 2, "checkpoint"),
    "a checkpoint that is not in the ledger": (DurableLedger, "anchor", 3),
    "the last checkpoint without its event": (RunFolder, "log", 3, "checkpoint"),
    "models without an end": (RunFolder, "log", 1, "finish"),
    "an end that is not in the ledger": (DurableLedger, "anchor", 5),
    "an account that was not closed": (Session, "close", 1),
    "no summary": (RunFolder, "summarise", 1),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_that_died_between_two_files_raises_no_false_alarm(tmp_path, monkeypatch, moment):
    config = RunConfig.of(SETTINGS | {"rounds": 6})
    with monkeypatch.context() as patch:
        dies(patch, *MOMENTS[moment])
        with pytest.raises(Died), Runner.start(tmp_path, "one", config) as runner:
            runner.play(stop=lambda: False)
    if moment == "an account that was not closed":
        assert RunFolder.find(tmp_path / "one").events().finish is not None
    assert problems(tmp_path) == []
    findings = verify(pack(RunFolder.find(tmp_path / "one")), replay=False)
    assert [each for each in findings if each.outcome == "fails"] == []
    with Runner.resume(tmp_path / "one") as runner:
        runner.play(stop=lambda: False)
    assert problems(tmp_path) == []
    findings = verify(pack(RunFolder.find(tmp_path / "one")), head=RunFolder.find(tmp_path / "one").events_head)
    assert not_held({each.what: each for each in findings}) == {}
