"""Ten to ten thousand agents on a ring: an MLP of about 10,000 parameters, 64 records an agent, lots of 16."""

import statistics
import subprocess
import sys

import networkx as nx
import torch

import tacit
from benchmarks.report import Report, Row
from benchmarks.timing import default_threads, peak_bytes, threads
from tacit.data import DataSet
from tacit.models import mlp
from tacit.training.session import Session
from tacit.training.settings import Training

AGENTS = (10, 100, 1_000, 10_000)
RECORDS, LOT, FEATURES, HIDDEN = 64, 16, 64, (132,)


def make_session(agents: int, rounds: int) -> Session:
    """Return a run of DP-DSGD that is ready to be played."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(agents * RECORDS, FEATURES, generator=generator)
    targets = torch.randint(0, 10, (agents * RECORDS,), generator=generator)
    data = DataSet.from_records(name="scale", train=(inputs, targets)).split(agents, tacit.data.IID())
    training = Training(
        algorithm=tacit.DSGD(),
        model=lambda: mlp((FEATURES,), 10, HIDDEN),
        data=data,
        privacy=tacit.Privacy(noise_multiplier=2.0, delta=1e-5, clip=1.0, lot_size=LOT),
        rounds=rounds,
        lr=0.1,
        graph=nx.cycle_graph(agents),
        evaluate_every=rounds,
        compile=False,
    )
    return Session(training)


def measure(agents: int, count: int) -> tuple[float, int]:
    """Return seconds for one agent's round, and the peak memory, from a process of its own."""
    words = [sys.executable, "-m", "benchmarks.scale", str(agents), str(count)]
    seconds, memory = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    return float(seconds), int(memory)


def run(turns: int) -> Report:
    """Time rounds of every size, each in a process of its own so that memory is its own, sizes taking turns."""
    report = Report("scale", "DP-DSGD on a ring, MLP of 9,910 parameters; microseconds an agent and round, peak memory")
    for count in dict.fromkeys((1, default_threads())):
        found: dict[int, list[tuple[float, int]]] = {agents: [] for agents in AGENTS}
        for _ in range(max(3, turns // 2)):
            for agents in AGENTS:
                found[agents].append(measure(agents, count))
        times = {agents: statistics.median(seconds for seconds, _ in each) for agents, each in found.items()}
        rows = [Row(f"agents_{agents}", times[agents] * 1e6, "µs") for agents in AGENTS]
        rows += [Row(f"memory_{agents}", max(m for _, m in found[agents]) / 2**20, "MiB") for agents in AGENTS]
        ratios = {f"agents_{agents}": times[agents] / times[10] for agents in AGENTS}
        ratios |= {"10000_to_1000": times[10_000] / times[1_000]}
        report.add(count, rows, ratios)
    report.note("ratios: time of an agent's round, divided by that among 10 agents; secret noise, nothing compiled")
    return report


def main() -> None:
    """Measure one size in this process."""
    agents, count = map(int, sys.argv[1:])
    with threads(count):
        rounds = max(5, 2_000 // agents)
        session = make_session(agents, rounds)
        session.advance()
        before = session.seconds
        while session.round < rounds - 1:  # the last round looks at the models
            session.advance()
        print((session.seconds - before) / (rounds - 2) / agents, peak_bytes())


if __name__ == "__main__":
    main()
