"""Many small systems at once, as an audit trains them: 3 agents, 100 records each, lots of 10, the paper's ConvNet."""

import copy
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import count as counting
from multiprocessing import get_context

import networkx as nx
import torch
from opacus.grad_sample import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch import nn

import tacit
from benchmarks.report import Report, Row
from benchmarks.timing import Times, default_threads, take_turns, threads
from tacit.data import AgentData, DataSet
from tacit.io.memory import keep_pages
from tacit.models import convnet

AGENTS, RECORDS, LOT, ROUNDS, CLIP, SIGMA, LR = 3, 100, 10, 100, 1.0, 1.5, 0.05
SYSTEMS = 100
OURS_SPREAD = "ours_in_processes"


def made_up() -> AgentData:
    """Return random images of three classes, one class an agent."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(AGENTS * RECORDS, 1, 32, 32, generator=generator)
    targets = torch.arange(AGENTS).repeat_interleave(RECORDS)
    return DataSet.from_records(name="audit", train=(inputs, targets)).split(AGENTS, tacit.data.ByClass(1.0))


def our_systems(data: AgentData, systems: int) -> Callable[[], object]:
    """Return a way to train so many systems side by side."""
    seeds = counting()

    def train() -> object:
        return tacit.train_trials(
            systems,
            tacit.DSGD(),
            model=lambda: convnet((1, 32, 32), 10),
            data=data,
            privacy=tacit.Privacy(noise_multiplier=SIGMA, delta=1e-2, clip=CLIP, lot_size=LOT),
            rounds=ROUNDS,
            lr=LR,
            graph=nx.complete_graph(AGENTS),
            sources=tacit.Fast(next(seeds)),
            evaluate_every=ROUNDS,
            compile=True,
        )

    return train


def opacus_system(data: AgentData) -> Callable[[], None]:
    """Return the loop that one would write with Opacus: one system, agent by agent, then the average of neighbours."""
    images, labels = data.dataset.prepare(data.dataset.train.inputs), data.dataset.train.targets
    parts = [(images[index], labels[index]) for index in data.indices]
    loss = nn.CrossEntropyLoss()

    def train() -> None:
        start = convnet((1, 32, 32), 10)
        agents = []
        for _ in range(AGENTS):
            model = GradSampleModule(copy.deepcopy(start))
            plain = torch.optim.SGD(model.parameters(), lr=LR)
            agents.append(
                (model, DPOptimizer(plain, noise_multiplier=SIGMA, max_grad_norm=CLIP, expected_batch_size=LOT))
            )
        for _ in range(ROUNDS):
            for (model, optimizer), (inputs, targets) in zip(agents, parts, strict=True):
                lot = torch.rand(len(targets)) < LOT / RECORDS
                if lot.any():
                    optimizer.zero_grad()
                    loss(model(inputs[lot]), targets[lot]).backward()
                    optimizer.step()
            with torch.no_grad():
                for same in zip(*(model.parameters() for model, _ in agents), strict=True):
                    mean = torch.stack(same).mean(dim=0)
                    for each in same:
                        each.copy_(mean)

    return train


_side: Callable[[], object] | None = None


def _prepare(opacus: bool) -> None:
    global _side
    torch.set_num_threads(1)
    keep_pages()
    _side = opacus_system(made_up()) if opacus else our_systems(made_up(), SYSTEMS)


def _work(_: int) -> None:
    assert _side is not None
    _side()


@contextmanager
def _processes(count: int, *, opacus: bool) -> Iterator[Callable[[], object]]:
    """Yield a way to run one side in so many processes at once, one thread each."""
    with ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_prepare, initargs=(opacus,)) as pool:
        yield lambda: list(pool.map(_work, range(count)))


def run(turns: int) -> Report:
    """Time systems per second."""
    report = Report("audit", f"systems of {AGENTS} agents, {ROUNDS} rounds, lots of {LOT}; milliseconds a system")
    data, turns = made_up(), max(3, turns // 2)
    keep_pages()  # as `tacit audit` does; for both sides
    with threads(1):
        sides = {"ours": our_systems(data, SYSTEMS), "opacus_hooks": opacus_system(data)}
        _add(report, 1, Times(take_turns(sides, turns=turns).seconds, per={"ours": SYSTEMS}))
    cores = default_threads()
    if cores > 1:
        with threads(cores), _processes(cores, opacus=False) as ours, _processes(cores, opacus=True) as loops:
            sides = {
                "ours": our_systems(data, SYSTEMS),
                "opacus_hooks": opacus_system(data),
                OURS_SPREAD: ours,
                "opacus_hooks_in_processes": loops,
            }
            seconds = take_turns(sides, turns=turns).seconds
            per = {"ours": SYSTEMS, OURS_SPREAD: cores * SYSTEMS, "opacus_hooks_in_processes": cores}
            _add(report, cores, Times(seconds, per=per))
    report.note(f"ours: {SYSTEMS} systems side by side, with Fast noise; compiled before the clock starts")
    report.note(
        "in processes: as many as there are cores, one thread each, as `tacit audit` works; compared with each other"
    )
    return report


def _add(report: Report, count: int, times: Times) -> None:
    ratios = times.ratios()
    if OURS_SPREAD in ratios:
        ratios["opacus_hooks_in_processes"] /= ratios.pop(OURS_SPREAD)
    report.add(count, [Row(side, times.median(side) * 1e3, "ms") for side in times.seconds], ratios)
