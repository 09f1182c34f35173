"""Normals: ChaCha20's, those of the fast source, and torch's and numpy's own; nanoseconds each."""

from collections.abc import Callable

import numpy as np
import torch

from benchmarks.report import Report, Row
from benchmarks.timing import take_turns, threads
from tacit.privacy import Fast, Secret

COUNT = 38_424 * 8


def run(turns: int) -> Report:
    """Time blocks as long as eight agents' gradients."""
    report = Report("noise", f"blocks of {COUNT:,} normals; nanoseconds a normal")
    secret, fast = Secret().make(1)[0], Fast(0).make(1)[0]
    philox = np.random.Generator(np.random.Philox(0))
    sides: dict[str, Callable[[], object]] = {
        "ours": lambda: secret.next().normals(COUNT),
        "fast": lambda: fast.next().normals(COUNT),
        "numpy_philox": lambda: philox.standard_normal(COUNT),
        "torch_float64": lambda: torch.randn(COUNT, dtype=torch.float64),
        "torch_float32": lambda: torch.randn(COUNT),
    }
    with threads(1):
        times = take_turns(sides, turns=4 * turns)
    report.add(1, [Row(side, times.median(side) / COUNT * 1e9, "ns") for side in sides], times.ratios())
    return report
