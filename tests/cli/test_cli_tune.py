"""`tacit tune` as a user sees it: the file that it writes, one that exists already, and Ctrl-C."""

import os
import signal
from contextlib import closing
from io import StringIO

import pytest
from invoking import complaint, one_line
from rich.console import Console

from tacit.cli.terminal.progress import show_search
from tacit.privacy import Budget, DurableLedger
from tacit.runs.config import RunConfig
from tacit.training.session import Session
from tacit.tuning.search import SearchProgress

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


def test_a_parameter_that_cannot_be_searched_is_reported_before_an_output_that_exists(settings):
    settings.with_name("tuned.toml").touch()
    assert "unknown parameter 'clap'; did you mean 'clip'?" in complaint("tune", "run.toml", "--parameter", "clap=1,2")


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
    assert "tuned.toml already exists, and is not overwritten: name another file" in complaint(*given)
    assert kept.read_text() == "mine"
    assert "is not a folder" in complaint(*given, "--output", kept / "tuned.toml")
    assert "a picture is saved as" in complaint(*given, "--output", "new.toml", "--plot", "scores.txt")
    monkeypatch.setattr("tacit.cli.terminal.output.os.access", lambda folder, _: str(folder) != ".")
    assert "new.toml: cannot be written, because . is read-only" in complaint(*given, "--output", "new.toml")


def test_a_plain_search_says_how_far_it_is(tacit, settings):
    settings.write_text(SETTINGS.replace("rounds = 6", "rounds = 40"))
    code, _, told = tune(tacit)
    assert code == 0
    lines = [line for line in told.splitlines() if line.startswith("round ")]
    assert lines == [f"round {number} of 40" for number in range(2, 41, 2)]
    code, printed, told = tune(tacit, "--output", "other.toml", of="rounds=20,40")
    assert code == 0, printed
    assert told.index("stack 1 of 2: one trial") < told.index("round 18 of 60 of all stacks")
    assert told.index("round 18 of 60") < told.index("stack 2 of 2: one trial") < told.index("round 60 of 60")
    code, printed, told = tune(tacit, "--output", "third.toml", "--json")
    assert (code, told) == (0, "")


def test_on_a_terminal_a_search_has_a_bar_of_its_rounds():
    screen = Console(file=StringIO(), force_terminal=True, width=80, highlight=False)
    with show_search(screen, shown=True, lines=True) as show:
        show(SearchProgress(3, 12, 1, 2))
        screen.print("stack 2 of 2")
        show(SearchProgress(7, 12, 2, 2))
    drawn = screen.file.getvalue()
    assert "rounds" in drawn
    assert "7/12" in drawn
    assert "stack 2 of 2" in drawn
    assert "round 7 of 12" not in drawn


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


def test_a_budget_bounds_a_search_on_private_records_and_stays_in_the_ledger(tacit, settings):
    settings.with_name("own.py").write_text(OWN)
    settings.write_text(SETTINGS + 'dataset = "own.py:DATA"\nsplit = "iid"\n')
    code, _, told = tune(tacit, "--budget", 0.05)
    assert code == 2
    assert "error:" in told
    assert "budget" in told
    path = settings.with_name("runs") / "ledger.sqlite"
    with closing(DurableLedger(path, read_only=True)) as ledger:
        assert not ledger.entries()
    code, _, told = tune(tacit, "--budget", 50)
    assert code == 0, told
    with closing(DurableLedger(path, read_only=True)) as ledger:
        assert ledger.budget == Budget(epsilon=50.0, delta=1e-3)
        assert {account.state for account in ledger.accounts} == {"finished"}


def test_a_budget_for_a_search_that_is_not_in_the_ledger_is_refused(tacit, settings):
    code, _, told = tune(tacit, "--budget", 5)
    assert code == 2
    assert "digits is published: a search on it is not in the ledger, so leave --budget out" in one_line(told)
    assert not settings.with_name("tuned.toml").exists()
