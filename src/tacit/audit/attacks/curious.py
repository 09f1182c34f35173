"""Curious agents in a world, alone or as a coalition, and what their messages show of the others by linear algebra.

Whatever a coalition knows beyond the messages of its neighbourhood (its own masks, say) belongs here, so that every attack from
inside the graph has it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tacit.audit.attacks.world import World
from tacit.audit.linear.responses import Responses
from tacit.audit.linear.views import View
from tacit.errors import InvalidInput
from tacit.privacy import Plan, Sources
from tacit.privacy.accounting import Event


@dataclass(frozen=True, kw_only=True, eq=False)
class CuriousAgents:
    """Agents of a world who pool what they see.

    sources: where lots and noise of the runs come from; secret by default.
    """

    world: World
    observers: Sequence[int]
    sources: Sources | None = None

    def __post_init__(self) -> None:
        agents = self.world.data.agents
        if not self.observers or not set(self.observers) <= set(range(agents)):
            raise InvalidInput(f"observers is {list(self.observers)}; name at least one agent, from 0 to {agents - 1}")
        if self.world.graph is None:
            raise InvalidInput("observers need a graph; this world trains in one place")

    def refuse_target(self) -> None:
        """Refuse observers of whom one is the target."""
        if self.world.target in self.observers:
            raise InvalidInput(f"agent {self.world.target} is the target and cannot be an observer of itself")

    @cached_property
    def responses(self) -> Responses:
        """How all messages depend on the agents' noisy gradients."""
        assert self.world.graph is not None
        return Responses.of(self.world.algorithm, self.world.graph, rounds=self.world.rounds, lr=self.world.lr)

    @cached_property
    def view(self) -> View:
        """What the observers see."""
        sizes = zip(self.plan.noise_multipliers, self.plan.clips, self.plan.lot_sizes, strict=True)
        return self.responses.view(self.observers, noise=[sigma * clip / lot for sigma, clip, lot in sizes])

    @property
    def plan(self) -> Plan:
        """q and σ of every agent."""
        return self.world.plan

    @property
    def event(self) -> Event:
        """The target's mechanism, as stated."""
        return self.world.event
