"""Ctrl-C and SIGTERM: before anything was started, and in the middle of a run."""

import os
import signal
import subprocess
import sys

import pytest
from invoking import QUICK, TACIT, one_line
from waits import LIMIT, wait_until

from tacit.cli.terminal import play_run
from tacit.privacy import DurableLedger
from tacit.runs import Runner


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_at_a_round_saves_and_says_how_to_resume(tmp_path, number, code):
    command = [
        str(TACIT),
        "train",
        *QUICK,
        "--rounds",
        "200000",
        "--name",
        "long",
        "--source",
        "seeded",
        "--compile",
        "false",
    ]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    ) as run:
        events = tmp_path / "runs" / "long" / "events.jsonl"
        wait_until(lambda: run.poll() is not None or (events.exists() and '"snapshot"' in events.read_text()))
        run.send_signal(number)
        _, errors = run.communicate(timeout=LIMIT)
    assert run.returncode == code
    assert "and saved. Resume with: tacit resume runs/long" in one_line(errors)
    assert (tmp_path / "runs" / "long" / "checkpoint.safetensors").is_file()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("step", ["loading data", "calibrating noise"])
def test_a_signal_before_the_first_round_leaves_nothing(tacit, tmp_path, monkeypatch, step, number, code):
    begin = Runner.start

    def start(*args, on_step, **options):
        return begin(
            *args, on_step=lambda said: (on_step(said), said == step and os.kill(os.getpid(), number)), **options
        )

    monkeypatch.setattr(Runner, "start", start)
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    ended, _, run = tacit("train", *QUICK, "--name", "one")
    assert ended == code
    assert f"{step} …" in run
    assert run.endswith("nothing was started, and nothing was spent\n")
    assert not (tmp_path / "runs" / "one").exists()
    assert DurableLedger(tmp_path / "runs" / "ledger.sqlite").owners == ()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


@pytest.fixture
def in_the_background():
    """Ignore Ctrl-C, as a shell without job control starts its background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    assert signal.signal(signal.SIGINT, before) is signal.SIG_IGN


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_a_run_in_the_background_is_stopped_by_sigterm_alone(
    tacit, tmp_path, monkeypatch, in_the_background, number, code
):
    def stopping_at_once(runner, screen, shown):
        os.kill(os.getpid(), number)
        return progress_of(runner, screen, shown)

    monkeypatch.setattr(play_run, "show_rounds", stopping_at_once)
    assert tacit("train", *QUICK, "--name", "one")[0] == code
    assert (tmp_path / "runs" / "one" / "summary.json").exists() == (code == 0)


def test_a_signal_before_a_resumed_round_says_how_to_resume(tacit, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(play_run, "show_rounds", stopping_at_once)
        assert tacit("train", *QUICK, "--name", "one")[0] == 130
    spent = DurableLedger(tmp_path / "runs" / "ledger.sqlite").entries()
    begin = Runner.resume
    resume = lambda path, on_step: begin(path, on_step=lambda _: os.kill(os.getpid(), signal.SIGINT))  # noqa: E731
    with monkeypatch.context() as patch:
        patch.setattr(Runner, "resume", resume)
        code, _, run = tacit("resume", "one")
    assert code == 130
    assert "no query was made, and nothing was spent. Resume with: tacit resume runs/one" in run
    assert DurableLedger(tmp_path / "runs" / "ledger.sqlite").entries() == spent
    assert tacit("resume", "one")[0] == 0


def stopping_at_once(runner, screen, shown):
    os.kill(os.getpid(), signal.SIGINT)
    return progress_of(runner, screen, shown)


progress_of = play_run.show_rounds


# Runs a module as a program, with Ctrl-C at the moment when it looks for the module that is named first.
INTERRUPTED = """
import os, runpy, signal, sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == wanted:
            os.kill(os.getpid(), signal.SIGINT)

wanted, program, *words = sys.argv[1:]
sys.meta_path.insert(0, Interrupt())
sys.argv = [program, *words]
runpy.run_module(program, run_name="__main__")
"""


@pytest.mark.parametrize(
    ("program", "during"),
    [
        ("tacit", "tacit.cli.program"),
        ("tacit", "typer"),
        ("tacit", "tacit.cli.terminal.errors"),
        ("tacit", "tacit.privacy"),
        ("tacit", "torch"),
        ("tacit.cluster", "tacit.cli.rank"),
        ("tacit.cluster", "numpy"),
        ("tacit.cluster", "torch"),
    ],
)
def test_ctrl_c_during_imports_ends_quietly(tmp_path, program, during):
    words = ["train", *QUICK] if program == "tacit" else ["nets.toml", "--name", "one"]
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, during, program, *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
