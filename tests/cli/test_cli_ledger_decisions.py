"""`tacit ledger abandon` and `tacit ledger raise`: decisions about a ledger, kept in it with who and why."""

import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from invoking import QUICK, one_line
from tampering import edit_log, gaussians

import tacit as tacit_package
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
    """Start a run in a process of its own; return it at its third message, which DSGD sends before its third query."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "third message\n"
    return process


@pytest.mark.slow
def test_a_python_run_that_was_killed_is_abandoned_by_a_command(tacit, tmp_path):
    path = tmp_path / "visits.sqlite"
    DurableLedger(path, Budget(epsilon=5.0, delta=1e-3)).close()
    process = python_run(path)
    command = (
        "ledger",
        "abandon",
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
    said = "abandoned study after 2 of its 80 queries: these stay charged, and 78 are free for other runs"
    assert said in one_line(out)
    code, out, _ = tacit("ledger", "--runs", "visits.sqlite", "--verify")
    assert code == 0
    assert "Ada abandoned run 'study': the machine is gone" in one_line(out)
    (decision,) = json.loads(tacit("ledger", "--runs", "visits.sqlite", "--json")[1])["decisions"]
    assert (decision["who"], decision["reason"], decision["subject"]) == ("Ada", "the machine is gone", "study")


def test_abandoning_a_run_that_began_before_a_raise_frees_nothing_and_says_why(tacit, tmp_path):
    with closing(DurableLedger(tmp_path / "visits.sqlite", Budget(epsilon=5.0, delta=1e-3))) as ledger:
        terms = {"mechanisms": gaussians([0.1], [3.0]), "queries": 80, "release": True}
        account = ledger.open(run="study", owners=["a"], **terms)
        account.spend()
        account.close()
    where = ("--runs", "visits.sqlite")
    assert tacit("ledger", "raise", "6", "--reason", "the owners agreed", *where)[0] == 0
    before = json.loads(tacit("ledger", "--json", *where)[1])["budgets"][0]["counted"]
    code, out, error = tacit("ledger", "abandon", "study", "--reason", "not needed", *where)
    assert code == 0, error
    said = "abandoned study after 1 of its 80 queries: all 80 stay charged, since the budget was set or raised after it began"
    assert said in one_line(out)
    assert json.loads(tacit("ledger", "--json", *where)[1])["budgets"][0]["counted"] == before


def test_a_run_of_the_command_line_is_abandoned_and_then_not_resumed(tacit, tmp_path):
    tacit("train", *QUICK, "--name", "one")
    edit_log(tmp_path / "runs" / "ledger.sqlite", lambda row: None if row["kind"] == "close" else row)
    (tmp_path / "runs" / "one" / "summary.json").unlink()
    events = tmp_path / "runs" / "one" / "events.jsonl"
    lines = events.read_text().splitlines(keepends=True)
    events.write_text("".join(lines[:-1]))  # killed before it could say that it finished
    code, out, _ = tacit("ledger", "abandon", "runs/one", "--reason", "not needed", "--json")
    assert code == 0
    assert json.loads(out)["freed"] == 0, "no budget, no filter"
    code, _, error = tacit("resume", "one")
    assert code == 2
    assert "run 'one' is abandoned and its account is closed" in error
    (row,) = json.loads(tacit("list", "--json")[1])["runs"]
    assert row["state"] == "abandoned"
    assert tacit("report", "one")[0] == 0
    page = (tmp_path / "runs" / "one" / "report.html").read_text()
    assert "It was abandoned by a decision in the ledger, and cannot be resumed." in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("abandon", "on", "--reason", "x"), "unknown run 'on'; did you mean 'one'?"),
        (("abandon", "one", "--reason", "x"), "run 'one' is finished; it holds no queries that could be freed"),
        (("abandon", "one"), "missing option '--reason'"),
        (("abandon", "one", "--reason", " "), "say the reason"),
    ],
)
def test_an_abandonment_that_makes_no_sense_is_refused(tacit, words, said):
    tacit("train", *QUICK, "--name", "one")
    before = tacit("ledger", "--json")[1]
    code, _, error = tacit("ledger", *words)
    assert code == 2
    assert said in one_line(error).lower()
    assert tacit("ledger", "--json")[1] == before


def test_the_stored_budget_is_shown_and_raised_by_a_command_of_its_own(tacit):
    tacit("train", *QUICK, "--name", "one", "--budget", "50", "--delta", "1e-3")
    out = one_line(tacit("ledger")[1])
    assert (
        "budget: all runs together may spend ε=50 at δ=0.001 (add-or-remove-one, against everybody else together) on each owner's records"
        in out
    )
    code, _, error = tacit("train", *QUICK, "--name", "two", "--budget", "60", "--delta", "1e-3")
    assert code == 2
    assert "has a budget already: ε=50" in error
    assert "`tacit ledger raise`" in error
    code, out, _ = tacit("ledger", "raise", "60", "--reason", "the owners agreed", "--who", "data board")
    assert code == 0
    assert "data board raised the budget from ε=50 to ε=60: the owners agreed" in one_line(out)
    assert tacit("train", *QUICK, "--name", "two", "--budget", "60", "--delta", "1e-3")[0] == 0
    code, out, _ = tacit("ledger", "--verify")
    assert code == 0
    assert "may spend ε=60 at δ=0.001" in one_line(out)
    assert (
        "the budget was raised after some of them, maybe because of their results, so it proves nothing more"
        in one_line(out)
    )
    assert "needs no such condition" not in out, "there was one before the first run"
    assert "data board raised the budget from ε=50 to ε=60: the owners agreed" in one_line(out)
    document = json.loads(tacit("ledger", "--json")[1])
    (budget,) = document["budgets"]
    assert [budget[key] for key in ("owner", "epsilon", "delta", "adjacency")] == [None, 60.0, 1e-3, "add_remove"]
    assert [each["kind"] for each in document["decisions"]] == ["raise"]


def test_a_budget_that_is_not_there_or_not_raised_is_refused(tacit):
    tacit("train", *QUICK, "--name", "one")
    assert "has no budget that could be raised" in tacit("ledger", "raise", "5", "--reason", "x")[2]
    tacit("train", *QUICK, "--name", "two", "--budget", "50")
    code, _, error = tacit("ledger", "raise", "5", "--reason", "x")
    assert code == 2
    assert "ε=5 does not raise it" in error


def test_no_message_advises_a_way_around_a_budget():
    """Another folder, or a ledger without a budget, is a way for the same records to lose more."""
    source = Path(tacit_package.__file__).parent
    for path in (source / "privacy", source / "runs"):
        for file in path.rglob("*.py"):
            text = " ".join(file.read_text().split()).lower()
            for advice in ("another folder", "other folder", "ledger without a budget", "another ledger", "new ledger"):
                assert advice not in text, f"{file.name} says {advice!r}"


def test_a_budget_that_refuses_the_run_it_comes_with_is_not_stored(tacit, tmp_path):
    tacit("train", *QUICK, "--name", "one")
    code, _, error = tacit("train", *QUICK, "--name", "two", "--budget", "0.05")
    assert code == 2
    assert "past its budget of ε=0.05" in error
    assert json.loads(tacit("ledger", "--json")[1])["budgets"] == []
    assert tacit("train", *QUICK, "--name", "two")[0] == 0


@pytest.mark.slow
def test_a_folder_whose_records_were_divided_in_two_ways_takes_a_budget_that_follows_them(tacit):
    tacit("train", *QUICK, "--name", "one")
    tacit("train", *QUICK, "--name", "again", "--seed", 1)
    used = []
    for name, seed in (("two", 0), ("three", 1), ("four", 2)):
        code, _, error = tacit("train", *QUICK, "--name", name, "--seed", seed, "--budget", "4")
        assert code == 0, error
        used.append(json.loads(tacit("ledger", "--json")[1])["budgets"][0]["counted"])
    assert used == sorted(used)
    assert used[0] < used[-1]
    code, _, error = tacit("train", *QUICK, "--name", "five", "--seed", 3, "--rounds", 5000)
    assert code == 2
    assert "This counts what 'one', 'again', 'two' and others asked of the same records" in error
