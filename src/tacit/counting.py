"""How much a run will ask and say, found by playing it through.

An algorithm declares nothing about its cost. All its rounds are played with the run's own agents, links, seed and step
sizes, but one parameter each and an oracle that answers zero, and what it does is counted.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.algorithms import Algorithm
from tacit.errors import InvalidInput
from tacit.networks import SimulatedInbox, SimulatedNetwork
from tacit.schedules import Schedule, step_size


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a run does: queries of each agent's data, and to each neighbour messages and vectors of θ's size."""

    queries: int
    messages: int
    vectors_sent: float


def count(algorithm: Algorithm[Any], rounds: int, schedule: Schedule, network: SimulatedNetwork, seed: int) -> Cost:
    """Play all rounds and return what they cost."""
    dummy = _DummyRound(network, rounds, schedule, seed)
    _play(algorithm, dummy, torch.zeros(dummy.rows, 1), rounds)
    return Cost(queries=dummy.queries, messages=dummy.messages, vectors_sent=dummy.numbers)


def check_rows_apart(
    algorithm: Algorithm[Any], rounds: int, schedule: Schedule, alone: SimulatedNetwork, seed: int
) -> None:
    """Refuse a rule by which an agent reads another's row without an exchange: no wire would carry that.

    Two rounds are played on a network without links, twice, with another start of the first agent.
    """
    ends = []
    for first in (0.5, 2.0):
        dummy = _DummyRound(alone, rounds, schedule, seed, answer=0.3737)
        theta = torch.linspace(0.1, 1.0, dummy.rows)[:, None].clone()
        theta[0] = first
        ends.append(_play(algorithm, dummy, theta, min(rounds, 2)))
    apart = [torch.nan_to_num(end[1:], nan=0.0) for end in ends]  # a step size that overflows tells nothing here
    if not torch.equal(*apart):
        raise InvalidInput(
            f"{type(algorithm).__name__}.round lets an agent read another's row without an exchange; rows belong to "
            "different agents, and only at.exchange may bring them together"
        )


def _play(algorithm: Algorithm[Any], dummy: "_DummyRound", theta: Tensor, rounds: int) -> Tensor:
    name = type(algorithm).__name__
    with torch.no_grad():
        state = algorithm.init(theta)
        for number in range(rounds):
            dummy.round = number
            state = algorithm.round(state, dummy)
            end = getattr(state, "theta", None)
            if not isinstance(end, Tensor) or end.shape != theta.shape:
                raise InvalidInput(
                    f"{name}.round must return a state whose theta is [agents, params], as it was given; in a play with "
                    f"{dummy.rows} agents of one parameter it returned {_described(end)}"
                )
    return state.theta


def _described(value: Any) -> str:
    return f"a theta of shape {tuple(value.shape)}" if isinstance(value, Tensor) else "a state without theta"


class _DummyRound:
    """A round that counts. Its oracle answers a multiple of what it is asked at, zero unless told otherwise."""

    def __init__(
        self, network: SimulatedNetwork, rounds: int, schedule: Schedule, seed: int, answer: float = 0.0
    ) -> None:
        self._network, self._rounds, self._schedule, self._answer = network, rounds, schedule, answer
        self.rows = network.trials * network.agents
        self.round = self.queries = self.messages = 0
        self.numbers = 0.0
        self.generator = torch.Generator().manual_seed(seed)

    @property
    def lr(self) -> float | Tensor:
        return step_size(self._schedule, self.round, self._rounds, torch.zeros(self.rows, 1))

    def gradient(self, theta: Tensor) -> Tensor:
        self.queries += 1
        return self._answer * theta

    def query(self, per_sample: Any, *public: Tensor, width: int | None = None) -> Tensor:
        if not public:
            raise InvalidInput("a query needs at least one stacked tensor that its per-sample function reads")
        self.queries += 1
        answer = torch.zeros(len(public[0]), public[0].shape[1] if width is None else width)
        return answer + self._answer * public[0].reshape(len(answer), -1).mean(dim=1, keepdim=True)

    def exchange(self, *tensors: Tensor) -> SimulatedInbox:
        self.messages += 1
        self.numbers += sum(tensor[0].numel() for tensor in tensors)
        return self._network.exchange(*tensors)
