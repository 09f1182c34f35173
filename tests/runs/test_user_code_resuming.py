"""Runs with code of a user's own that were stopped or killed: resumed to the bit, and refused where the code changed."""

import json
import os
import signal
import time
from hashlib import sha256

import forked
import pytest
import torch
from own_code import STUDY, config, play

from tacit.errors import InvalidInput
from tacit.models.hashing import models_sha256
from tacit.privacy import DurableLedger, PrivateOracle
from tacit.runs import RunFolder, Runner
from tacit.runs.config import RunConfig

pytestmark = pytest.mark.usefixtures("study")


@pytest.mark.parametrize("stop_after", [1, 7])
def test_a_resumed_run_ends_bit_for_bit_where_an_uninterrupted_one_does(study, stop_after):
    whole = play(Runner.start(study / "runs", "whole", config()))
    assert play(Runner.start(study / "runs", "parts", config()), stop_after=stop_after) is None
    parts = play(Runner.resume(study / "runs" / "parts"))
    assert torch.equal(parts.theta, whole.theta)
    assert {entry.event.count for entry in DurableLedger(study / "runs" / "ledger.sqlite").entries()} == {12}


def tampered(text):
    return (
        STUDY.replace("label_smoothing=0.1)\n\n\nsmoothed", "label_smoothing=0.2)\n\n\nsmoothed")
        if text == "loss"
        else STUDY + "# more\n"
    )


@pytest.mark.parametrize("what", ["loss", "a comment"])
def test_a_changed_source_is_refused_and_goes_on_when_it_is_put_back(study, what):
    play(Runner.start(study / "runs", "one", config()), stop_after=6)
    ledger = DurableLedger(study / "runs" / "ledger.sqlite", read_only=True)
    before = ledger.account("one").spent
    (study / "study.py").write_text(tampered(what))
    with pytest.raises(
        InvalidInput, match=r"study.py was changed since the run began; put it back, or start a new run"
    ):
        Runner.resume(study / "runs" / "one")
    assert DurableLedger(study / "runs" / "ledger.sqlite", read_only=True).account("one").spent == before
    settings = (study / "runs" / "one" / "config.toml").read_text()
    new = sha256(tampered(what).encode()).hexdigest()
    old = RunFolder(study / "runs" / "one").config().code["model"]["sha256"]
    (study / "runs" / "one" / "config.toml").write_text(settings.replace(old, new))  # and hide it
    with pytest.raises(InvalidInput, match=r"config.toml was changed since the run began"):
        Runner.resume(study / "runs" / "one")
    (study / "runs" / "one" / "config.toml").write_text(settings)
    (study / "study.py").write_text(STUDY)
    assert play(Runner.resume(study / "runs" / "one")) is not None


def test_a_missing_source_is_said_at_resume(study):
    play(Runner.start(study / "runs", "one", config()), stop_after=6)
    (study / "study.py").rename(study / "moved.py")
    with pytest.raises(InvalidInput, match=r"the file study.py does not exist"):
        Runner.resume(study / "runs" / "one")


def test_other_records_under_the_same_name_are_refused(study):
    """The function's file is the same; what it reads is not."""
    reading = STUDY.replace(
        "inputs[:120], targets[:120]", "inputs[: int(open('n.txt').read())], targets[: int(open('n.txt').read())]"
    )
    reading = reading.replace(".split(40), data.train.targets.split(40)", ".split(30), data.train.targets.split(30)")
    (study / "study.py").write_text(reading.replace('"west"]', '"west", "east"][: (len(rows[0]))]'))
    (study / "n.txt").write_text("120")
    play(Runner.start(study / "runs", "one", config()), stop_after=6)
    (study / "n.txt").write_text("80")
    with pytest.raises(InvalidInput, match=r"are divided among 3 agents, but the run began with 4"):
        Runner.resume(study / "runs" / "one")
    (study / "n.txt").write_text("115")
    with pytest.raises(InvalidInput, match=r"the data is not what run 'one' began with \(numbers of records differ\)"):
        Runner.resume(study / "runs" / "one")


def test_a_runs_settings_start_a_new_run_of_changed_code(study):
    play(Runner.start(study / "runs", "one", config(rounds=2)))
    (study / "study.py").write_text(tampered("loss"))
    again = RunConfig.of(RunConfig.read(study / "runs" / "one" / "config.toml"), {})
    result = play(Runner.start(study / "runs", "two", again))
    kept = [RunFolder(study / "runs" / name).config().code["loss"]["sha256"] for name in ("one", "two")]
    assert kept[0] != kept[1]
    assert result is not None


def play_counted(tell, folder, home):
    """Play a run on, in the folder of the user's files, with a byte for every answer that left the oracle."""
    os.chdir(home)
    answers = os.open(home / "count", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    gradient = PrivateOracle.gradient

    def counted(self, theta):
        answer = gradient(self, theta)
        os.write(answers, b".")
        return answer

    PrivateOracle.gradient = counted
    with Runner.resume(folder) as runner:
        tell("going")
        runner.play(stop=lambda: False)


@pytest.mark.slow
def test_killed_in_the_middle_it_ends_bit_for_bit_and_asks_nothing_twice(study):
    changes = {"rounds": 60, "spare_queries": 6, "checkpoint_every": 12, "evaluate_every": 30}
    whole = play(Runner.start(study / "runs", "whole", config(**changes)))
    with Runner.start(study / "runs", "killed", config(**changes)):
        pass
    folder, kills = study / "runs" / "killed", 0
    while not (folder / "summary.json").exists():
        child, said = forked.start(play_counted, folder, study)
        with said:
            assert said.readline() == "going\n"
            before = _answers(study)
            while kills < 2 and child.is_alive() and _answers(study) < before + 17:
                time.sleep(0.005)
            if kills < 2 and child.is_alive():
                os.kill(child.pid, signal.SIGKILL)
                kills += 1
            child.join()
    assert kills == 2
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["models_sha256"] == models_sha256(whole.theta)
    (spent,) = {entry.event.count for entry in DurableLedger(study / "runs" / "ledger.sqlite").entries(run="killed")}
    assert 60 <= _answers(study) <= spent <= 60 + kills


def _answers(study):
    return (study / "count").stat().st_size if (study / "count").exists() else 0
