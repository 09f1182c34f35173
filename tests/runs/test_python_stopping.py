"""Ctrl-C and other ends of runs that `tacit.train(..., run=...)` keeps."""

import re
import signal
import threading
from dataclasses import dataclass

import pytest
import torch
from own_run import OBJECTS, Halving, given, stopped
from waits import LIMIT

import tacit
from tacit.errors import RuleError
from tacit.runs import RunFolder


@dataclass(frozen=True)
class Slipping(Halving):
    """A rule with a mistake that only answers bring out."""

    def round(self, state, at):
        if at.round == 3 and float(at.gradient(state.theta).abs().sum()) > 0:
            raise KeyError("momentum")
        return super().round(state, at)


def ctrl_c(*rounds):
    """Return a tap that presses Ctrl-C in these rounds, once each; every round has one exchange."""
    seen = []

    def press(*message):
        seen.append(message)
        if len(seen) in rounds:
            signal.raise_signal(signal.SIGINT)

    return press


def test_ctrl_c_lets_the_round_finish_saves_and_says_how_to_resume(tmp_path, capsys):
    whole = tacit.train(tacit.DSGT(), **given(), run="whole", runs=tmp_path)
    settings = given(taps=[ctrl_c(7)])
    with pytest.raises(KeyboardInterrupt) as caught:
        tacit.train(tacit.DSGT(), **settings, run="one", runs=tmp_path, checkpoint_every=5)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, "it is the user's again"
    assert len(caught.traceback) < 6, "no long way down"
    first, second = capsys.readouterr().err.splitlines()
    assert first == "stopping after this round; press Ctrl-C again to stop at once"
    path = tmp_path / "one"
    assert second.startswith(
        f"stopped after round 7 of 12, and saved. The run is kept in {path}; resume it with tacit."
    )
    line = re.search(r"tacit\.resume\(.*?\)", second)[0]
    assert line == f"tacit.resume({str(path)!r}, data=data, model=model)"
    events = RunFolder(path).events()
    assert (events.checkpoint.round, events.lost_queries) == (7, 0)
    resumed = eval(line, {"tacit": tacit, "data": settings["data"], "model": settings["model"]})
    assert torch.equal(resumed.theta, whole.theta)
    assert RunFolder(path).events().lost_queries == 0


def test_a_second_ctrl_c_stops_at_once(tmp_path, capsys):
    def press(*message):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        tacit.train(tacit.DSGT(), **given(taps=[press]), run="one", runs=tmp_path)
    assert "stopped after round 0 of 12, at once. The run is kept in" in capsys.readouterr().err
    resumed = tacit.resume("one", runs=tmp_path, **{key: given()[key] for key in OBJECTS})
    assert resumed.history[-1].round == 12


def test_ctrl_c_in_the_last_round_finishes_the_run_and_still_stops_the_program(tmp_path, capsys):
    with pytest.raises(KeyboardInterrupt):
        tacit.train(tacit.DSGT(), **given(taps=[ctrl_c(12)]), run="one", runs=tmp_path)
    said = capsys.readouterr().err.splitlines()[-1]
    line = f"tacit.load({str(tmp_path / 'one')!r}, data=data, model=model)"
    assert said == f"the run had reached its end, and is finished: {line} loads it"
    assert tacit.load("one", runs=tmp_path).history[-1].round == 12


def test_ctrl_c_while_a_run_is_resumed_says_that_it_is_kept(tmp_path, monkeypatch, capsys):
    settings = stopped(tmp_path, monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(
            "tacit.training.oracles.choose_engine", lambda *args, **options: signal.raise_signal(signal.SIGINT)
        )
        with pytest.raises(KeyboardInterrupt):
            tacit.resume("one", runs=tmp_path, **{key: settings[key] for key in OBJECTS})
    assert "stopped before any further query. The run is kept in" in capsys.readouterr().err
    assert tacit.resume("one", runs=tmp_path, **{key: settings[key] for key in OBJECTS}).history[-1].round == 12


def test_ctrl_c_before_the_first_round_leaves_no_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        "tacit.training.oracles.choose_engine", lambda *args, **options: signal.raise_signal(signal.SIGINT)
    )
    with pytest.raises(KeyboardInterrupt):
        tacit.train(tacit.DSGT(), **given(), run="one", runs=tmp_path)
    assert not (tmp_path / "one").exists()
    assert capsys.readouterr().err == ""


def test_ctrl_c_is_left_to_a_program_that_takes_it_and_to_runs_that_are_not_kept(tmp_path, capsys):
    heard = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        result = tacit.train(tacit.DSGT(), **given(taps=[ctrl_c(3)]), run="one", runs=tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (heard, result.history[-1].round) == ([signal.SIGINT], 12)
    with pytest.raises(KeyboardInterrupt):
        tacit.train(tacit.DSGT(), **given(taps=[ctrl_c(3)]))
    assert capsys.readouterr().err == ""


def test_runs_may_be_played_in_another_thread(tmp_path):
    """Signals can be taken in the main thread only."""
    done = []
    settings = given()
    play = threading.Thread(
        target=lambda: done.append(tacit.train(tacit.DSGT(), **settings, run="one", runs=tmp_path)), daemon=True
    )
    play.start()
    play.join(LIMIT)
    assert done[0].history[-1].round == 12


def test_a_run_that_its_own_rule_ended_says_what_becomes_of_it(tmp_path):
    with pytest.raises(RuleError, match=r"Slipping.round failed in round 4 of 12") as caught:
        tacit.train(Slipping(), **given(), run="one", runs=tmp_path)
    (note,) = caught.value.__notes__
    assert f"`tacit ledger abandon one --runs {tmp_path} --reason WHY` gives this one up" in note
    assert "The queries of the run stay charged" in note
