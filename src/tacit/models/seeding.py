"""Torch's global random numbers, started from a seed for as long as a model is made or tried."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Start torch's global random numbers from a seed, and put them back as they were afterwards.

    Where there is nothing but a CPU, `torch.manual_seed` makes a note of every seed for devices that may come, with its caller's stack, and keeps
    them all. That takes longer than to seed, and memory for each model that is made.
    """
    with torch.random.fork_rng():
        seed_all = torch.manual_seed if torch.accelerator.is_available() else torch.default_generator.manual_seed
        seed_all(seed)
        yield
