"""`tacit peer demo` as someone runs it: real processes, what is printed at the end, and Ctrl-C."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from invoking import complaint

pytestmark = pytest.mark.slow


def start(folder, *options):
    command = [sys.executable, "-m", "tacit", "peer", "demo", "--folder", str(folder), "--sites", "2", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def processes_of(folder):
    """Return the processes whose command line names a site in a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        if any(word.startswith(f"{folder}/site-".encode()) for word in words):
            found.append(int(entry.parent.name))
    return found


def test_the_last_table_shows_the_end_of_every_site(tmp_path):
    folder = tmp_path / "sites"
    with start(folder, "--rounds", "3") as demo:
        said, _ = demo.communicate(timeout=300)
    assert demo.returncode == 0, said
    for site in ("site-0", "site-1"):
        assert re.search(rf"^{site} +finished +3 +3 of 3 used +[\d.]+ % +[\d.]+ *$", said, re.MULTILINE)
        assert (folder / site / "peer.log").read_text().count('"message": "finishing"') == 1
    assert re.search("^finished$", said, re.MULTILINE)
    stated = r"highest ε [\d.]+ per record at δ=0\.001, add-or-remove-one, pld, against everybody else together"
    assert re.search(stated, " ".join(said.split()))
    assert processes_of(folder) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_all_sites_and_says_where_they_are(tmp_path, number, code):
    folder, deadline = tmp_path / "sites", time.monotonic() + 200
    with start(folder, "--rounds", "20000") as demo:
        while len(processes_of(folder)) < 2 and demo.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        if number == signal.SIGINT:  # in the middle of training; the other signal comes while sites are starting
            while "training" not in _logs(folder) and demo.poll() is None and time.monotonic() < deadline:
                time.sleep(0.1)
        os.kill(demo.pid, number)
        said, _ = demo.communicate(timeout=120)
    assert demo.returncode == code, said
    assert f"stopped; no process is left. The sites are in {folder}; continue each with tacit peer run --site" in said
    assert processes_of(folder) == []


def _logs(folder):
    return "".join(file.read_text() for file in folder.glob("site-*/peer.log"))


def test_teachers_vote_once_at_every_site(tmp_path):
    """The settings of the demonstration have lots, which votes do not."""
    folder = tmp_path / "sites"
    with start(folder, "--rounds", "3", "--algorithm", "pate:teachers=3,records=30,answers=20,teacher_steps=3") as demo:
        said, _ = demo.communicate(timeout=300)
    assert demo.returncode == 0, said
    for site in ("site-0", "site-1"):
        (run,) = (folder / site / "runs").glob("demo-*")
        summary = json.loads((run / "summary.json").read_text())
        assert (summary["links_used"], summary["epsilon"]) == (3, 8.0)
        assert len(summary["labels_per_agent"]) == 1


def test_a_rule_that_sites_cannot_play_is_refused_at_once(tmp_path):
    said = complaint("peer", "demo", "--algorithm", "choco", "--folder", tmp_path / "sites")
    assert "keeps what it has read" in said
    assert not (tmp_path / "sites").exists()
