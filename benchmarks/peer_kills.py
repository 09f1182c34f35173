"""Kills random sites of a real consortium with SIGKILL, over and over, and counts afterwards what they released.

    python -m benchmarks.peer_kills --kills 100 --sites 4 --seed 1

Every site is a process that does what `tacit peer run` does; it is forked from a server that has loaded PyTorch, so that it is back at
once. Kills wait until their victims have played since they were started, but for one in ten. A killed one is started again after a moment,
so that others wait for it, skip its links or have moved on when it is back. At the end, what each site released is counted at its *neighbours*, in their journals, and compared
with what its own ledger holds. Exit code 1 if a release was not charged, two different messages were sent for one exchange, the ends of a
link disagree, a store is damaged, or a run does not end.
"""

import argparse
import json
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.peer_count import FAULTS, count_releases
from tacit.peer.demo import Demo, DemoSite
from tacit.runs.config import RunConfig

SETTINGS: dict[str, Any] = {
    "algorithm": "dsgt",
    "dataset": "digits",
    "split": "iid",
    "graph": "ring",
    "noise_multiplier": 2.0,
    "lot_size": 24.0,
    "lr": 1.0,
    "spare_queries": 1000,
}
LIMITS = {"compute_seconds": 20.0, "grace_seconds": 2.0, "resend_seconds": 1.0, "linger_seconds": 60.0}


_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["torch._dynamo", "tacit.runs.runner", "tacit.report"])


def _run_site(folder: str, log_file: str) -> None:
    """Do what `tacit peer run` does, in a process of its own."""
    import torch

    from tacit.peer.logs import log_json_lines
    from tacit.peer.service import run_site

    log = os.open(log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.setsid()
    torch.set_num_threads(1)
    log_json_lines()
    os.chdir(folder)
    sys.exit(0 if run_site(Path(".")) == "finished" else 143)


class ForkedSite(DemoSite):
    """A site whose process is forked."""

    forked: Any = None
    _size = 0

    def has_played(self, demo: Demo) -> bool:
        """Whether it has completed a round since it was started."""
        events = demo.run_folder(self) / "events.jsonl"
        if not events.exists():
            return False
        with events.open("rb") as file:
            file.seek(self._size)
            return b'"event": "links"' in file.read()

    @property
    def running(self) -> bool:
        """Whether its process is there."""
        return self.forked is not None and bool(self.forked.is_alive())

    @property
    def exit_code(self) -> int | None:
        """How its last process ended."""
        return None if self.forked is None else self.forked.exitcode

    def start(self) -> None:
        """Start the process of this site."""
        self._size = sum(path.stat().st_size for path in self.folder.glob("runs/*/events.jsonl"))
        self.forked = _FORKS.Process(target=_run_site, args=(str(self.folder), str(self.log_file)))
        self.forked.start()
        self.starts += 1

    def kill(self) -> None:
        """End the process as a power cut would."""
        if self.forked is not None:
            self.forked.kill()
            self.forked.join()

    def terminate(self) -> None:
        """Ask the process to end."""
        if self.forked is not None and self.running:
            os.kill(self.forked.pid, signal.SIGTERM)


def play(folder: Path, *, kills: int, sites: int, rounds: int, seed: int, seconds: float, noise: str) -> dict[str, Any]:
    """Play one run with so many kills, and return what was found."""
    chance, started = random.Random(seed), time.monotonic()
    settings = {**SETTINGS, "agents": sites, "rounds": rounds, "noise": noise}
    killed, killed_in_rounds, failed, anybody = 0, 0, 0, False
    with Demo.prepare(folder, RunConfig.of({}, settings), limits=LIMITS, evaluate_every=rounds) as demo:
        forked = [ForkedSite(site.name, site.folder, site.page) for site in demo.sites]
        demo.sites = [*forked]
        demo.start()
        waiting: dict[str, float] = {}
        next_kill = time.monotonic() + 5.0
        while time.monotonic() - started < seconds:
            now = time.monotonic()
            for site in demo.sites:
                if site.exit_code not in (None, 0, -9) and site.name not in waiting:
                    failed += 1
                if not site.running and site.exit_code != 0 and now >= waiting.setdefault(site.name, now):
                    del waiting[site.name]
                    site.start()
            if demo.finished:
                break
            if killed < kills and now >= next_kill:
                # Most kills hit sites that have played since they were started; some hit those that are just starting.
                victims = [site for site in forked if site.running and (anybody or site.has_played(demo))]
                for victim in chance.sample(victims, min(len(victims), chance.choice([1, 1, 1, 2, 3]))):
                    killed_in_rounds += victim.has_played(demo)
                    victim.kill()
                    killed += 1
                    waiting[victim.name] = now + chance.choice([0.0, 0.0, 0.5, 4.0])
                    anybody = chance.random() < 0.1
                next_kill = now + chance.uniform(0.1, 1.0)
            time.sleep(0.05)
        ended = demo.finished
    found = count_releases(demo.agreement, {site.name: site.folder for site in demo.sites})
    starts = {site.name: site.starts for site in demo.sites}
    found["kills_in_rounds"] = killed_in_rounds
    return found | {
        "starts": starts,
        "kills": killed,
        "ended": ended,
        "failed_starts": failed,
        "seconds": time.monotonic() - started,
    }


def main() -> None:
    """Play, print what was found as JSON, and say by the exit code whether all is well."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peer_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3000, help="enough to outlast the kills")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600.0, help="give up after so long")
    parser.add_argument("--noise", choices=("local", "cancelling"), default="local")
    given = vars(parser.parse_args())
    with tempfile.TemporaryDirectory(prefix="tacit-kills-") as folder:
        found = play(Path(folder) / "sites", **given)
    print(json.dumps(found, indent=1))
    sys.exit(1 if any(found[fault] for fault in FAULTS) or not found["ended"] else 0)


if __name__ == "__main__":
    main()
