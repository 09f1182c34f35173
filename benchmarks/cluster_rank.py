"""What one rank of the benchmark `cluster` measures, in a process of its own: `python -m benchmarks.cluster_rank CASE RANKS ROUNDS RANK`."""

import json
import os
import statistics
import sys
import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

import networkx as nx
import numpy as np
import torch
import torch.distributed as dist
from torch import nn

import tacit
from benchmarks.timing import peak_bytes
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
LIMIT = 900
"""Seconds that a measurement may take."""


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
    """Play one rank and return seconds of a round, of which waiting, processor seconds, bytes that left in a round, and peak memory.

    Of a case that ends in `__overlap`, every other round waits for its rows at once; `at_once` are the seconds of these rounds. In one that
    ends in `__apart`, processes begin each round together and exchange nothing: each has a system of its own.
    """
    case, _, kind = case.partition("__")
    overlap, apart = kind == "overlap", kind == "apart"
    training = _training(case, rounds)
    runtime = None
    if ranks > 1 and not apart:
        assert isinstance(training.graph, nx.Graph)
        agents = training.data.agents
        shards = place(as_topology(training.graph), ranks, np.ones(agents))[0].shards
        runtime = Sharded(shards, rank)
        training = replace(training, data=training.data.only(list(shards[rank])), sizes=training.data.sizes)
    waited = _count_waiting()
    session = Session(training, runtime)
    at_once = _wait_at_once() if overlap else [False]
    session.advance()
    waited[0], times, others, busy = 0.0, list[float](), list[float](), list[float]()
    before = session.network.bytes_crossed if isinstance(session.network, ShardedNetwork) else 0
    while session.round < rounds - 1:  # the last round looks at the models
        at_once[0] = overlap and session.round % 2 == 0
        if ranks > 1:
            dist.barrier()
        started, computed = time.perf_counter(), time.process_time()
        session.advance()
        (others if at_once[0] else times).append(time.perf_counter() - started)
        busy.append(time.process_time() - computed)
    crossed = session.network.bytes_crossed - before if isinstance(session.network, ShardedNetwork) else 0
    return {
        "seconds": statistics.median(times),
        "busy": statistics.median(busy),
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
    """Return seconds of an all-to-all by the number of bytes that every rank sends to all others together."""
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


def main() -> None:
    """Measure one rank in this process."""
    case, ranks, rounds, rank = sys.argv[1], *map(int, sys.argv[2:])
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    if ranks > 1:
        port = int(os.environ["MASTER_PORT"])
        store: Any = dist.TCPStore("127.0.0.1", port, is_master=False)
        limit = timedelta(seconds=LIMIT)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=limit)
    print(json.dumps(_swap(ranks) if case == "swap" else _play(case, rank, ranks, rounds)))
    if ranks > 1:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
