"""One, two and four ranks with one thread each beside one process with two: a ConvNet among 20 agents, and an MLP among 10,000 on two graphs.

Two cores that are both busy are seldom twice as fast as one: they share memory, caches and often the units that compute. So two processes are timed, too,
that begin each round together and have half of the agents each, in a system of their own: nothing crosses between them, and no number of ranks
can be faster than they are. What ranks lose against these is ours.

Also what a network of ranks costs by itself: seconds of an all-to-all by its size, the share of a round that is spent waiting for rows, what
it gains that rows travel while gradients are computed, and the memory of a rank by the number of ranks. Rounds on several ranks are compared
with a model of them (`model`), whose constants are measured here, too.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping
from typing import NamedTuple

import torch.distributed as dist

from benchmarks import cluster_tables
from benchmarks.cluster_rank import LIMIT, SIZES
from benchmarks.report import Report, Row
from benchmarks.timing import default_threads

_SMALL, _LARGE = "40 KB", "30 MB"  # by which latency and bandwidth are known
CASES = ("convnet_20", "mlp_10000_ring", "mlp_10000_random")
Measured = list[list[dict[str, float]]]


class _Side(NamedTuple):
    """How many processes with how many threads play a case; `apart` is True where each has a part of the agents as a system of its own."""

    processes: int
    threads: int
    apart: bool = False

    def of(self, case: str) -> str:
        """Return the case as each process plays it."""
        if not self.apart:
            return case
        model, agents, *graph = case.split("_")
        return "_".join([model, str(int(agents) // self.processes), *graph]) + "__apart"


SIDES = {
    "one_thread": _Side(1, 1),
    "two_threads": _Side(1, 2),
    "two_apart": _Side(2, 1, apart=True),
    "two_ranks": _Side(2, 1),
    "four_ranks": _Side(4, 1),
}


def measure(case: str, ranks: int, threads: int, rounds: int) -> list[dict[str, float]]:
    """Return what every rank measured, each in a process of its own."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    shared = {"MASTER_PORT": str(store.port), "OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": "lo"}
    words = [sys.executable, "-m", "benchmarks.cluster_rank", case, str(ranks), str(rounds)]
    processes = [
        subprocess.Popen([*words, str(rank)], env=os.environ | shared, stdout=subprocess.PIPE, text=True)
        for rank in range(ranks)
    ]
    try:
        return [json.loads(process.communicate(timeout=LIMIT)[0]) for process in processes]
    finally:
        for process in processes:
            process.kill()


def constants(swaps: Mapping[str, float]) -> tuple[float, float]:
    """Return the latency of an all-to-all in seconds, and its bandwidth in bytes per second."""
    latency = swaps[_SMALL]
    return latency, (SIZES[_LARGE] - SIZES[_SMALL]) / max(swaps[_LARGE] - latency, 1e-9)


def model(agents_of_core: float, seconds_of_agent: float, bytes_of_rank: float, swaps: Mapping[str, float]) -> float:
    """Return the seconds of a round: computing on each core, then an all-to-all in which each rank sends `bytes_of_rank`, whose times by size are in `swaps`.

    `seconds_of_agent` holds for cores that are all busy. Ranks share the cores of a machine: more ranks than cores compute no faster.
    """
    latency, bandwidth = constants(swaps)
    return agents_of_core * seconds_of_agent + latency + bytes_of_rank / bandwidth


def run(turns: int) -> Report:
    """Time every case on one process with one and two threads, on two processes apart, and on two and four ranks, in turns.

    The MLP takes long, so it has a third of the turns.
    """
    report = Report("cluster", "DP-DSGD; seconds of a round, share of waiting, bytes that cross, peak memory of a rank")
    rows, ratios, swaps = list[Row](), dict[str, float](), dict[int, dict[str, float]]()
    for ranks in (2, 4):
        swapped = measure("swap", ranks, 1, 0)
        swaps[ranks] = {name: max(rank[name] for rank in swapped) for name in SIZES}
        rows += [Row(f"all_to_all_{ranks}_ranks_{name}", swaps[ranks][name] * 1e3, "ms") for name in SIZES]
    for case in CASES:
        of_case, of_ratios = compare(case, turns if case.startswith("convnet") else max(1, turns // 3), swaps)
        rows += of_case
        ratios |= of_ratios
    both = measure("mlp_2000_random__overlap", 2, 1, 42)
    ratios["overlap_at_once_divided_by_meanwhile"] = max(r["at_once"] for r in both) / max(r["seconds"] for r in both)
    report.add(1, rows + [Row(name, value, "") for name, value in ratios.items()], ratios)
    report.note(
        f"{default_threads()} cores. The ideal time of ranks is that of two processes apart. Waiting includes waiting for a rank that computes "
        "longer; nothing compiled"
    )
    values = {row.name: row.value for row in rows} | ratios
    report.note(cluster_tables.as_markdown(CASES, values, constants(swaps[2])))
    return report


def compare(case: str, turns: int, swaps: Mapping[int, Mapping[str, float]]) -> tuple[list[Row], dict[str, float]]:
    """Return the times and memory of one case on all sides, and how they compare with each other and with the model."""
    found: dict[str, Measured] = {name: [] for name in SIDES}
    for _ in range(turns):
        for name, side in SIDES.items():
            rounds = 7 if case.startswith("mlp") else 22
            found[name].append(measure(side.of(case), side.processes, side.threads, rounds))
    times = {name: _median([max(r["seconds"] for r in each) for each in found[name]]) for name in SIDES}
    busy = {name: _median([sum(r["busy"] for r in each) for each in found[name]]) for name in SIDES}
    agents, cores = int(case.split("_")[1]), default_threads()
    of_agent = times["two_apart"] / (agents / SIDES["two_apart"].processes)
    rows, ratios = [Row(f"{case}_{name}", times[name] * 1e3, "ms") for name in SIDES], dict[str, float]()
    rows.append(Row(f"{case}_agent", of_agent * 1e6, "µs"))
    for name, side in SIDES.items():
        if name != "one_thread":
            ratios[f"{case}_speedup_of_{name}"] = times["one_thread"] / times[name]
            ratios[f"{case}_processor_time_of_{name}"] = busy[name] / busy["one_thread"]
        if name not in ("two_threads", "two_apart"):
            most = max(rank["memory"] for each in found[name] for rank in each)
            rows.append(Row(f"{case}_memory_{name}", most / 2**20, "MiB"))
        if side.processes > 1 and not side.apart:
            first = found[name][0]
            rows.append(Row(f"{case}_crossed_{name}", sum(rank["crossed"] for rank in first) / 1e6, "MB"))
            ratios[f"{case}_divided_by_ideal_{name}"] = times[name] / times["two_apart"]
            of_core = agents / min(side.processes, cores)
            crossed = max(rank["crossed"] for rank in first)
            predicted = model(of_core, of_agent, crossed, swaps[side.processes])
            rows.append(Row(f"{case}_model_{name}", predicted * 1e3, "ms"))
            ratios[f"{case}_measured_divided_by_model_{name}"] = times[name] / predicted
            waiting = [rank["waiting"] / rank["seconds"] for each in found[name] for rank in each]
            ratios[f"{case}_share_of_waiting_{name}"] = _median(waiting)
    return sorted(rows), ratios


def _median(values: list[float]) -> float:
    return statistics.median(values)
