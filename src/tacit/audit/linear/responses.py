"""How every message of a run depends on the agents' noisy gradients, found by playing its rule with impulses.

Most rules are linear in what the oracle answers and in where the agents start, coordinate by coordinate. Their rounds are played on
the run's own graph with impulses for answers and starts: every parameter stands for one answer of one agent, or for one agent's
start. What is then sent is the whole linear map. Nothing here sees data.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn, Self

import networkx as nx
import torch
from jaxtyping import Float
from scipy import sparse
from torch import Tensor

from tacit.algorithms import Algorithm
from tacit.audit.linear.views import View
from tacit.errors import InvalidInput, NotLinear
from tacit.networks import DENSE, Codec, StackedNetwork, TableInbox, Tap, Topology
from tacit.privacy.votes import Ballot
from tacit.training.counting import count
from tacit.training.preparation import connect
from tacit.training.rounds import Play
from tacit.training.schedules import Schedule, as_schedule

Hears = Literal["neighbours", "all"]
"""Whose messages observers see."""

_TOLERANCE = 1e-9
_MOST_BYTES = 4 * 2**30


@dataclass(frozen=True, kw_only=True, eq=False)
class Responses:
    """The linear map from answers and starts to messages. It is played again for every view, and only that part is kept.

    `vectors` is the total number of vectors that an agent sends. With `chance` the rule draws public randomness, and the map is that
    of a single trial with this seed.
    """

    algorithm: Algorithm[Any]
    rounds: int
    schedule: Schedule
    topology: Topology
    seed: int
    queries: int
    vectors: int
    chance: bool = False

    @classmethod
    def of(
        cls,
        algorithm: Algorithm[Any],
        graph: nx.Graph | Topology,
        *,
        rounds: int,
        lr: float | Sequence[float] | Schedule,
        mixing: str | sparse.csr_array = "metropolis",
        allow_drift: bool = False,
        seed: int = 0,
    ) -> Self:
        """Play the rule with settings as in `Training`; raise `NotLinear` where it is not linear."""
        agents = len(graph) if isinstance(graph, nx.Graph) else graph.agents
        (topology,) = connect(graph, mixing, allow_drift=allow_drift, agents=agents, trials=1, rounds=rounds)
        schedule = as_schedule(lr)
        cost = count(algorithm, rounds, schedule, lambda device: StackedNetwork(topology, device=device), seed)
        responses = cls(
            algorithm=algorithm,
            rounds=rounds,
            schedule=schedule,
            topology=topology,
            seed=seed,
            queries=cost.queries,
            vectors=cost.vectors_sent,
        )
        responses._check_size(seen=0)
        return replace(responses, chance=responses._check_linear())

    @property
    def agents(self) -> int:
        """The number of agents."""
        return self.topology.agents

    def view(
        self,
        observers: Collection[int],
        *,
        final: bool = True,
        answers: bool = False,
        noise: Sequence[float] | None = None,
        covariance: Float[Tensor, "agents agents"] | None = None,
        hears: Hears = "neighbours",
        rounding: float = 1e-7,
    ) -> View:
        """Return what curious agents see together: every message that they or their neighbours sent, or all messages.

        final: whether they also see their neighbours' final models, which are published, or would be sent next. Without them, the
            last answers of most rules never show.
        answers: whether their own oracles' answers are among the rows. These add nothing about the others, who depend on them only
            through messages.
        noise: the size of each agent's noise relative to the others'; equal by default. Information on an agent is in units of it.
        covariance: that of the agents' noise where it is not independent: with masks, except those that the observers know.
        hears: whose messages they see: those of neighbours, or of all agents.
        rounding: the error of a message relative to the noise in it. Anything smaller cannot be seen.
        """
        watching = sorted(set(observers))
        if not watching or not set(watching) <= set(range(self.agents)):
            raise InvalidInput(f"observers is {observers!r}; name at least one agent, from 0 to {self.agents - 1}")
        sizes = torch.as_tensor([1.0] * self.agents if noise is None else list(noise), dtype=torch.float64)
        if sizes.shape != (self.agents,) or not ((sizes > 0) & sizes.isfinite()).all():
            raise InvalidInput(f"noise is {noise!r}; it must be a positive number for each of {self.agents} agents")
        if not 0 < rounding < 1:
            raise InvalidInput(f"rounding is {rounding}; it must lie between 0 and 1")
        together = torch.diag(sizes.square()) if covariance is None else torch.as_tensor(covariance).to(torch.float64)
        if together.shape != (self.agents, self.agents) or torch.linalg.cholesky_ex(together).info:
            raise InvalidInput(f"covariance must be a positive definite matrix for {self.agents} agents")
        members = list(range(self.agents)) if hears == "all" else sorted({*watching, *self._heard_by(watching)})
        self._check_size(seen=len(members) * (self.vectors + final) + len(watching) * self.queries * answers)
        kept: list[tuple[Tensor, ...]] = []
        end, _ = self._play(self._impulse, lambda sent: kept.append(tuple(each[members] for each in sent)))
        parts = [tensor for sent in kept for tensor in sent]
        parts += [end[members]] if final else []
        parts += [self._impulse(number)[watching] for number in range(self.queries)] if answers else []
        matrix, starts = self._split(torch.cat(parts))
        return View(
            observers=tuple(watching),
            members=tuple(members),
            slots=tuple(len(sent) for sent in kept),
            final=final,
            answers=answers,
            matrix=matrix,
            starts=starts,
            noise=sizes,
            covariance=together,
            rounding=rounding,
            chance=self.chance,
        )

    def points(self, target: int) -> tuple[Float[Tensor, "queries answers"], Float[Tensor, "queries agents"]]:
        """Return how the points θ at which the target is asked depend on all agents' answers, and on their starts."""
        kept: list[Tensor] = []
        self._play(self._impulse, lambda sent: None, lambda theta: kept.append(theta[target].clone()))
        return self._split(torch.stack(kept))

    def _impulse(self, number: int) -> Tensor:
        """Return all agents' answers to a query, each 1 in its own column. The number after the last is the start."""
        answer = torch.zeros(self.agents, self.agents, self.queries + 1, dtype=torch.float64)
        answer[range(self.agents), range(self.agents), number] = 1
        return answer.flatten(1)

    def _split(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the columns of answers and those of starts."""
        both = rows.unflatten(1, (self.agents, self.queries + 1))
        return both[:, :, :-1].flatten(1), both[:, :, -1].clone()

    def _heard_by(self, watching: list[int]) -> set[int]:
        """Return the agents whom these hear in any round."""
        rounds = range(self.rounds if self.topology.period is None else min(self.rounds, self.topology.period))
        links = {id(each): each for number in rounds for each in self.topology.at(number)}
        return {int(near) for each in links.values() for near in each.heard[watching].indices}

    def _play(
        self, inputs: Callable[[int], Tensor], tap: Tap, on_query: Callable[[Tensor], None] = lambda theta: None
    ) -> tuple[Tensor, bool]:
        """Return the final models, and whether public randomness was drawn. `on_query` gets every θ that is asked at."""
        theta = inputs(self.queries)
        play = Play(
            self.algorithm,
            theta,
            rounds=self.rounds,
            schedule=self.schedule,
            network=_VectorNetwork(self, theta.shape, [tap]),
            oracle=_Impulses(self, inputs, on_query, theta.shape),
            seed=self.seed,
            public_loss=self._no_loss,
        )
        while play.round < self.rounds:
            play.advance()
        return play.state.theta, play.draws > 0

    def _no_loss(self, theta: Tensor) -> Tensor:
        raise self.refuse("asks for losses, which are not linear in the gradients")

    def refuse(self, reason: str) -> NotLinear:
        """Return the error that says why linear algebra cannot follow the rule."""
        return NotLinear(f"{self.algorithm} {reason}")

    def _check_linear(self) -> bool:
        """Play random answers of very different sizes and compare with the sum of impulses; return whether chance was drawn."""
        shape, generator = (self.agents, self.queries + 1, 3), torch.Generator().manual_seed(self.seed)
        mixture = torch.randn(shape, dtype=torch.float64, generator=generator) * torch.tensor([1e-3, 1.0, 1e3])
        sent: list[Tensor] = []
        end, _ = self._play(lambda number: mixture[:, number], sent.extend)
        sent.append(end)
        weights = mixture.flatten(0, 1)

        def compare(tensors: tuple[Tensor, ...]) -> None:
            for impulses in tensors:
                bound = _TOLERANCE * (impulses.abs() @ weights.abs()).amax(dim=0)
                if not ((sent.pop(0) - impulses @ weights).abs() <= bound).all():
                    raise self.refuse(
                        "is not linear in the gradients, parameter by parameter (or its values overflow at "
                        "this step size), so linear algebra cannot say what its messages show"
                    )

        end, chance = self._play(self._impulse, compare)
        compare((end,))
        return chance

    def _check_size(self, seen: int) -> None:
        size = 8 * self.agents * (self.queries + 1) * (4 * seen + 8 * self.agents)
        if size > _MOST_BYTES:
            raise InvalidInput(
                f"{seen} messages seen of {self.agents} agents with {self.queries} queries each would take "
                f"{size / 2**30:.1f} GiB; take fewer rounds, agents or observers"
            )


class _VectorNetwork(StackedNetwork):
    """A network in float64 that carries vectors like θ only, and nothing that is rounded on the way."""

    def __init__(self, run: Responses, shape: torch.Size, taps: Sequence[Tap]) -> None:
        super().__init__(run.topology, dtype=torch.float64, taps=taps)
        self._run, self._shape = run, shape

    def exchange(self, round: int, *tensors: Tensor, codec: Codec = DENSE) -> TableInbox:
        if any(tensor.shape != self._shape for tensor in tensors):
            raise self._run.refuse("sends values of another size than θ; only vectors like θ can be followed")
        if codec != DENSE:
            raise self._run.refuse(f"sends by {codec}, which is not linear")
        return super().exchange(round, *tensors)


class _Impulses:
    """An oracle that gives prescribed answers, wherever it is asked."""

    def __init__(
        self, run: Responses, inputs: Callable[[int], Tensor], on_query: Callable[[Tensor], None], shape: torch.Size
    ) -> None:
        self._run, self._inputs, self._on_query, self._shape, self._asked = run, inputs, on_query, shape, 0

    def gradient(self, theta: Tensor) -> Tensor:
        self._asked += 1
        if self._asked > self._run.queries:
            raise self._run.refuse("asks a number of queries that depends on the answers")
        self._on_query(theta)
        return self._inputs(self._asked - 1)

    def vote(self, theta: Tensor, ballot: Ballot) -> NoReturn:
        raise self._run.refuse("asks teachers for votes; only gradients can be followed")

    def query(self, per_sample: Any, *public: Tensor, width: int | None = None) -> Tensor:
        if (public[0].shape[1] if width is None else width) != self._shape[1]:
            raise self._run.refuse("asks for answers of another size than θ; only gradients can be followed")
        return self.gradient(public[0])
