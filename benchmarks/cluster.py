"""One, two and four ranks with one thread each beside one process with two: a ConvNet among 20 agents, and an MLP among 10,000 on two graphs.

Also what a network of ranks costs by itself: seconds of an all-to-all by its size, the share of a round that is spent waiting for rows, what
it gains that rows travel while gradients are computed, and the memory of a rank by the number of ranks. Rounds on several ranks are compared
with a model of them (`model`), whose constants are measured here, too.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import networkx as nx
import numpy as np
import torch
import torch.distributed as dist
from torch import nn

import tacit
from benchmarks.report import Report, Row
from benchmarks.timing import default_threads, peak_bytes
from tacit.cluster import place
from tacit.data import DataSet
from tacit.models import convnet, mlp
from tacit.networks import as_topology
from tacit.networks.arriving import Arriving
from tacit.networks.codecs import Codec
from tacit.networks.sharded import ShardedNetwork
from tacit.training.runtimes import Sharded
from tacit.training.session import Session
from tacit.training.settings import Training

SIZES = {"40 KB": 40_000, "1 MB": 1_000_000, "30 MB": 30_000_000}
_SMALL, _LARGE = "40 KB", "30 MB"  # by which latency and bandwidth are known
CASES = ("convnet_20", "mlp_10000_ring", "mlp_10000_random")
_LIMIT = 900  # seconds that a measurement may take


def _training(case: str, rounds: int) -> Training:
    model, agents, graph = case.split("_")[0], int(case.split("_")[1]), case.rpartition("_")[2]
    chance = torch.Generator().manual_seed(0)
    shape, records, lot = ((1, 28, 28), 400, 64.0) if model == "convnet" else ((64,), 64, 16.0)
    inputs = torch.randn(agents * records, *shape, generator=chance)
    targets = torch.randint(0, 10, (agents * records,), generator=chance)
    data = DataSet.from_records(name=case, train=(inputs, targets)).split(agents, tacit.data.IID())

    def make() -> nn.Module:
        return convnet(shape, 10) if model == "convnet" else mlp(shape, 10, (132,))

    return Training(
        algorithm=tacit.DSGD(),
        model=make,
        data=data,
        privacy=tacit.Privacy(noise_multiplier=2.0, delta=1e-5, clip=1.0, lot_size=lot),
        rounds=rounds,
        lr=0.1,
        graph=nx.random_regular_graph(6, agents, seed=0) if graph == "random" else nx.cycle_graph(agents),
        evaluate_every=rounds,
        step_agents=max(1, round(256 / lot)),
        compile=False,
    )


def _play(case: str, rank: int, ranks: int, rounds: int) -> dict[str, float]:
    """Play one rank and return seconds of a round, of which waiting, bytes that left in a round, and peak memory.

    Of a case that ends in `_overlap`, every other round waits for its rows at once; `at_once` are the seconds of these rounds.
    """
    case, overlap = case.removesuffix("_overlap"), case.endswith("_overlap")
    training = _training(case, rounds)
    runtime = None
    if ranks > 1:
        assert isinstance(training.graph, nx.Graph)
        agents = training.data.agents
        shards = place(as_topology(training.graph), ranks, np.ones(agents))[0].shards
        runtime = Sharded(shards, rank)
        training = replace(training, data=training.data.only(list(shards[rank])), sizes=training.data.sizes)
    waited = _count_waiting()
    session = Session(training, runtime)
    at_once = _wait_at_once() if overlap else [False]
    session.advance()
    waited[0], times, others = 0.0, list[float](), list[float]()
    before = session.network.bytes_crossed if isinstance(session.network, ShardedNetwork) else 0
    while session.round < rounds - 1:  # the last round looks at the models
        at_once[0] = overlap and session.round % 2 == 0
        if ranks > 1:
            dist.barrier()
        started = time.perf_counter()
        session.advance()
        (others if at_once[0] else times).append(time.perf_counter() - started)
    crossed = session.network.bytes_crossed - before if isinstance(session.network, ShardedNetwork) else 0
    return {
        "seconds": statistics.median(times),
        "at_once": statistics.median(others or times),
        "waiting": waited[0] / len(times + others),
        "crossed": crossed / len(times + others),
        "memory": float(peak_bytes()),
    }


def _count_waiting() -> list[float]:
    """Add up, from now on, how long ranks wait for rows and read them."""
    waited, tables = [0.0], Arriving.tables

    def timed(self: Arriving) -> tuple[torch.Tensor, ...]:
        started = time.perf_counter()
        found = tables(self)
        waited[0] += time.perf_counter() - started
        return found

    Arriving.tables = timed  # type: ignore[method-assign]
    return waited


def _wait_at_once() -> list[bool]:
    """Return a switch that makes exchanges wait for other ranks' rows before anything else is computed."""
    switch, send = [False], ShardedNetwork.send

    def waiting(self: ShardedNetwork, over: Any, codec: Codec, tensors: tuple[torch.Tensor, ...]) -> Arriving:
        arriving = send(self, over, codec, tensors)
        if switch[0]:
            arriving.tables()
        return arriving

    ShardedNetwork.send = waiting  # type: ignore[method-assign]
    return switch


def _swap(ranks: int) -> dict[str, float]:
    """Return seconds of an all-to-all in which every rank sends so many bytes to all others together."""
    found = {}
    for name, size in SIZES.items():
        each = size // max(1, ranks - 1)
        splits = [0 if rank == dist.get_rank() else each for rank in range(ranks)]
        sent, arrived = torch.zeros(sum(splits), dtype=torch.uint8), torch.zeros(sum(splits), dtype=torch.uint8)
        times = []
        for _ in range(12):
            dist.barrier()
            started = time.perf_counter()
            dist.all_to_all_single(arrived, sent, splits, splits)
            times.append(time.perf_counter() - started)
        found[name] = statistics.median(times[2:])
    return found


def measure(case: str, ranks: int, threads: int, rounds: int) -> list[dict[str, float]]:
    """Return what every rank measured, each in a process of its own."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    shared = {"MASTER_PORT": str(store.port), "OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": "lo"}
    words = [sys.executable, "-m", "benchmarks.cluster", case, str(ranks), str(rounds)]
    processes = [
        subprocess.Popen([*words, str(rank)], env=os.environ | shared, stdout=subprocess.PIPE, text=True)
        for rank in range(ranks)
    ]
    try:
        return [json.loads(process.communicate(timeout=_LIMIT)[0]) for process in processes]
    finally:
        for process in processes:
            process.kill()


def model(alone: float, ranks: int, bytes_of_rank: float, swaps: Mapping[str, float]) -> float:
    """Return the seconds of a round on so many ranks, by what one takes alone and what an all-to-all of as many ranks takes by its size.

    Ranks share the cores of this machine: more ranks than cores compute no faster.
    """
    latency, long = swaps[_SMALL], swaps[_LARGE]
    bandwidth = (SIZES[_LARGE] - SIZES[_SMALL]) / max(long - latency, 1e-9)
    return alone / min(ranks, default_threads()) + latency + bytes_of_rank / bandwidth


def run(turns: int) -> Report:
    """Time every case on one process with one and two threads, and on two and four ranks, in turns."""
    report = Report("cluster", "DP-DSGD; seconds of a round, share of waiting, bytes that cross, peak memory of a rank")
    rows, ratios, swaps = list[Row](), dict[str, float](), dict[int, dict[str, float]]()
    for ranks in (2, 4):
        swapped = measure("swap", ranks, 1, 0)
        swaps[ranks] = {name: max(rank[name] for rank in swapped) for name in SIZES}
        rows += [Row(f"all_to_all_{ranks}_ranks_{name}", swaps[ranks][name] * 1e3, "ms") for name in SIZES]
    for case in CASES:
        of_case, of_ratios = compare(case, max(1, turns // 3), swaps)
        rows += of_case
        ratios |= of_ratios
    both = measure("mlp_2000_random_overlap", 2, 1, 42)
    ratios["overlap_at_once_divided_by_meanwhile"] = max(r["at_once"] for r in both) / max(r["seconds"] for r in both)
    report.add(1, rows + [Row(name, value, "") for name, value in ratios.items()], ratios)
    report.note(
        f"{default_threads()} cores: the ideal speedup of so many ranks is their number, but not more than that of cores. Waiting includes waiting "
        "for a rank that computes longer; nothing compiled"
    )
    return report


def compare(case: str, turns: int, swaps: Mapping[int, Mapping[str, float]]) -> tuple[list[Row], dict[str, float]]:
    """Return the times and memory of one case on all sides, and how they compare with each other and with the model."""
    sides = {"one_thread": (1, 1), "two_threads": (1, 2), "two_ranks": (2, 1), "four_ranks": (4, 1)}
    found: dict[str, list[list[dict[str, float]]]] = {side: [] for side in sides}
    for _ in range(turns):
        for side, (ranks, threads) in sides.items():
            found[side].append(measure(case, ranks, threads, 7 if case.startswith("mlp") else 12))
    times = {side: _median([max(r["seconds"] for r in each) for each in found[side]]) for side in sides}
    rows, ratios = [Row(f"{case}_{side}", times[side] * 1e3, "ms") for side in sides], dict[str, float]()
    for side, (ranks, _) in sides.items():
        if side != "one_thread":
            ratios[f"{case}_speedup_of_{side}"] = times["one_thread"] / times[side]
        if side != "two_threads":
            most = max(rank["memory"] for each in found[side] for rank in each)
            rows.append(Row(f"{case}_memory_{side}", most / 2**20, "MiB"))
        if ranks > 1:
            first = found[side][0]
            rows.append(Row(f"{case}_crossed_{side}", sum(rank["crossed"] for rank in first) / 1e6, "MB"))
            predicted = model(times["one_thread"], ranks, max(rank["crossed"] for rank in first), swaps[ranks])
            rows.append(Row(f"{case}_model_{side}", predicted * 1e3, "ms"))
            ratios[f"{case}_measured_divided_by_model_{side}"] = times[side] / predicted
            waiting = [rank["waiting"] / rank["seconds"] for each in found[side] for rank in each]
            ratios[f"{case}_share_of_waiting_{side}"] = _median(waiting)
    return sorted(rows), ratios


def _median(values: list[float]) -> float:
    return statistics.median(values)


def main() -> None:
    """Measure one rank in this process."""
    case, ranks, rounds, rank = sys.argv[1], *map(int, sys.argv[2:])
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    if ranks > 1:
        port = int(os.environ["MASTER_PORT"])
        store: Any = dist.TCPStore("127.0.0.1", port, is_master=False)
        limit = timedelta(seconds=_LIMIT)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=limit)
    print(json.dumps(_swap(ranks) if case == "swap" else _play(case, rank, ranks, rounds)))
    if ranks > 1:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
