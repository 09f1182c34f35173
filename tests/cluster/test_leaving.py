"""What happens after the last round: all ranks leave together, rank 0 last, and one that dies as it leaves changes nothing."""

import json
import os
import subprocess
import sys
import time
from contextlib import closing, redirect_stderr, redirect_stdout
from io import StringIO

import pytest
import tomli_w
import torch.distributed as dist
from playing import SETTINGS
from ranks import on_ranks

from tacit.cli.rank import play_rank
from tacit.cluster import group
from tacit.cluster.group import Group
from tacit.cluster.launching import launch
from tacit.privacy import DurableLedger
from tacit.runs.folder import RunFolder

ON_RECORD = "after the end of the run, which is on record: nothing is lost"
DIES = """
import atexit, os
from pathlib import Path

def die():
    if os.environ.get("RANK") == "1" and not Path("died").exists():
        Path("died").touch()
        os.abort()

atexit.register(die)
"""
"""A rank 1 that aborts once, as its interpreter exits."""


def play(rank, folder, **how):
    """Do what `python -m tacit.cluster` does, and return its exit code and what it printed."""
    file, out, errors = folder / f"{rank}.toml", StringIO(), StringIO()
    file.write_bytes(tomli_w.dumps(SETTINGS).encode())
    with redirect_stdout(out), redirect_stderr(errors):
        code = play_rank(file, "one", folder / "runs", budget=None, deadline=30.0, quiet=True, **how)
    return code, out.getvalue(), errors.getvalue()


def assert_whole(folder):
    assert RunFolder(folder / "runs" / "one").summary()["rounds"] == SETTINGS["rounds"]
    with closing(DurableLedger(folder / "runs" / "ledger.sqlite", read_only=True)) as ledger:
        assert ledger.verify() == []
        assert (ledger.account("one").state, ledger.account("one").spent) == ("finished", SETTINGS["rounds"])


def leave_slowly(rank, folder):
    """Rank 0 comes late, and rank 1 takes its time; return what each finds when it may go on."""
    joined = Group.join(20.0)
    if rank:
        destroy = dist.destroy_process_group
        dist.destroy_process_group = lambda: (time.sleep(1.0), destroy(), (folder / "left").touch())
        joined.leave()
        return (folder / "summary").exists()
    time.sleep(1.0)
    (folder / "summary").touch()
    joined.leave()
    return (folder / "left").exists()


def test_other_ranks_leave_after_rank_0_has_ended_the_run_and_rank_0_leaves_last(tmp_path):
    assert on_ranks(3, leave_slowly, tmp_path, joined=False) == [True, True, True]


def play_and_die(rank, folder, when):
    """Rank 1 aborts: before all are together, or as it leaves."""
    if rank == 1:
        setattr(Group, when, lambda self: os.abort())
    group._LEAVING = 1.0  # nobody needs longer whom rank 0 still waits for
    return play(rank, folder)


@pytest.mark.parametrize("when", ["leave", "close"])
def test_a_rank_that_dies_as_it_leaves_is_a_note_of_rank_0(when, tmp_path):
    (code, _, said), _ = on_ranks(2, play_and_die, tmp_path, when, joined=False, may_fail=True, timeout=120)
    assert code == 0
    assert said.startswith("note: ")
    assert "This was after the end of the run, which is on record as it is" in said
    assert_whole(tmp_path)


def play_twice(rank, folder):
    return play(rank, folder), play(rank, folder, json=rank == 0)


def test_ranks_that_start_again_after_the_end_leave_the_run_as_it_is(tmp_path):
    """As torchrun, Ray and schedulers do when one has died as it left."""
    (first, again), others = on_ranks(2, play_twice, tmp_path, joined=False, timeout=120)
    assert [code for code, *_ in (first, again, *others)] == [0, 0, 0, 0]
    assert again[2] == "note: run 'one' is finished already; nothing was done\n"
    assert json.loads(again[1]) == RunFolder(tmp_path / "runs" / "one").summary() | {
        "run": str(tmp_path / "runs" / "one")
    }
    assert_whole(tmp_path)


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        ("[ $RANK = 0 ] && touch end && exec sleep 1; until [ -e end ]; do sleep 0.1; done; kill -ABRT $$", 0, 1),
        ("[ $RANK = 1 ] && exit 0; touch end; kill -ABRT $$", 0, 0),
        ("[ $RANK = 1 ] && exit 0; touch end; exit 2", 2, None),
    ],
    ids=["another rank", "rank 0", "rank 0 fails with a sentence"],
)
def test_of_a_finished_run_a_rank_that_is_killed_is_a_note_of_the_launcher(script, code, said, tmp_path, monkeypatch):
    program = tmp_path / "rank"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.chdir(tmp_path)
    notes = []
    assert launch([], 2, finished=(tmp_path / "end").exists, say=notes.append) == code
    assert notes == ([] if said is None else [f"rank {said} was killed by SIGABRT {ON_RECORD}"])


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["workers", "torchrun"])
def test_a_run_whose_rank_aborts_as_its_interpreter_exits_ends_well(launcher, tmp_path):
    (tmp_path / "run.toml").write_bytes(tomli_w.dumps(SETTINGS).encode())
    (tmp_path / "sitecustomize.py").write_text(DIES)
    words = {
        "workers": "tacit train run.toml --workers 2 --name one --json",
        "torchrun": "torch.distributed.run --standalone --nproc-per-node 2 --max-restarts 1 -m tacit.cluster run.toml --name one --json",
    }[launcher].split()
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    ended = subprocess.run(
        [sys.executable, "-m", *words], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert (tmp_path / "died").exists()
    assert ended.returncode == 0, ended.stderr
    assert '"models_sha256"' in ended.stdout
    if launcher == "workers":
        assert ended.stdout.count('"models_sha256"') == 1
        assert f"note: rank 1 was killed by SIGABRT {ON_RECORD}" in ended.stderr
    assert_whole(tmp_path)
