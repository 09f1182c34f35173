"""Curious agents in a world, alone or as a coalition, and what their messages show of the others by linear algebra.

What a coalition knows beyond the messages that it hears belongs here, so that every attack from inside the graph has it: the masks
that its members share with others, which it subtracts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from tacit.audit.attacks.banded import band_matrix
from tacit.audit.attacks.known_masks import MaskRecorder, Pair, hidden_covariance, known_pairs
from tacit.audit.attacks.world import World
from tacit.audit.bounds.discrete import Grid
from tacit.audit.linear.responses import Hears, Responses
from tacit.audit.linear.views import View
from tacit.errors import InvalidInput
from tacit.models import FlatModel
from tacit.privacy import Observer, Plan, Secret, Sources
from tacit.privacy.event import Event


@dataclass(frozen=True, kw_only=True, eq=False)
class CuriousAgents:
    """Agents of a world who pool what they see.

    sources: where lots, noise and masks of the runs come from; secret by default.
    hears: whose messages they see: those of neighbours, or of all agents.
    """

    world: World
    observers: Sequence[int]
    sources: Sources | None = None
    hears: Hears = "neighbours"

    def __post_init__(self) -> None:
        agents = self.world.data.agents
        if not self.observers or not set(self.observers) <= set(range(agents)):
            raise InvalidInput(f"observers is {list(self.observers)}; name at least one agent, from 0 to {agents - 1}")
        if self.world.graph is None:
            raise InvalidInput("observers need a graph; this world trains in one place")

    def refuse_target(self) -> None:
        """Refuse the target as an observer."""
        if self.world.target in self.observers:
            raise InvalidInput(f"agent {self.world.target} is the target and cannot be an observer of itself")

    @cached_property
    def responses(self) -> Responses:
        """How all messages depend on the agents' noisy gradients."""
        assert self.world.graph is not None
        return Responses.of(self.world.algorithm, self.world.graph, rounds=self.world.rounds, lr=self.world.lr)

    @cached_property
    def own_noise(self) -> list[float]:
        """The size of every agent's own noise, in units of its answers."""
        sizes = zip(self.plan.noise_multipliers, self.plan.clips, self.plan.lot_sizes, strict=True)
        return [sigma * clip / lot for sigma, clip, lot in sizes]

    @cached_property
    def plain_view(self) -> View:
        """What the observers see of the others' answers, whose masks are part of them."""
        return self.responses.view(self.observers, noise=self.own_noise, hears=self.hears)

    @cached_property
    def view(self) -> View:
        """What the observers see, once they have subtracted the masks that they know. The unit is the target's own noise."""
        if self.plan.masks is None:
            return self.plain_view
        covariance = hidden_covariance(self.plan.masks, self.known)
        return self.responses.view(self.observers, noise=self.own_noise, covariance=covariance, hears=self.hears)

    @cached_property
    def weights(self) -> Float[Tensor, "queries seen"]:
        """Weights with which what is seen shows the target's answers, as well as possible."""
        return self.view.recover(self.world.target)

    @cached_property
    def known(self) -> frozenset[Pair]:
        """The pairs whose masks the observers know."""
        return frozenset() if self.plan.masks is None else known_pairs(self.plan.masks, self.observers)

    def play_along(
        self, direction: Float[Tensor, " params"], trials: int, *, present: bool, seed: int, sources: Sources | None
    ) -> tuple[FlatModel, list[tuple[Tensor, ...]], Float[Tensor, "stack 1"]]:
        """Play this many runs, and return their model, and along a direction all messages and the final models."""
        sent: list[tuple[Tensor, ...]] = []
        column = direction[:, None]
        taps = [lambda tensors: sent.append(tuple(tensor.double() @ column for tensor in tensors))]
        results = self.world.play(trials, present=present, seed=seed, sources=sources, taps=taps)
        return results[0].model, sent, torch.cat([result.theta for result in results]).double() @ column

    def watch(
        self, trials: int, *, present: bool, seed: int, direction: Float[Tensor, " params"]
    ) -> Float[Tensor, "trials seen"]:
        """Play this many runs, and return what is seen along a direction, without the masks that are known."""
        masks = self.plan.masks
        recorder = None if masks is None else MaskRecorder(self.sources or Secret(), self.known)
        sources = self.sources if recorder is None else recorder
        model, sent, models = self.play_along(direction, trials, present=present, seed=seed, sources=sources)
        starts = self.world.starts(model, trials, seed).double() @ direction[:, None]
        seen = self.view.arrange(sent, starts, models=models)[..., 0]
        if masks is None or recorder is None:
            return seen
        known = recorder.known(masks, range(seed, seed + trials), direction).expand(-1, -1, self.view.queries)
        if self.plan.bands:  # an answer has a part of the masks of earlier queries, too
            matrix = band_matrix(self.plan.bands, self.view.queries)
            known = torch.linalg.solve_triangular(matrix, known.mT, upper=False).mT
        return seen - known.flatten(1) @ self.view.matrix.T

    @property
    def plan(self) -> Plan:
        """q and σ of every agent."""
        return self.world.plan

    @property
    def grid(self) -> Grid | None:
        """The grid of the target's noise; None if it is not discrete."""
        return Grid.of(self.plan.mechanism(self.world.target))

    @property
    def event(self) -> Event:
        """The target's mechanism, as stated against this number of curious agents."""
        if self.plan.masks is None:
            return self.world.event
        return self.plan.mechanism(self.world.target).event(self.plan.queries, Observer(len(set(self.observers))))
