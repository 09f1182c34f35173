"""A system under attack: how it runs, and the record whose presence is in question.

With and without that record, the canary, everything else is the same: all public facts, q included, follow from declared sizes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import networkx as nx
import torch
from jaxtyping import Float
from torch import Tensor

from tacit.algorithms import Algorithm
from tacit.api import train_trials
from tacit.data import AgentData, Records
from tacit.data.records import concatenate
from tacit.errors import InvalidInput
from tacit.models import FlatModel
from tacit.models.functional import Loss, cross_entropy
from tacit.networks import StackedNetwork, Tap
from tacit.privacy import Compile, Plan, Privacy, Sources
from tacit.privacy.event import Event
from tacit.privacy.randomness import MaskSource, Source
from tacit.privacy.rounding import Discrete
from tacit.training.absences import Absences
from tacit.training.counting import count
from tacit.training.planning import settle_plan
from tacit.training.preparation import Model, connect, make_module, starts
from tacit.training.results import Result
from tacit.training.schedules import Schedule, as_schedule
from tacit.training.settings import Training


@dataclass(frozen=True)
class _From:
    """The same sources, starting at a later trial, so that no two batches draw the same."""

    sources: Sources
    first: int

    @property
    def secret(self) -> bool:
        return self.sources.secret

    def make(self, agents: int, trial: int = 0) -> Sequence[Source]:
        return self.sources.make(agents, self.first + trial)

    def make_masks(self, pairs: Sequence[tuple[int, int]], run: str, trial: int = 0) -> Sequence[MaskSource]:
        return self.sources.make_masks(pairs, run, self.first + trial)


@dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """A system under attack; the fields are those of `Training`.

    data: what the agents hold without the canary. They declare the same sizes with it.
    canary: one record, which the target either holds or does not hold.
    """

    algorithm: Algorithm[Any]
    model: Model
    loss: Loss = cross_entropy
    data: AgentData
    canary: Records
    target: int
    privacy: Privacy
    rounds: int
    lr: float | Sequence[float] | Schedule
    graph: nx.Graph | None
    compile: Compile = "auto"

    def __post_init__(self) -> None:
        tightest = "rdp" if isinstance(self.privacy.noise, Discrete) else "pld"
        if (self.privacy.adjacency, self.privacy.accountant) != ("add_remove", tightest):
            raise InvalidInput(
                f"ε is claimed by {self.privacy.accountant} under {self.privacy.adjacency} adjacency; attacks add or remove a "
                f"record and are compared with the tightest ε for that: use adjacency='add_remove' and accountant={tightest!r}"
            )
        if len(self.canary) != 1:
            raise InvalidInput(f"the canary has {len(self.canary)} records; it must be one")
        if self.target not in range(self.data.agents):
            raise InvalidInput(f"target is {self.target}; it must be an agent, from 0 to {self.data.agents - 1}")

    def data_with(self, records: Records) -> AgentData:
        """Return what the agents hold when the target also holds these records."""
        train = concatenate([self.data.dataset.train, records])
        indices = list(self.data.indices)
        indices[self.target] = torch.cat([indices[self.target], torch.arange(len(train) - len(records), len(train))])
        return replace(self.data, dataset=replace(self.data.dataset, train=train), indices=tuple(indices))

    def prepared(self, records: Records) -> Records:
        """Return records as models take them."""
        return Records(self.data.dataset.prepare(records.inputs), records.targets)

    @cached_property
    def plan(self) -> Plan:
        """q and σ of every agent, for as many queries as the rule asks."""
        links = {"agents": self.data.agents, "trials": 1, "rounds": self.rounds}
        (topology,) = connect(self.graph, "metropolis", allow_drift=False, **links)
        schedule = as_schedule(self.lr)
        cost = count(self.algorithm, self.rounds, schedule, lambda device: StackedNetwork(topology, device=device), 0)
        if cost.ballot is not None:
            raise InvalidInput(
                "this attack follows noisy sums of gradients, but the rule asks teachers for votes; `tacit audit votes` attacks those"
            )
        training = Training(data=self.data, **self.settings)
        width = FlatModel(make_module(self.model, 0), self.loss).size
        nobody = Absences((), self.data.agents)
        return settle_plan(training, self.data.sizes, cost.queries, [topology], nobody, schedule, width=width)

    @property
    def event(self) -> Event:
        """The target's mechanism, as stated."""
        return self.plan.event(self.target)

    @cached_property
    def direction(self) -> Float[Tensor, " params"]:
        """Where the canary's gradient points, in a world where that is the record itself."""
        record = self.canary.table[0].double().flatten()
        return record / record.norm()

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of a run, except for its data and sizes."""
        names = ("algorithm", "model", "loss", "privacy", "rounds", "lr", "graph", "compile")
        return {name: getattr(self, name) for name in names} | {"evaluate_every": self.rounds}

    def starts(self, model: FlatModel, trials: int, seed: int) -> Float[Tensor, "stack params"]:
        """Return where every agent of every trial starts, which is public."""
        return starts(model, self.model, seed=seed, trials=trials, agents=self.data.agents, same_start=True)

    def play(
        self, trials: int, *, present: bool, seed: int, sources: Sources | None = None, taps: Sequence[Tap] = ()
    ) -> list[Result]:
        """Train this many independent systems side by side; `seed + t` seeds the start and the seeded sources of trial t."""
        return train_trials(
            trials,
            data=self.data_with(self.canary) if present else self.data,
            sizes=self.data.sizes,
            seed=seed,
            sources=None if sources is None else _From(sources, seed),
            taps=taps,
            **self.settings,
        )
