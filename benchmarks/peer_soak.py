"""Runs a real consortium for a while and watches the resident memory of its sites: it should not grow.

    python -m benchmarks.peer_soak --minutes 30

Every site is `tacit peer run` in a process of its own, over TLS on loopback, and plays rounds as fast as it can. Memory is read from
/proc every few seconds. Printed are, for every site, its memory at the quarters of the time, and the slope over the last three quarters:
the first quarter is left out, as libraries are loaded and caches filled in it.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from tacit.errors import ProcessLost
from tacit.peer.demo import Demo, DemoSite
from tacit.runs.config import RunConfig

SETTINGS: dict[str, Any] = {
    "algorithm": "dsgt",
    "dataset": "digits",
    "split": "iid",
    "graph": "ring",
    "noise_multiplier": 5.0,
    "lot_size": 24.0,
    "lr": 0.1,
}
_EVERY = 5.0
_START_SECONDS = 120.0


class MemorySample(NamedTuple):
    """The memory of one site at one moment, with the round that it was in."""

    seconds: float
    kib: int
    round: int


def resident_kib(process: int) -> int:
    """Return the resident memory of a process in KiB."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise ProcessLost(f"process {process} has ended")


def watch(demo: Demo, seconds: float) -> dict[str, list[MemorySample]]:
    """Sample all sites until the time is over, or until one has played all its rounds."""
    until = time.monotonic() + _START_SECONDS
    while any(site.ask().get("round", 0) < 1 for site in demo.sites):
        demo.check()
        if time.monotonic() > until:
            raise ProcessLost(f"the sites did not begin within {_START_SECONDS:g} s")
        time.sleep(0.5)
    started = time.monotonic()
    found: dict[str, list[MemorySample]] = {site.name: [] for site in demo.sites}
    while (now := time.monotonic() - started) <= seconds:
        demo.check()
        if not all(site.running for site in demo.sites):
            break
        for site in demo.sites:
            found[site.name].append(sample(site, now))
        time.sleep(_EVERY)
    return found


def sample(site: DemoSite, seconds: float) -> MemorySample:
    """Return what one site uses now."""
    assert site.process is not None
    return MemorySample(seconds, resident_kib(site.process.pid), site.ask()["round"])


def summarise(samples: list[MemorySample]) -> dict[str, Any]:
    """Return the memory at the quarters, and the slope over the last three quarters."""
    last = samples[-1].seconds
    quarters = [min(samples, key=lambda each: abs(each.seconds - part * last / 4)) for part in range(5)]
    steady = [each for each in samples if each.seconds >= last / 4]
    by_time = statistics.linear_regression([each.seconds for each in steady], [each.kib for each in steady])
    by_round = statistics.linear_regression([each.round for each in steady], [each.kib for each in steady])
    return {
        "minutes": round(last / 60, 1),
        "rounds": samples[-1].round,
        "mib_at_quarters": [round(each.kib / 1024, 1) for each in quarters],
        "mib_per_hour": round(by_time.slope * 3600 / 1024, 2),
        "bytes_per_round": round(by_round.slope * 1024, 1),
    }


def main() -> None:
    """Run, and print what was found as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peer_soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=200_000, help="planned; more than fit into the time")
    given = parser.parse_args()
    config = RunConfig.of({}, {**SETTINGS, "agents": given.sites, "rounds": given.rounds})
    with (
        tempfile.TemporaryDirectory(prefix="tacit-soak-") as folder,
        Demo.prepare(Path(folder) / "sites", config, evaluate_every=given.rounds) as demo,
    ):
        demo.start()
        found = watch(demo, 60 * given.minutes)
    print(json.dumps({name: summarise(samples) for name, samples in found.items()}, indent=1))


if __name__ == "__main__":
    main()
