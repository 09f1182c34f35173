"""Kills random ranks of a run with SIGKILL, over and over, and counts afterwards what the ledger holds.

    python -m benchmarks.cluster_kills --launcher torchrun --kills 20 --seed 1

The run is started by torchrun, by `tacit train --workers` or on Ray, which start all ranks again. Lots and noise are seeded, so the same run is
played once more by one worker that nobody kills, and both must end with the same models. Exit code 1 if they do not, if the run does not end, or if
the ledger is damaged or does not hold every query: those of all rounds, and one more for each answer that a kill lost.
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import tomli_w

from tacit.privacy import DurableLedger
from tacit.privacy.charges import charges_of
from tacit.runs.folder import LEDGER, RunFolder

SETTINGS: dict[str, Any] = {
    "algorithm": "dsgt",
    "dataset": "digits",
    "agents": 6,
    "graph": "ring",
    "noise_multiplier": 2.0,
    "delta": 1e-3,
    "lot_size": 24.0,
    "lr": 1.0,
    "source": "seeded",
    "checkpoint_every": 20,
    "spare_queries": 1000,
    "compile": False,
}
LAUNCHERS = ("torchrun", "workers", "ray")
_RESTARTS = 1000


def start(launcher: str, folder: Path, ranks: int) -> "subprocess.Popen[str]":
    """Start a run named `one` on `ranks` ranks."""
    tacit, cluster = [sys.executable, "-m", "tacit"], ["-m", "tacit.cluster", "run.toml", "--name", "one", "--quiet"]
    agent = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--monitor-interval", "0.1"]
    command = {
        "torchrun": [*agent, "--nproc-per-node", str(ranks), "--max-restarts", str(_RESTARTS), *cluster],
        "workers": [*tacit, "train", "run.toml", "--workers", str(ranks), "--name", "one", "--quiet"],
        "ray": [*tacit, "train", "run.toml", "--workers", str(ranks), "--name", "one", "--quiet", "--on", "ray"],
    }[launcher]
    restarts = [] if launcher == "torchrun" else ["--restarts", str(_RESTARTS)]
    quiet = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    with (folder / "log.txt").open("w") as log:
        return subprocess.Popen(
            [*command, *restarts], cwd=folder, env=os.environ | quiet, stdout=log, stderr=log, text=True
        )


def find_ranks(runs: Path) -> dict[int, int]:
    """Return the process of each rank that is playing, by the lock that it holds beside the ledger."""
    found: dict[int, int] = {}
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal():
            continue
        with suppress(OSError):
            for link in (process / "fd").iterdir():
                with suppress(OSError):
                    target = os.readlink(link)
                    if not target.startswith(str(runs.resolve())) or not target.endswith(".lock"):
                        continue
                    if other := re.search(r"\.charges/[0-9a-f]+-(\d+)\.lock$", target):
                        found[int(other[1])] = int(process.name)
                    elif f"/.{LEDGER}." in target:
                        found[0] = int(process.name)
    return found


def play(
    folder: Path,
    *,
    launcher: str,
    kills: int,
    ranks: int,
    rounds: int,
    seed: int,
    seconds: float,
    longest: float = 1.5,
) -> dict[str, Any]:
    """Play the run with `kills` kills and once without, and return what was found, with the seconds of each restart.

    longest: how many seconds all ranks play before one is killed, at most.
    """
    chance, started, killed = random.Random(seed), time.monotonic(), [0] * ranks
    (folder / "run.toml").write_bytes(tomli_w.dumps(SETTINGS | {"rounds": rounds}).encode())
    runs, run = folder / "runs", start(launcher, folder, ranks)
    before, last, restarts = set[int](), started, list[float]()
    try:
        while run.poll() is None and time.monotonic() - started < seconds:
            playing = find_ranks(runs)
            if len(playing) == ranks and not before & set(playing.values()):
                restarts.append(time.monotonic() - last)  # the first is the start
                before = set(playing.values())
                if sum(killed) < kills:
                    time.sleep(chance.uniform(0.0, longest))
                    victim = chance.randrange(ranks)
                    with suppress(ProcessLookupError):
                        os.kill(playing[victim], signal.SIGKILL)
                        killed[victim] += 1
                        last = time.monotonic()
            time.sleep(0.2)  # to look at all processes costs the ranks time
        ended = run.poll() == 0
    finally:
        if run.poll() is None:
            run.terminate()
            run.wait(30)
    took = time.monotonic() - started
    again = [sys.executable, "-m", "tacit", "train", "run.toml", "--workers", "1", "--name", "alone", "--quiet"]
    subprocess.run([*again, "--runs", "unharmed"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    if not (runs / LEDGER).exists():
        raise SystemExit(f"the run did not begin:\n{(folder / 'log.txt').read_text()[-2000:]}")
    restarted = [round(each, 1) for each in restarts[1:]]
    facts = {"launcher": launcher, "kills": killed, "ended": ended, "seconds": round(took, 1), "restarts": restarted}
    return facts | _count(folder, rounds)


def _count(folder: Path, rounds: int) -> dict[str, Any]:
    """Return what the ledger holds, and whether the models are those of the run that nobody killed."""
    with closing(DurableLedger(folder / "runs" / LEDGER, read_only=True)) as ledger:
        account, wrong = ledger.account("one"), ledger.verify()
    assert account is not None
    events, others = RunFolder(folder / "runs" / "one").events(), charges_of(folder / "runs" / LEDGER, account.token)
    hashes = {
        name: (RunFolder(folder / place / name).summary() or {}).get("models_sha256")
        for place, name in (("runs", "one"), ("unharmed", "alone"))
    }
    return {
        "state": account.state,
        "charged": account.spent,
        "rounds": rounds,
        "lost": events.lost_queries,
        "charged_by_other_ranks": [each.queries for each in others.values()],
        "wrong_with_the_ledger": wrong,
        "same_models": hashes["one"] is not None and hashes["one"] == hashes["alone"],
    }


def main() -> None:
    """Play, print what was found as JSON, and say by the exit code whether all is well."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster_kills", description=__doc__)
    parser.add_argument("--launcher", choices=LAUNCHERS, default="torchrun")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=900.0, help="give up after so long")
    given = vars(parser.parse_args())
    with tempfile.TemporaryDirectory(prefix="tacit-cluster-kills-") as folder:
        found = play(Path(folder), **given)
    print(json.dumps(found, indent=1))
    right = found["charged"] == found["rounds"] + found["lost"] and found["lost"] <= sum(found["kills"])
    whole = found["state"] == "finished" and not found["wrong_with_the_ledger"]
    killed = sum(found["kills"]) == given["kills"]
    sys.exit(0 if found["ended"] and right and whole and killed and found["same_models"] else 1)


if __name__ == "__main__":
    main()
