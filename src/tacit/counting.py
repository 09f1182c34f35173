"""How much a run will ask and say, found by playing it through.

An algorithm declares nothing about its cost. All its rounds are played with two agents of one parameter each, an
oracle that answers zero and a network of one link, and what it does is counted.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tacit.algorithms import Algorithm
from tacit.errors import InvalidInput
from tacit.graphs import complete, mixing_matrix
from tacit.networks import SimulatedInbox, SimulatedNetwork
from tacit.schedules import Schedule


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a run does: queries of each agent's data, and to each neighbour messages and vectors of θ's size."""

    queries: int
    messages: int
    vectors_sent: float


def count(algorithm: Algorithm[Any], rounds: int, schedule: Schedule) -> Cost:
    """Play all rounds and return what they cost."""
    dummy = _DummyRound(rounds=rounds, schedule=schedule)
    with torch.no_grad():
        state = algorithm.init(torch.zeros(2, 1))
        for number in range(rounds):
            dummy.round = number
            state = algorithm.round(state, dummy)
    return Cost(queries=dummy.queries, messages=dummy.messages, vectors_sent=dummy.numbers)


@dataclass
class _DummyRound:
    rounds: int
    schedule: Schedule
    round: int = 0
    queries: int = 0
    messages: int = 0
    numbers: float = 0
    generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(0))

    def __post_init__(self) -> None:
        self._network = SimulatedNetwork(mixing_matrix(complete(2)))

    @property
    def lr(self) -> float:
        step = self.schedule(self.round, self.rounds)
        return float(step.flatten()[0]) if isinstance(step, Tensor) else step

    def gradient(self, theta: Tensor) -> Tensor:
        self.queries += 1
        return torch.zeros_like(theta)

    def query(self, per_sample: Any, *public: Tensor, width: int | None = None) -> Tensor:
        if not public:
            raise InvalidInput("a query needs at least one stacked tensor that its per-sample function reads")
        self.queries += 1
        return public[0].new_zeros(len(public[0]), public[0].shape[1] if width is None else width)

    def exchange(self, *tensors: Tensor) -> SimulatedInbox:
        self.messages += 1
        self.numbers += sum(tensor[0].numel() for tensor in tensors)
        return self._network.exchange(*tensors)
