"""`tacit tune` as a user sees it: the file that it writes, one that is there already, and Ctrl-C."""

import os
import signal

import pytest
from invoking import complaint, one_line

from tacit.privacy import DurableLedger
from tacit.runs.config import RunConfig
from tacit.training.session import Session

SETTINGS = """
algorithm = "dsgd"
agents = 2
noise_multiplier = 4.0
delta = 1e-3
lot_size = 24
rounds = 6
source = "seeded"
compile = false
"""
OWN = """
import torch
import tacit

generator = torch.Generator().manual_seed(0)
inputs, targets = torch.randn(240, 5, generator=generator), torch.arange(240) % 3
DATA = tacit.data.DataSet.from_records(name="own", train=(inputs, targets), validation=(inputs[:60], targets[:60]))
"""


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "run.toml"
    path.write_text(SETTINGS)
    return path


def tune(tacit, *options, of="lr=0.1,1", population=2):
    return tacit("tune", "run.toml", "--parameter", of, "--population", population, *options)


def stop_in_round(number, monkeypatch, *, again=False):
    """Let Ctrl-C be pressed in a round of a session, once or twice."""
    play = Session.advance

    def advance(session):
        if session.round == number - 1:
            os.kill(os.getpid(), signal.SIGINT)
            if again:
                os.kill(os.getpid(), signal.SIGINT)
        play(session)

    monkeypatch.setattr(Session, "advance", advance)


def test_the_file_of_a_search_trains_with_the_settings_that_were_tried(tacit, settings):
    """Also with those that equal their default, where another setting would change it."""
    votes = "pate:teachers=2,records=10,answers=5,teacher_steps=2"
    settings.write_text(SETTINGS.replace("dsgd", votes).replace("lot_size = 24\n", "spare_queries = 2\n"))
    code, printed, _ = tune(tacit)
    assert code == 0, printed
    tried = RunConfig.of(RunConfig.read(settings)).model_dump()
    written = RunConfig.of(RunConfig.read(settings.with_name("tuned.toml")), {}).model_dump()
    assert {key for key, value in tried.items() if written[key] != value} <= {"lr"}
    assert written["spare_queries"] == 2
    assert written["lr"] in (0.1, 1.0)
    assert tacit("train", "tuned.toml", "--rounds", 2, "--quiet")[0] == 0


def test_a_file_that_is_there_is_not_lost(settings, monkeypatch):
    kept = settings.with_name("tuned.toml")
    kept.write_text("mine")
    monkeypatch.setattr(Session, "advance", None)  # nothing may be played
    given = ["tune", "run.toml", "--parameter", "lr=0.1,1"]
    assert "tuned.toml is there already, and is not overwritten: name another file" in complaint(*given)
    assert kept.read_text() == "mine"
    assert "is not a folder" in complaint(*given, "--output", kept / "tuned.toml")
    assert "a picture is saved as" in complaint(*given, "--output", "new.toml", "--plot", "scores.txt")
    monkeypatch.setattr("tacit.cli.terminal.files.os.access", lambda folder, _: str(folder) != ".")
    assert "new.toml: cannot be written, because . is read-only" in complaint(*given, "--output", "new.toml")


def test_ctrl_c_keeps_the_best_so_far_and_says_that_a_search_cannot_be_resumed(tacit, settings, monkeypatch):
    stop_in_round(3, monkeypatch)
    code, printed, told = tune(tacit)
    assert code == 130
    assert "stopping after this round" in told
    assert "stopped after round 3 of 6; trials are scored as they were then. A search cannot be resumed" in one_line(
        printed
    )
    assert "best settings are in tuned.toml" in one_line(printed)
    assert RunConfig.read(settings.with_name("tuned.toml"))["lr"] in (0.1, 1.0)


def test_ctrl_c_in_a_population_keeps_its_best(tacit, settings, monkeypatch):
    stop_in_round(4, monkeypatch)
    code, printed, _ = tune(tacit, "--generations", 3, of="lr=log:0.01..1", population=4)
    assert code == 130
    assert "stopped after round 4 of 6" in printed
    assert "lr by generation" in printed
    assert "lr_final" in RunConfig.read(settings.with_name("tuned.toml"))


def test_a_second_ctrl_c_writes_nothing(tacit, settings, monkeypatch):
    stop_in_round(3, monkeypatch, again=True)
    code, printed, told = tune(tacit)
    assert (code, printed) == (130, "")
    assert "stopped at once: no settings were written, and a search cannot be resumed" in told
    assert not settings.with_name("tuned.toml").exists()


def test_ctrl_c_on_private_records_says_what_the_ledger_charges(tacit, settings, monkeypatch):
    settings.with_name("own.py").write_text(OWN)
    settings.write_text(SETTINGS + 'dataset = "own.py:DATA"\nsplit = "iid"\n')
    stop_in_round(3, monkeypatch)
    code, printed, _ = tune(tacit)
    assert code == 130
    assert "Runs that made queries and did not end are charged their whole plan" in one_line(printed)
    ledger = DurableLedger(settings.with_name("runs") / "ledger.sqlite", read_only=True)
    assert {(account.state, account.spent, account.charged) for account in ledger.accounts} == {("stopped", 3, 8)}
