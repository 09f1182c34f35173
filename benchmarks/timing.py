"""Sides of a comparison, timed in turns: machines are noisy, so only ratios of medians from one process say anything."""

import ctypes
import gc
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch


@dataclass(frozen=True)
class Times:
    """Seconds of every side, in the order in which they were taken."""

    seconds: Mapping[str, list[float]]
    ours: str = "ours"
    per: Mapping[str, float] = field(default_factory=dict)
    """How much work one turn of a side does, where sides differ."""

    def median(self, side: str) -> float:
        """Return the median seconds of one unit of work."""
        return statistics.median(self.seconds[side]) / self.per.get(side, 1.0)

    def ratios(self) -> dict[str, float]:
        """Return every rival's time divided by ours."""
        return {side: self.median(side) / self.median(self.ours) for side in self.seconds if side != self.ours}


def take_turns(sides: Mapping[str, Callable[[], object]], *, turns: int, warm: int = 1) -> Times:
    """Run every side `turns` times, one after another in each turn, after some turns that are not counted."""
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(warm + turns):
        for side, run in sides.items():
            gc.collect()
            started = time.perf_counter()
            run()
            if turn >= warm:
                seconds[side].append(time.perf_counter() - started)
    return Times(seconds)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Use this many threads meanwhile."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def default_threads() -> int:
    """Return how many threads torch would use by itself."""
    return len(os.sched_getaffinity(0))


def peak_bytes() -> int:
    """Return the most memory that this process has held since `forget_peak`, or since it began."""
    return _status("VmHWM")


def held_bytes() -> int:
    """Return the memory that this process holds now."""
    return _status("VmRSS")


def give_back() -> None:
    """Give memory that is free but held back to the system, so that a step cannot use it uncounted."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def forget_peak() -> None:
    """Let the peak begin anew at what is held now."""
    Path("/proc/self/clear_refs").write_text("5")


def _status(key: str) -> int:
    # Not getrusage: its peak is inherited from the process that started this one.
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key))
    return int(line.split()[1]) * 1024
