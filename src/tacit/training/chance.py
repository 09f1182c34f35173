"""Public randomness: numbers that follow from the run's seed, the round and the agent, the same wherever the agent is hosted."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

_EVERYBODY = 2**64 - 1  # instead of an agent's number


def chance(
    seed: int, agents: Sequence[int], round: int, draw: int, shape: tuple[int, ...], dtype: torch.dtype
) -> Tensor:
    """Return numbers from [0, 1), a row for each agent: those of its `draw`-th draw in this round."""
    return torch.stack([_row(seed, agent, round, draw, shape, dtype) for agent in agents])


def shared_chance(seed: int, round: int, draw: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Return numbers from [0, 1) that all agents have in common."""
    return _row(seed, _EVERYBODY, round, draw, shape, dtype)


def _row(seed: int, agent: int, round: int, draw: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    # The first word of the counter counts the numbers of one draw.
    key, counter = np.array([seed, agent], dtype=np.uint64), np.array([0, draw, round, 0], dtype=np.uint64)
    source = np.random.Philox(key=key, counter=counter)
    kind = np.float64 if dtype == torch.float64 else np.float32
    return torch.from_numpy(np.random.Generator(source).random(shape, dtype=kind)).to(dtype)
