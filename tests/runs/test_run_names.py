"""Which run is meant by a name, and who works on it."""

import fcntl
import os
import shutil
import threading
from pathlib import Path

import pytest

from tacit.errors import InvalidInput
from tacit.runs import RunFolder, Runner, find_run, find_runs, fresh_name
from tacit.runs.config import RunConfig

CONFIG = RunConfig.of({"agents": 4, "noise_multiplier": 3.0, "lot_size": 24, "rounds": 2})


def test_a_bare_name_is_that_of_a_run_unless_a_run_lies_right_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = Path("runs")
    RunFolder.create(runs, "one", CONFIG)
    assert find_run(Path("one"), runs) == Path("runs/one")
    assert find_run(Path("runs/one"), Path("elsewhere")) == Path("runs/one")
    RunFolder.create(Path(), "one", CONFIG)
    assert find_run(Path("one"), runs) == Path("one")
    with pytest.raises(InvalidInput, match=r"there is no run folder onne, nor runs/onne; did you mean 'one'\?"):
        find_run(Path("onne"), runs)


def test_the_files_of_a_ledger_are_no_runs(tmp_path):
    folder = RunFolder.create(tmp_path, "one", CONFIG)
    for ending in ("", "-wal", "-shm"):
        (tmp_path / f"ledger.sqlite{ending}").touch()
    assert find_runs(sorted(tmp_path.iterdir()), tmp_path) == [folder.path]


def test_a_name_stays_taken_when_its_folder_is_deleted(tmp_path):
    name = fresh_name(tmp_path, CONFIG)
    with Runner.start(tmp_path, name, CONFIG) as runner:
        runner.play(stop=lambda: False)
    shutil.rmtree(tmp_path / name)
    assert fresh_name(tmp_path, CONFIG) == "dsgt-digits-2" != name


def test_asking_who_works_on_a_run_does_not_disturb_it(tmp_path):
    folder = RunFolder.create(tmp_path, "one", CONFIG)
    assert not folder.is_running, "nobody ever did"
    with folder.locked():
        assert folder.is_running
    assert not folder.is_running
    asked = os.open(folder.path / ".lock", os.O_RDONLY)
    fcntl.flock(asked, fcntl.LOCK_SH)  # as a question does, here for a long moment
    threading.Timer(0.1, lambda: os.close(asked)).start()
    with folder.locked():
        assert folder.is_running


def test_the_name_of_a_run_that_is_running_is_refused_with_that_reason(tmp_path):
    folder = RunFolder.create(tmp_path, "one", CONFIG)
    with pytest.raises(InvalidInput, match="already exists: choose another name, or resume that run"):
        RunFolder.unused(tmp_path, "one")
    with (
        folder.locked(),
        pytest.raises(InvalidInput, match="already exists: a process is working on that run now; choose another name"),
    ):
        RunFolder.unused(tmp_path, "one")
