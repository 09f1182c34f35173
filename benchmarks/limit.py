"""What is left on the table: the step's floating-point work as plain matrix products at this machine's own peak."""

from functools import partial

import torch

from benchmarks.report import Report, Row
from benchmarks.step import AGENTS, RECORDS, made_up, our_step
from benchmarks.timing import default_threads, take_turns, threads
from tacit.models import convnet

# Multiply-adds of one record in the paper's ConvNet: the convolution forward and its weight gradient; the first linear
# layer forward, its input gradient and its weight gradient; the second likewise.
CONVOLUTION, FIRST, SECOND = 28 * 28 * 3 * 25, 588 * 64, 64 * 10
MULTIPLY_ADDS = 2 * CONVOLUTION + 3 * FIRST + 3 * SECOND
SIDE = 1024


def run(turns: int) -> Report:
    """Time a large matrix product in float32 beside our step."""
    work = AGENTS * RECORDS * MULTIPLY_ADDS
    report = Report("limit", f"{2 * work / 1e9:.2f} GFLOP of the paper's MNIST step; milliseconds")
    for count in dict.fromkeys((1, default_threads())):
        with threads(count):
            torch.manual_seed(0)
            modules = [convnet((1, 32, 32), 10) for _ in range(AGENTS)]
            ours, _ = our_step(modules, made_up(AGENTS, RECORDS, (1, 32, 32), 10), compile=True)
            one, other = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
            times = take_turns({"ours": ours, "product": partial(torch.mm, one, other)}, turns=turns)
            peak = 2 * SIDE**3 / times.median("product")
            ideal = 2 * work / peak
            rows = [
                Row("ours", times.median("ours") * 1e3, "ms"),
                Row("ideal", ideal * 1e3, "ms"),
                Row("peak", peak / 1e9, "GFLOP/s"),
                Row("reached", 2 * work / times.median("ours") / 1e9, "GFLOP/s"),
            ]
            report.add(count, rows, {"ideal": ideal / times.median("ours")})
    report.note("activations, pooling, clipping, noise and float64 sums are in ours and not in the ideal")
    return report
