"""A disk that is full at any moment of a run: a sentence, nothing lost, and the run goes on once there is room.

The disk is real: a small tmpfs in a mount namespace of the test's own, filled up to some kilobytes.
"""

import json
import shutil
import subprocess
import sys

import pytest

SETTINGS = (
    "--dataset digits --agents 4 --split iid --noise-multiplier 3 --lot-size 24 --rounds 12 --source seeded "
    "--checkpoint-every 4 --evaluate-every 2 --spare-queries 4 --quiet"
)

# Runs inside the namespace. For each disk: fill it, train, make room, go on; print what happened.
SCENARIO = """
import hashlib, json, multiprocessing, os, pathlib, subprocess, sys, tempfile
import tacit.cli.terminal.play_run, tacit.privacy.losses, torch._dynamo  # or every process would import them
from safetensors.numpy import load_file
from tacit.cli import main
def command(words, *streams):
    for place, stream in enumerate(streams, start=1):
        os.dup2(stream.fileno(), place)
    sys.argv = ["tacit", *words]
    main()
def tacit(*words):
    # A process for each command, forked from this one, which has imported the program and done nothing else.
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = multiprocessing.get_context("fork").Process(target=command, args=(words, out, err))
        process.start()
        process.join()
        return process.exitcode, *(os.pread(stream.fileno(), 2**20, 0).decode() for stream in (out, err))
def fill(disk, room):
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize
    (disk / "ballast").write_bytes(bytes(max(0, free - room)))
def play(disk, room, settings):
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], check=True)
    runs, told = disk / "runs", []
    fill(disk, room)
    words = ("train", "--runs", str(runs), "--name", "one", *settings)
    for _ in range(20):
        code, _, said = tacit(*words)
        told.append((code, said))
        if code == 0:
            break
        if (runs / "one" / "events.jsonl").exists():
            words = ("resume", str(runs / "one"), "--quiet")
        room += 40_000
        (disk / "ballast").unlink()
        fill(disk, room)
    verified, shown, _ = tacit("ledger", "--runs", str(runs), "--verify", "--json")
    return {
        "told": told,
        "verified": verified,
        "queries": [row["queries"] for row in json.loads(shown)["spent"] if row["run"]],
        "models": hashlib.sha256(load_file(runs / "one" / "checkpoint.safetensors")["state.0"].tobytes()).hexdigest(),
    }
folder, settings, *rooms = sys.argv[1:]
print(json.dumps([play(pathlib.Path(folder) / room, int(room), settings.split()) for room in rooms]))
"""


@pytest.fixture(scope="module")
def in_namespace():
    """How to run a command with mounts of its own."""
    words = ["unshare", "--user", "--map-root-user", "--mount"]
    if shutil.which("unshare") is None or subprocess.run([*words, "true"], capture_output=True).returncode:
        pytest.skip("this system lets nobody make a mount namespace, so there is no small disk to fill")
    return words


def play(in_namespace, tmp_path, *rooms):
    words = [*in_namespace, sys.executable, "-c", SCENARIO, str(tmp_path), SETTINGS, *map(str, rooms)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_run_survives_a_full_disk_at_any_moment(in_namespace, tmp_path):
    whole, *disks = play(in_namespace, tmp_path, 3_900_000, 4_000, 90_000, 170_000)
    assert [code for code, _ in whole["told"]] == [0]
    assert len(disks) == 3
    for filled in disks:
        failures, (last, _) = filled["told"][:-1], filled["told"][-1]
        assert last == 0
        assert failures, "the disk was not small enough for this test"
        for code, words in failures:
            assert code in (1, 2)
            assert words.startswith("error: "), words
            assert words.count("\n") == 1, words
        assert filled["verified"] == 0
        assert all(12 <= queries <= 16 for queries in filled["queries"])
        assert filled["models"] == whole["models"]
