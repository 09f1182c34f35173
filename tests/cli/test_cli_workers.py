"""`tacit train --workers` as a user sees it: the same run as in one process, ranks that are killed, and mistakes named in one sentence."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path

import pytest
from invoking import complaint

from benchmarks.cluster_kills import play
from tacit.cluster.on_ray import copied
from tacit.privacy import DurableLedger

SETTINGS = """
algorithm = "dsgt"
dataset = "digits"
agents = 5
graph = "ring"
noise_multiplier = 1.5
delta = 1e-3
lot_size = 24
rounds = 300
lr = 1.0
source = "seeded"
checkpoint_every = 10
spare_queries = 10
compile = false
"""
LIMIT = 600  # seconds until a run counts as hung, beside other tests, too
ROUNDS = 1500  # so many that none of these runs is through before it is interrupted, however busy the machine
LONG = ("--rounds", str(ROUNDS))
"""For a run that has to be in its middle when a signal arrives, also if this process is slow to send it."""


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "run.toml"
    path.write_text(SETTINGS)
    return path


def start(*words):
    return subprocess.Popen(
        [sys.executable, "-m", "tacit", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ranks_of(launcher):
    """Return the processes of the ranks, in the order of ranks."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                variables = (folder / "environ").read_bytes().split(b"\0")
            except (OSError, IndexError):
                continue
            if parent == launcher.pid:
                found |= {int(each[5:]): int(folder.name) for each in variables if each.startswith(b"RANK=")}
    return [found[rank] for rank in sorted(found)]


def wait_for_checkpoints(count, name="one"):
    until = time.monotonic() + LIMIT
    events = Path("runs") / name / "events.jsonl"
    while time.monotonic() < until:
        if events.exists() and events.read_text().count('"event": "checkpoint"') >= count:
            return
        time.sleep(0.05)
    raise AssertionError(f"no {count} checkpoints within {LIMIT} s")


def finished(process):
    out, errors = process.communicate(timeout=LIMIT)
    return process.returncode, out, errors


def sha(name):
    return json.loads((Path("runs") / name / "summary.json").read_text())["models_sha256"]


@pytest.mark.slow
def test_ranks_that_are_killed_or_silent_start_again_and_end_with_the_same_models(settings):
    code, out, _ = finished(start("train", "run.toml", *LONG, "--workers", "1", "--name", "alone", "--json"))
    assert code == 0
    assert json.loads(out)["models_sha256"] == sha("alone")
    words = ("--workers", "2", "--name", "one", "--quiet", "--deadline", "15", "--restarts", "9")
    run = start("train", "run.toml", *LONG, *words)
    for number, (rank, how) in enumerate([(1, signal.SIGKILL), (0, signal.SIGKILL), (1, signal.SIGSTOP)]):
        wait_for_checkpoints(3 * number + 2)
        os.kill(ranks_of(run)[rank], how)
        if how == signal.SIGSTOP:
            wait_for_checkpoints(3 * number + 5)  # those after it was given up
    code, _, errors = finished(run)
    assert code == 0, errors
    assert "rank 1 was killed by SIGKILL; all 2 ranks start again and resume the run (restart 1 of 9)" in errors
    assert "rank 0 was killed by SIGKILL" in errors
    assert "did not answer within the deadline" in errors
    assert sha("one") == sha("alone")
    ledger = DurableLedger(Path("runs/ledger.sqlite"), read_only=True)
    account = ledger.account("one")
    assert account.state == "finished"
    assert ROUNDS <= account.spent <= ROUNDS + 3
    code, out, _ = finished(start("ledger", "--verify"))
    assert code == 0
    assert "the record is complete" in out


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["torchrun", "ray"])
def test_torchrun_and_ray_start_killed_ranks_again_and_the_run_ends_as_if_nobody_was_killed(launcher, tmp_path):
    if launcher == "ray":
        pytest.importorskip("ray")
    found = play(tmp_path, launcher=launcher, kills=2, ranks=2, rounds=ROUNDS, seed=0, seconds=LIMIT, longest=0.5)
    assert found["ended"], (tmp_path / "log.txt").read_text()[-3000:]
    assert sum(found["kills"]) == 2
    assert found["same_models"]
    assert found["state"] == "finished"
    assert found["charged"] == ROUNDS + found["lost"]
    assert found["lost"] <= 2
    assert found["wrong_with_the_ledger"] == []


@pytest.mark.slow
def test_a_run_on_ray_is_shown_as_any_other(settings):
    pytest.importorskip("ray")
    words = ["train", "run.toml", "--workers", "2", "--rounds", "20", "--on", "ray", "--name"]
    code, out, errors = finished(start(*words, "one"))
    assert code == 0, errors
    assert "2, each with 2 to 3 agents" in out
    assert "round 20/20: accuracy" in errors
    assert "one: 20 rounds in" in out
    code, out, errors = finished(start(*words, "two", "--json"))
    assert code == 0, errors
    assert json.loads(out)["models_sha256"] == sha("one") == sha("two")
    assert not list(Path("runs").glob(".ray-*"))


def test_lines_that_another_process_writes_are_copied_whole_and_once(tmp_path):
    results, messages = tmp_path / "results.txt", tmp_path / "messages.txt"
    here, there = StringIO(), StringIO()
    with copied({results: here, messages: there}):
        results.write_text("one\ntw")
        until = time.monotonic() + LIMIT
        while here.getvalue() != "one\n" and time.monotonic() < until:
            time.sleep(0.01)
        assert here.getvalue() == "one\n"
        with results.open("a") as file:
            file.write("o\nthree é\n")
        messages.write_text("said\n")
    assert (here.getvalue(), there.getvalue()) == ("one\ntwo\nthree é\n", "said\n")


@pytest.mark.slow
def test_a_mistake_on_ray_is_one_sentence_and_is_not_tried_again(settings):
    pytest.importorskip("ray")
    words = ["train", "run.toml", "--workers", "2", "--graph", "nothing.csv", "--name", "one", "--on", "ray"]
    code, _, errors = finished(start(*words))
    assert code == 2
    assert "nothing.csv" in errors.splitlines()[-1]
    assert "Traceback" not in errors
    assert not Path("runs/one").exists()


@pytest.mark.slow
def test_what_is_printed_of_all_runs_counts_the_agents_of_all_ranks(settings):
    """Of six agents with classes of their own, those with one class hold half as many records; rank 0 does not host them."""
    words = ["train", "run.toml", "--workers", "2", "--agents", "6", "--rounds", "4", "--name", "one"]
    code, out, errors = finished(start(*words, "--placement", "contiguous"))
    assert code == 0, errors
    each = json.loads(Path("runs/one/summary.json").read_text())["epsilon_per_agent"]
    assert max(each[3:]) > 1.2 * max(each[:3])
    (highest,) = re.findall(r"the only run on this data has spent ε=([0-9.]+) per record", " ".join(out.split()))
    assert float(highest) == pytest.approx(max(each), rel=1e-3)


@pytest.mark.slow
def test_ctrl_c_saves_on_all_ranks_and_no_rank_outlives_its_launcher(settings):
    run = start("train", "run.toml", *LONG, "--workers", "2", "--name", "one", "--quiet")
    wait_for_checkpoints(2)
    ranks = ranks_of(run)
    run.send_signal(signal.SIGINT)
    code, _, errors = finished(run)
    assert code == 130
    assert "and saved. Resume with: tacit resume runs/one" in " ".join(errors.split())
    assert not any(Path(f"/proc/{rank}").exists() for rank in ranks)
    run = start("resume", "one", "--quiet")
    wait_for_checkpoints(8)
    ranks = ranks_of(run)
    run.kill()
    run.wait()
    until = time.monotonic() + 20
    while any(Path(f"/proc/{rank}").exists() for rank in ranks) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(Path(f"/proc/{rank}").exists() for rank in ranks)
    code, _, errors = finished(start("resume", "one", "--quiet"))
    assert code == 0, errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--workers", "6"],
            "--workers is 6, but there are 5 agents: each worker hosts at least one, so use at most 5",
        ),
        (["--workers", "0"], "--workers is 0; it must be at least 1"),
        (["--placement", "metis"], "--placement means nothing without --workers; leave it out, or set that"),
        (["--on", "ray"], "--on ray needs --workers"),
        (["--workers", "2", "--private-diagnostics"], "--private-diagnostics are collected in one process only"),
    ],
)
def test_what_workers_cannot_do_is_said_before_any_starts(words, message, settings):
    assert message in complaint("train", "run.toml", *words)
    assert not Path("runs").exists()


def test_a_name_that_is_taken_is_refused_before_any_starts(settings):
    Path("runs/one").mkdir(parents=True)
    for name, message in (("one", "choose another name, or resume that run"), ("a/b", "a run cannot be called 'a/b'")):
        assert message in complaint("train", "run.toml", "--workers", "2", "--name", name)


@pytest.mark.slow
def test_an_error_of_the_ranks_is_one_sentence(settings):
    code, _, errors = finished(start("train", "run.toml", "--workers", "2", "--graph", "nothing.csv", "--name", "one"))
    assert code == 2
    assert errors.count("error:") == 1
    assert "nothing.csv" in errors
    assert "Traceback" not in errors
    assert not Path("runs/one").exists()
    code, _, errors = finished(
        subprocess.Popen(
            [sys.executable, "-m", "tacit.cluster", "run.toml", "--name", "one"], stderr=subprocess.PIPE, text=True
        )
    )
    assert code == 2
    assert "torchrun --nproc-per-node 2 -m tacit.cluster FILE --name NAME" in errors
