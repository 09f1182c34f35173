"""The paper's MNIST step: 10 agents with 256 records each, one clipped and noised gradient of the paper's ConvNet."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import rivals
from benchmarks.report import Report, Row
from benchmarks.timing import default_threads, take_turns, threads
from tacit.models import FlatModel, convnet
from tacit.privacy import Secret, choose_engine
from tacit.privacy.gradients.clipping import Lot
from tacit.privacy.noise import GridNoise

AGENTS, RECORDS, CLIP, SIGMA = 10, 256, 10.0, 7.19


def made_up(agents: int, records: int, shape: Sequence[int], classes: int) -> list[tuple[Tensor, Tensor]]:
    """Return random batches, one for each agent."""
    generator = torch.Generator().manual_seed(0)
    return [
        (
            torch.randn(records, *shape, generator=generator),
            torch.randint(0, classes, (records,), generator=generator),
        )
        for _ in range(agents)
    ]


def our_step(
    modules: Sequence[nn.Module], batches: Sequence[tuple[Tensor, Tensor]], *, compile: bool
) -> tuple[Callable[[], Tensor], str]:
    """Return one step of all agents at once, with secret noise, and what engine it uses."""
    model = FlatModel(modules[0])
    theta = torch.stack([model.flatten(module) for module in modules])
    sizes = [len(targets) for _, targets in batches]
    inputs = torch.cat([inputs for inputs, _ in batches])
    lot = Lot(inputs, torch.cat([targets for _, targets in batches]), torch.tensor([0, *sizes]).cumsum(0))
    public = Lot(inputs[:7], lot.targets[:7], torch.tensor([0, 7]))
    chosen = choose_engine(
        model, theta[0], public, lot_sizes=[float(n) for n in sizes], queries=1, private=True, compile=compile
    )
    clip = torch.full((len(modules),), CLIP, dtype=torch.float64)
    sources = Secret().make(len(modules))
    noise = GridNoise(
        clips=clip.tolist(), noise_multipliers=[SIGMA] * len(modules), lot_sizes=sizes, device=theta.device
    )
    released = torch.empty_like(theta)

    def step() -> Tensor:
        with torch.no_grad():
            sums = chosen.engine.clipped_sums(theta, lot, clip).sums
            noise.release(sums, [source.next() for source in sources], [], slice(0, len(modules)), released)
            return theta.sub_(released, alpha=0.01)  # as the rivals step, too

    return step, chosen.why


def run(turns: int) -> Report:
    """Time ours, compiled and not, beside the rivals."""
    report = Report("step", f"{AGENTS} agents × {RECORDS} records, the paper's ConvNet; milliseconds a step")
    for count in dict.fromkeys((1, default_threads())):
        with threads(count):
            torch.manual_seed(0)
            modules: list[nn.Module] = [convnet((1, 32, 32), 10) for _ in range(AGENTS)]
            batches = made_up(AGENTS, RECORDS, (1, 32, 32), 10)
            ours, why = our_step(modules, batches, compile=True)
            eager, _ = our_step(modules, batches, compile=False)
            sides: dict[str, Callable[[], Any]] = {
                "ours": ours,
                "ours_uncompiled": eager,
                "opacus_hooks": rivals.opacus_hooks(modules, batches, clip=CLIP, sigma=SIGMA),
                "opacus_ghost": rivals.opacus_ghost(modules, batches, clip=CLIP, sigma=SIGMA),
                "non_private": rivals.non_private(modules, batches),
            }
            times = take_turns(sides, turns=turns)
            report.add(count, [Row(side, times.median(side) * 1e3, "ms") for side in sides], times.ratios())
            report.note(f"{count} threads: ours is {why}")
    return report
