"""Scoring all agents' models on the same public records: ours beside a plain loop over models and beside one `vmap` over them."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.func import vmap

from benchmarks.report import Report, Row
from benchmarks.timing import default_threads, take_turns, threads
from tacit.data import Records
from tacit.models import FlatModel, convnet, resnet9
from tacit.training.evaluation import evaluate

BATCH, VMAP_BATCH = 512, 64
CASES: dict[str, tuple[Callable[[], nn.Module], Sequence[int], int, int]] = {
    "convnet": (lambda: convnet((1, 32, 32), 10), (1, 32, 32), 20, 1024),
    "resnet9": (lambda: resnet9((3, 32, 32), 100), (3, 32, 32), 10, 64),
}


def sides(
    make: Callable[[], nn.Module], shape: Sequence[int], agents: int, count: int
) -> dict[str, Callable[[], object]]:
    """Return ways to score so many models on so many random records."""
    torch.manual_seed(0)
    model = FlatModel(make())
    theta = torch.stack([model.flatten(make()) for _ in range(agents)])
    inputs, targets = torch.randn(count, *shape), torch.randint(0, 10, (count,))

    def scored(theta: Tensor, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        outputs = model.outputs(theta, inputs)
        return model.losses_of(outputs, targets), outputs.argmax(dim=1)

    def batches(size: int) -> list[tuple[Tensor, Tensor]]:
        return list(zip(inputs.split(size), targets.split(size), strict=True))

    @torch.no_grad()
    def loop() -> object:
        return [scored(each, *batch) for batch in batches(BATCH) for each in theta]

    @torch.no_grad()
    def at_once() -> object:
        return [vmap(scored, in_dims=(0, None, None))(theta, *batch) for batch in batches(VMAP_BATCH)]

    def ours() -> object:
        return evaluate(model, theta, Records(inputs, targets), lambda prepared: prepared, classification=True)

    return {"ours": ours, "loop": loop, "vmap": at_once}


def run(turns: int) -> Report:
    """Time all ways in turns."""
    report = Report("scores", "all agents' models on the same records; microseconds for a model and a record")
    for count in dict.fromkeys((1, default_threads())):
        rows: list[Row] = []
        ratios: dict[str, float] = {}
        for name, (make, shape, agents, records) in CASES.items():
            with threads(count):
                times = take_turns(sides(make, shape, agents, records), turns=max(3, turns // 2))
            rows += [Row(f"{name}_{side}", times.median(side) / agents / records * 1e6, "µs") for side in times.seconds]
            ratios |= {f"{name}_{side}": ratio for side, ratio in times.ratios().items()}
        report.add(count, rows, ratios)
    report.note("20 ConvNets of the paper on 1,024 records, and 10 of ResNet-9 on 64")
    return report
