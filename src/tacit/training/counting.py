"""How many queries and messages a run will make, found by playing it through.

An algorithm declares nothing about its cost. All its rounds are played with the hosted agents, their links, width, seed and
step sizes, but with an oracle that answers zero, and what it does is counted. Large models are played on shapes alone, so that no
number is computed, unless the rule reads values.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.algorithms import Algorithm
from tacit.errors import InvalidInput, RuleError, TacitError
from tacit.networks import Network
from tacit.privacy.votes import Ballot
from tacit.training.rounds import Play
from tacit.training.schedules import Schedule

# Makes a network of the hosted agents for tensors on a device; what neighbours send on it is not read.
Connect = Callable[[torch.device], Network]

_SHAPES, _NUMBERS = torch.device("meta"), torch.device("cpu")
_MOST_QUERIES = 1_000_000  # of a run; a rule that never stops asking is found in a minute
_FEW = 2**18  # numbers of all hosted agents with which playing is faster than on shapes
_REHEARSED = "This was a rehearsal with made-up answers, which counts its queries; no data was asked"
_MOST_NUMBERS = 2**22  # of the rows by which it is seen whether a rule mixes them


@dataclass(frozen=True, kw_only=True, eq=False)
class Cost:
    """What a run does: queries of each agent's data in every round, messages to each neighbour and vectors in them, bytes that each agent sends.

    asked: how many queries each round makes, gossip included.
    ballot: what teachers are asked in each query; None where queries are means over lots.
    """

    asked: tuple[int, ...]
    messages: int
    vectors_sent: int
    bytes_sent: NDArray[np.int64]
    ballot: Ballot | None = None

    @property
    def queries(self) -> int:
        """How many queries a run makes of each agent's data."""
        return sum(self.asked)


def count(
    algorithm: Algorithm[Any],
    rounds: int,
    schedule: Schedule,
    connect: Connect,
    seed: int,
    *,
    width: int = 1,
    dtype: torch.dtype = torch.float32,
    gossip_rounds: int = 0,
) -> Cost:
    """Play all rounds and return what they cost."""
    hosted = len(connect(_NUMBERS).hosted)
    for device in (_NUMBERS,) if hosted * width <= _FEW else (_SHAPES, _NUMBERS):
        network, oracle = connect(device), _Counting(0.0)
        theta = torch.zeros(len(network.hosted), width, dtype=dtype, device=device)
        try:
            play = _played(algorithm, theta, rounds, schedule, network, oracle, seed, rounds + gossip_rounds)
        except Exception as error:
            if device == _NUMBERS or (isinstance(error, TacitError) and not isinstance(error, RuleError)):
                raise
            continue  # it reads values, or does something that needs them
        return Cost(
            asked=tuple(oracle.asked),
            messages=play.messages,
            vectors_sent=play.vectors,
            bytes_sent=network.bytes_sent.copy(),
            ballot=oracle.ballot,
        )
    raise AssertionError("a play with numbers ends or fails")


def rows_to_check(agents: int, trials: int, width: int) -> tuple[int, int]:
    """Return how many agents of how many trials are enough to see whether a rule mixes rows of this width: all, or two or more."""
    most = max(2, _MOST_NUMBERS // width)
    return min(agents, most), min(trials, max(1, most // agents))


def check_rows_apart(
    algorithm: Algorithm[Any],
    rounds: int,
    schedule: Schedule,
    alone: Connect,
    seed: int,
    *,
    width: int,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Refuse a rule by which an agent reads another's row without an exchange: no wire would carry that.

    Two rounds are played on a network without links, twice, with another start of the first agent.
    """
    ends = []
    for first in (0.5, 2.0):
        network = alone(_NUMBERS)
        theta = torch.linspace(0.1, 1.0, len(network.hosted), dtype=dtype)[:, None].repeat(1, width) / width**0.5
        theta[0] = first / width**0.5
        play = _played(algorithm, theta, rounds, schedule, network, _Counting(0.3737), seed, min(rounds, 2))
        ends.append(play.state.theta)
    apart = [torch.nan_to_num(end[1:], nan=0.0) for end in ends]  # a step size that overflows shows nothing here
    if not torch.equal(*apart):
        raise InvalidInput(
            f"{type(algorithm).__name__}.round lets an agent read another's row without an exchange; rows belong to "
            "different agents, and only at.exchange may bring them together"
        )


def _played(
    algorithm: Algorithm[Any],
    theta: Tensor,
    rounds: int,
    schedule: Schedule,
    network: Network,
    oracle: "_Counting",
    seed: int,
    until: int,
) -> Play:
    try:
        play = Play(
            algorithm,
            theta,
            rounds=rounds,
            schedule=schedule,
            network=network,
            oracle=oracle,
            seed=seed,
            public_loss=lambda theta: theta.new_zeros(len(theta)),
            labelled_gradient=lambda theta, labels: torch.zeros_like(theta),
        )
        while play.round < until:
            before = oracle.queries
            play.advance()
            oracle.asked.append(oracle.queries - before)
    except RuleError as error:
        raise RuleError(f"{error}. {_REHEARSED}") from error.__cause__
    return play


class _Counting:
    """An oracle that counts, and answers a multiple of what it is asked at."""

    def __init__(self, answer: float) -> None:
        self._answer, self.queries = answer, 0
        self.asked: list[int] = []  # in each round
        self.ballot: Ballot | None = None

    def gradient(self, theta: Tensor) -> Tensor:
        self._count()
        return self._answer * theta

    def vote(self, theta: Tensor, ballot: Ballot) -> Tensor:
        self._count(ballot)
        return theta.new_zeros(len(theta), ballot.records)

    def _count(self, ballot: Ballot | None = None) -> None:
        if self.queries and ballot != self.ballot:
            raise InvalidInput(
                "the rule's queries are not all of one kind; a run asks either for votes of teachers, all alike, or for gradients and other means"
            )
        self.ballot = ballot
        self.queries += 1
        if self.queries > _MOST_QUERIES:
            raise InvalidInput(
                f"the rule asks more than {_MOST_QUERIES:,} times when it is played to be counted; does it repeat a query until the "
                "answer looks right? The number of queries must be known beforehand"
            )

    def query(self, per_sample: Any, *public: Tensor, width: int | None = None) -> Tensor:
        if not public:
            raise InvalidInput("a query needs at least one stacked tensor that its per-sample function reads")
        self._count()
        answer = public[0].new_zeros(len(public[0]), public[0].shape[1] if width is None else width)
        return answer + self._answer * public[0].reshape(len(answer), -1).mean(dim=1, keepdim=True)
