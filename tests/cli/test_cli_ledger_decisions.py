"""`tacit ledger release` and `tacit ledger raise`: decisions about a ledger, kept in it with who and why."""

import json
import os
import signal
import subprocess
import sys

import pytest
from invoking import QUICK, one_line

from tacit.privacy import Budget, DurableLedger

RUN = """
import os, sys
import torch
import tacit

sent = []

def wait(*message):
    sent.append(message)
    if len(sent) == 3:
        print("third message", flush=True)
        sys.stdin.read()

parts = [(torch.randn(60, 3), torch.randint(2, (60,))) for _ in range(2)]
tacit.train(
    tacit.DSGD(),
    model=lambda: torch.nn.Linear(3, 2),
    data=tacit.data.AgentData.from_parts(parts, name="visits"),
    graph=tacit.graphs.path(2),
    privacy=tacit.Privacy(noise_multiplier=3.0, delta=1e-3, clip=1.0, lot_size=6),
    ledger=tacit.privacy.DurableLedger(sys.argv[1]),
    name="study",
    rounds=80,
    lr=0.1,
    compile=False,
    taps=[wait],
)
"""


def python_run(path):
    """Start a run of the library in a process of its own, and return the process once it has asked some queries."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "third message\n"
    return process


def test_a_python_run_that_was_killed_is_released_by_a_command(tacit, tmp_path):
    path = tmp_path / "visits.sqlite"
    DurableLedger(path, Budget(epsilon=5.0, delta=1e-3)).close()
    process = python_run(path)
    command = (
        "ledger",
        "release",
        "study",
        "--runs",
        "visits.sqlite",
        "--reason",
        "the machine is gone",
        "--who",
        "Ada",
    )
    try:
        code, _, error = tacit(*command)
        assert (code, "a process is working on run 'study'" in error) == (2, True)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    code, out, error = tacit(*command)
    assert code == 0, error
    assert "released study: 77 of its 80 queries are free for other runs; 3 were made and stay charged" in one_line(out)
    code, out, _ = tacit("ledger", "--runs", "visits.sqlite", "--verify")
    assert code == 0
    assert "Ada released run 'study': the machine is gone" in one_line(out)
    (decision,) = json.loads(tacit("ledger", "--runs", "visits.sqlite", "--json")[1])["decisions"]
    assert (decision["who"], decision["reason"], decision["subject"]) == ("Ada", "the machine is gone", "study")


def test_a_run_of_the_command_line_is_released_and_then_not_resumed(tacit, tmp_path):
    tacit("train", *QUICK, "--name", "one")
    ledger = DurableLedger(tmp_path / "runs" / "ledger.sqlite")
    ledger._database.execute("UPDATE accounts SET state = 'open'")
    (tmp_path / "runs" / "one" / "summary.json").unlink()
    ledger.close()
    code, out, _ = tacit("ledger", "release", "runs/one", "--reason", "not needed", "--json")
    assert code == 0
    assert json.loads(out)["freed"] == 0, "no budget, no filter"
    code, _, error = tacit("resume", "one")
    assert code == 2
    assert "run 'one' is released and its account closed" in error


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("release", "on", "--reason", "x"), "unknown run 'on'; did you mean 'one'?"),
        (("release", "one", "--reason", "x"), "run 'one' is finished; it holds no queries that could be freed"),
        (("release", "one"), "missing option '--reason'"),
        (("release", "one", "--reason", " "), "say the reason"),
    ],
)
def test_a_release_that_makes_no_sense_is_refused(tacit, words, said):
    tacit("train", *QUICK, "--name", "one")
    before = tacit("ledger", "--json")[1]
    code, _, error = tacit("ledger", *words)
    assert code == 2
    assert said in one_line(error).lower()
    assert tacit("ledger", "--json")[1] == before
