"""What is wrong with one rank ends all of them: rank 0 says it in one sentence, the others are silent, and nobody waits for ever."""

import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import tomli_w
from playing import SETTINGS
from ranks import on_ranks

from tacit.cli.rank import main, play_rank
from tacit.cluster import agreeing, following, leading
from tacit.cluster.group import Group
from tacit.errors import RankFailed
from tacit.privacy import DurableLedger
from tacit.runs import Runner
from tacit.runs.config import RunConfig
from tacit.runs.folder import RunFolder
from tacit.training import planning

NEEDED = "all ranks need the same versions, settings and files"
MISTAKES = {
    "another version": f"tacit is '{agreeing.__version__}' on rank 0 and '9.9' on rank 1; {NEEDED}",
    "other code": "code of tacit is ",
    "other settings": f"lr is 1.0 on rank 0 and 3.0 on rank 1; {NEEDED}",
    "a graph that rank 0 does not see": "there.csv",
    "a graph that rank 1 does not see": "rank 1: ",
    "another graph": "links of the graph is ",
    "no settings": "run.toml cannot be read: No such file or directory",
    "more ranks than agents": "workers is 2, but there is one agent",
    "another number of workers": "says workers = 3, but 2 ranks were started; use as many",
    "another noise": "the plan of lots, clipping norms, noise and keys is ",
    "other keys": "the plan of lots, clipping norms, noise and keys is ",
    "no METIS": "placement metis needs pymetis: install tacit with the extra 'metis'",
}
BEGUN = {
    "lr": (3.0, "run 'one' began with lr = 1.0, but lr is 3.0 now; resume it with the settings that it began with"),
    "workers": (3, "run 'one' began with workers = 3, but workers is 2 now"),
}


def play_mistaken(rank, folder, mistake):
    """Do what `python -m tacit.cluster` does, with a mistake that only one rank makes where two can differ."""
    os.chdir(folder)
    settings = dict(SETTINGS)
    if mistake == "another version" and rank == 1:
        agreeing.__version__ = "9.9"
    elif mistake == "other code" and rank == 1:
        agreeing.code_sha256 = lambda: "0" * 64
    elif mistake == "other settings" and rank == 1:
        settings["lr"] = 3.0
    elif mistake == "more ranks than agents":
        settings |= {"agents": 1, "graph": "complete"}
    elif mistake == "another number of workers":
        settings["workers"] = 3
    elif mistake == "no METIS":
        sys.modules["pymetis"] = None  # what an import finds where it is not installed
        settings["placement"] = "metis"
    elif mistake == "another noise" and rank == 1:
        calibrate_lower()
    elif mistake == "other keys":
        keys = folder / f"{rank}-keys"
        keys.mkdir()
        os.chdir(keys)
        Path("keys.csv").write_text("0,1\n1,2\n2,3\n3,4\n4,0\n" + "0,2\n" * (rank == 0))
        settings |= {"noise": "cancelling", "keys": "keys.csv", "mask_ratio": 2.0}
    elif "graph" in mistake:
        settings["graph"] = "there.csv"
        own = folder / str(rank)
        own.mkdir()
        os.chdir(own)
        if mistake != f"a graph that rank {rank} does not see":
            chord = "0,2\n" if mistake == "another graph" and rank == 1 else ""
            Path("there.csv").write_text("0,1\n1,2\n2,3\n3,4\n" + chord)
    file = folder / f"{rank}-run.toml"
    if mistake != "no settings" or rank != 1:
        file.write_bytes(tomli_w.dumps(settings).encode())
    return play_rank(file, "one", folder / "runs", budget=None, deadline=30.0, quiet=True)


def calibrate_lower():
    """Calibrate as another version of an accountant might: for less noise than rank 0 opens the account with."""
    settle = planning.settle_plan
    planning.settle_plan = lambda *args, **named: replace(
        found := settle(*args, **named), noise_multipliers=(0.1,) * found.agents
    )


@pytest.mark.parametrize(
    "mistake",
    [
        pytest.param(mistake, marks=() if mistake == "another noise" else pytest.mark.slow, id=mistake)
        for mistake in MISTAKES
    ],
)
def test_a_mistake_of_one_rank_is_one_sentence_of_rank_0(mistake, tmp_path):
    first, second = on_ranks(2, play_mistaken, tmp_path, mistake, may_fail=True, joined=False, timeout=120)
    error = first.strip().splitlines()[-1]
    assert MISTAKES[mistake] in error
    assert error.startswith(("InvalidInput: ", "RankFailed: ", "GraphError: ", "tacit.errors."))
    assert second == 2  # the exit code of a rank that was silent
    assert not (tmp_path / "runs" / "one").exists()
    if (tmp_path / "runs" / "ledger.sqlite").exists():
        assert not DurableLedger(tmp_path / "runs" / "ledger.sqlite", read_only=True).accounts


def play_while_rank_0_is_busy(rank, folder):
    """Rank 1 has no settings, while rank 0 reads its data for three seconds; return whether rank 0 has spoken when rank 1 ends."""
    file, said = folder / f"{rank}.toml", folder / "said"
    if rank:
        return play_rank(file, "one", folder / "runs", budget=None, deadline=30.0, quiet=True), said.exists()
    file.write_bytes(tomli_w.dumps(SETTINGS).encode())
    compare, leading.facts_of = leading.facts_of, lambda *given: time.sleep(3.0) or compare(*given)
    try:
        return play_rank(file, "one", folder / "runs", budget=None, deadline=30.0, quiet=True)
    except RankFailed as error:
        said.write_text(str(error))
        raise


def test_a_rank_that_fails_while_rank_0_is_busy_ends_after_rank_0_has_said_why(tmp_path):
    """torchrun ends all ranks when one has, so rank 0 would be ended before it knows what to say."""
    first, second = on_ranks(2, play_while_rank_0_is_busy, tmp_path, may_fail=True, joined=False, timeout=120)
    assert "RankFailed: rank 1: " in first.strip().splitlines()[-1]
    assert second == (2, True)


def test_of_a_wrong_command_rank_0_speaks_first(monkeypatch, capsys):
    """torchrun then ends the others, and one sentence is printed instead of one for each rank."""
    printed_before = []
    monkeypatch.setattr("tacit.cli.rank.time.sleep", lambda _: printed_before.append(capsys.readouterr().err))
    for rank, waits in (("0", []), ("1", [""])):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setattr(sys, "argv", ["tacit.cluster", "run.toml"])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        assert printed_before == waits
        assert capsys.readouterr().err.startswith("error: missing option '--name'")


def play_on_a_folder_of_its_own(rank, folder, kind):
    """Rank 1 sees a folder of the same path that rank 0 does not write to, or none: as on a machine of its own."""
    file = folder / f"{rank}.toml"
    file.write_bytes(tomli_w.dumps(SETTINGS).encode())
    if rank == 1:
        following._PATIENCE = 1.0
        hear = Group.hear
        own = {"folder": str(folder / "local")} if kind == "another" else {"folder": str(folder / "none")}
        Group.hear = lambda self, name: hear(self, name) | (own if name == "begin" else {})
    return play_rank(file, "one", folder / "runs", budget=None, deadline=30.0, quiet=True)


@pytest.mark.parametrize("kind", ["another", pytest.param("none", marks=pytest.mark.slow)])
def test_a_rank_that_sees_another_folder_than_rank_0_is_refused(kind, tmp_path):
    """Charges and answers that only it sees would be gone when it starts again elsewhere, and its queries made twice."""
    (tmp_path / "local" / "ranks").mkdir(parents=True)
    (tmp_path / "local" / "ranks" / "meeting.txt").write_text("of an earlier run")
    first, second = on_ranks(2, play_on_a_folder_of_its_own, tmp_path, kind, may_fail=True, joined=False, timeout=120)
    assert "rank 1: this rank does not see the run's folder" in first.strip().splitlines()[-1]
    assert second == 2
    assert not (tmp_path / "runs" / "one").exists()
    assert not DurableLedger(tmp_path / "runs" / "ledger.sqlite", read_only=True).accounts


def play_begun(rank, folder, key):
    (folder / f"{rank}.toml").write_bytes(
        tomli_w.dumps(SETTINGS | ({} if key == "workers" else {key: BEGUN[key][0]})).encode()
    )
    return play_rank(folder / f"{rank}.toml", "one", folder / "runs", budget=None, deadline=30.0, quiet=True)


@pytest.mark.parametrize("key", [pytest.param("lr", marks=pytest.mark.slow), "workers"])
def test_a_run_that_is_there_is_not_resumed_with_other_settings(key, tmp_path):
    """The other ranks play the settings that they are given: with another noise than the account's, they would be charged for too little."""
    Runner.start(tmp_path / "runs", "other", RunConfig.of(SETTINGS)).close()  # so that there is a ledger
    RunFolder.create(tmp_path / "runs", "one", RunConfig.of(SETTINGS | {"workers": 3 if key == "workers" else 2}))
    first, second = on_ranks(2, play_begun, tmp_path, key, may_fail=True, joined=False, timeout=120)
    assert BEGUN[key][1] in first.strip().splitlines()[-1]
    assert second == 2
    assert DurableLedger(tmp_path / "runs" / "ledger.sqlite", read_only=True).account("one") is None


def play_on_a_full_disk(rank, folder, full):
    """Rank 1 cannot write files of more than 20,000 bytes, which its answers soon exceed."""
    file = folder / f"{rank}.toml"
    file.write_bytes(tomli_w.dumps(SETTINGS | {"spare_queries": 2}).encode())
    if rank == 1 and full:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    return play_rank(file, "one", folder / "runs", budget=None, deadline=30.0, quiet=True)


def test_a_disk_that_is_full_for_one_rank_ends_all_in_one_sentence_and_the_run_resumes(tmp_path):
    first, second = on_ranks(2, play_on_a_full_disk, tmp_path, True, may_fail=True, joined=False, timeout=120)
    error = first.strip().splitlines()[-1]
    assert error.startswith(("RankFailed: rank 1: ", "tacit.errors.RankFailed: rank 1: "))
    assert "0001-answers-00000000.bin: cannot be written: File too large" in error
    assert second == 2
    assert on_ranks(2, play_on_a_full_disk, tmp_path, False, joined=False, timeout=120) == [0, 0]
    with closing(DurableLedger(tmp_path / "runs" / "ledger.sqlite", read_only=True)) as ledger:
        assert ledger.account("one").spent == SETTINGS["rounds"] + 1
        assert ledger.verify() == []


WITHOUT_RAY = """
import sys
sys.modules["ray"] = None  # what an import finds where it is not installed
from tacit.cli import main
sys.argv = ["tacit", *sys.argv[1:]]
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["train", "run.toml", "--workers", "2", "--on", "ray"], "Ray Train"),
        (["tune", "run.toml", "--parameter", "lr=log:0.1..1", "--on", "ray"], "Ray Tune"),
    ],
)
def test_without_ray_a_run_on_ray_is_refused_before_anything_is_written(words, part, tmp_path):
    (tmp_path / "run.toml").write_bytes(tomli_w.dumps(SETTINGS).encode())
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_RAY, *words], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 2
    assert f"error: --on ray needs {part}: install tacit with the extra 'ray'" in " ".join(ended.stderr.split())
    assert ended.stderr.count("error:") == 1
    assert "Traceback" not in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["run.toml"]
