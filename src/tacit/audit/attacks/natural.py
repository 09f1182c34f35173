"""The curious neighbour again, with a record as it might be: its gradient changes with θ and is not alone in its direction.

An observer of the target's whole neighbourhood reconstructs every answer and every point θ at which the target was asked.
There it computes the record's gradient, and looks along it. It is the informed attacker that differential privacy means: it
knows all other records of the target, though not which of them were drawn, and allows for what they add in that direction.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import networkx as nx
import numpy as np
from jaxtyping import Float
from torch import Tensor

from tacit.audit.attacks.collecting import Scores
from tacit.audit.attacks.one_run_scores import likelihoods
from tacit.audit.attacks.worlds import World, plan_of
from tacit.audit.linear.responses import Responses
from tacit.audit.linear.views import View
from tacit.data import Records
from tacit.errors import InvalidInput
from tacit.models import FlatModel
from tacit.privacy import Plan, Sources
from tacit.privacy.accounting import Event


@dataclass(frozen=True, kw_only=True, eq=False)
class NaturalNeighbor:
    """Observers who see the whole neighbourhood of the target in any world whose rule is linear."""

    world: World
    observers: Sequence[int]
    sources: Sources | None = None

    def __post_init__(self) -> None:
        if self.world.target in self.observers:
            raise InvalidInput(f"agent {self.world.target} is the target and cannot be an observer of itself")
        if not bool(self.view.exact(self.world.target).all()):
            raise InvalidInput(
                f"the observers {list(self.observers)} do not see all of agent {self.world.target}'s answers; with a natural "
                "record they must, since its gradient depends on where the target was asked. Let all of its neighbours observe"
            )

    @cached_property
    def _responses(self) -> Responses:
        graph = self.world.graph
        if not isinstance(graph, nx.Graph):
            raise InvalidInput("a curious neighbour needs a graph to sit in")
        return Responses.of(self.world.algorithm, graph, rounds=self.world.rounds, lr=self.world.lr)

    @cached_property
    def view(self) -> View:
        """What the observers see."""
        return self._responses.view(self.observers)

    @cached_property
    def plan(self) -> Plan:
        """What the agents promise."""
        return plan_of(self.world, self.view.queries)

    @property
    def event(self) -> Event:
        """The target's mechanism, as it is stated."""
        return self.plan.event(self.world.target)

    def scores(self, trials: int, *, present: bool, seed: int) -> Scores:
        """Play so many runs and score each. A run's messages are kept until it is scored."""
        world = self.world
        sent: list[tuple[Tensor, ...]] = []
        results = world.play(trials, present=present, seed=seed, sources=self.sources, taps=[sent.append])
        model = results[0].model
        begun = world.starts(model, trials, seed)
        ratios = []
        for trial, result in enumerate(results):
            own = slice(trial * world.data.agents, (trial + 1) * world.data.agents)
            messages = [tuple(tensor[own] for tensor in tensors) for tensors in sent]
            seen = self.view.arrange(messages, begun[own], models=result.theta)[0]
            ratios.append(self._ratio(model, seen, begun[own].double()))
        return {"likelihood": np.array(ratios)}

    def _ratio(
        self, model: FlatModel, seen: Float[Tensor, "seen params"], begun: Float[Tensor, "agents params"]
    ) -> float:
        """Return the log-likelihood ratio of one run."""
        weights, from_starts = self._points
        points = (weights @ seen + from_starts @ begun).to(model.dtype)
        told = zip(points, self._answers @ seen, strict=True)
        return float(likelihoods(model, *self._records, told, self.plan, self.world.target))

    @cached_property
    def _records(self) -> tuple[Records, Records]:
        """The canary, and all other records of the target."""
        data, prepare = self.world.data, self.world.data.dataset.prepare
        held = data.dataset.train.take(data.indices[self.world.target])
        canary = self.world.canary
        return Records(prepare(canary.inputs), canary.targets), Records(prepare(held.inputs), held.targets)

    @cached_property
    def _answers(self) -> Tensor:
        return self.view.recover(self.world.target)

    @cached_property
    def _points(self) -> tuple[Tensor, Tensor]:
        rows, from_starts = self._responses.points(self.world.target)
        return self.view.rebuild(rows), from_starts
