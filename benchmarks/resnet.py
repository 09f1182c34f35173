"""ResNet-9 on CIFAR-shaped images, 2 agents with 32 records each: time, and peak memory of a process of its own."""

import subprocess
import sys
from collections.abc import Callable

import torch
from torch import nn

from benchmarks import rivals
from benchmarks.report import Report, Row
from benchmarks.step import made_up, our_step
from benchmarks.timing import default_threads, forget_peak, give_back, held_bytes, peak_bytes, take_turns, threads
from tacit.models import resnet9

AGENTS, RECORDS, CLIP, SIGMA = 2, 32, 10.0, 1.0
SIDES = ("ours", "opacus_hooks", "opacus_ghost", "non_private")


def make(side: str) -> Callable[[], object]:
    """Return one step of all agents."""
    torch.manual_seed(0)
    modules: list[nn.Module] = [resnet9((3, 32, 32), 100) for _ in range(AGENTS)]
    batches = made_up(AGENTS, RECORDS, (3, 32, 32), 100)
    if side == "ours":
        return our_step(modules, batches, compile=False)[0]
    if side == "non_private":
        return rivals.non_private(modules, batches)
    return getattr(rivals, side)(modules, batches, clip=CLIP, sigma=SIGMA)


def memory(side: str, count: int) -> tuple[float, float]:
    """Return the bytes that a step takes beyond what was held before it, and the most that its process ever held."""
    words = [sys.executable, "-m", "benchmarks.resnet", side, str(count)]
    step, process = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    return float(step), float(process)


def run(turns: int) -> Report:
    """Time all sides in turns, then weigh each by itself."""
    report = Report(
        "resnet", f"ResNet-9, {AGENTS} agents × {RECORDS} records of 3×32×32; milliseconds a step, peak memory"
    )
    for count in dict.fromkeys((1, default_threads())):
        with threads(count):
            times = take_turns({side: make(side) for side in SIDES}, turns=max(3, turns // 2))
        held = {side: memory(side, count) for side in SIDES}
        rows = [Row(side, times.median(side) * 1e3, "ms") for side in SIDES]
        ratios = times.ratios()
        for place, what in enumerate(("memory", "process")):
            rows += [Row(f"{what}_{side}", held[side][place] / 2**20, "MiB") for side in SIDES]
            ratios |= {f"{what}_{side}": held[side][place] / held["ours"][place] for side in SIDES[1:]}
        report.add(count, rows, ratios)
    report.note("memory: the most that a process held during two steps, less what it held before the first")
    report.note("process: the most that it ever held, with what it imports and what is checked before the first step")
    return report


def main() -> None:
    """Weigh one side in this process."""
    side, count = sys.argv[1], int(sys.argv[2])
    with threads(count):
        step = make(side)
        making = peak_bytes()
        give_back()
        before = held_bytes()
        forget_peak()
        step()
        step()
        print(peak_bytes() - before, max(making, peak_bytes()))


if __name__ == "__main__":
    main()
