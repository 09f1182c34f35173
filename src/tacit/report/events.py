"""The lines of a run's `events.jsonl` that a report reads, checked one by one."""

from collections.abc import Sequence
from functools import cached_property
from math import isfinite, nan
from typing import Annotated, Self

import networkx as nx
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from tacit.privacy import Accountant, Adjacency

# JSON has no word for what is not a finite number, so a writer may put null there.
_Number = Annotated[float, BeforeValidator(lambda value: nan if value is None else value)]
_Count = Annotated[int, Field(ge=0)]


class Event(BaseModel):
    """One line of `events.jsonl`; what a later version may add is ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Plan(Event):
    """What was settled before the first query; sequences hold one value for each agent."""

    time: str | None = None
    algorithm: str
    dataset: str
    agents: Annotated[int, Field(ge=1)]
    rounds: Annotated[int, Field(ge=1)]
    edges: tuple[tuple[_Count, _Count], ...]
    counts: tuple[tuple[_Count, ...], ...] | None = None
    """How many records of each class every agent holds."""
    sizes: tuple[_Count, ...]
    owners: tuple[str, ...]
    sample_rates: tuple[float, ...]
    lot_sizes: tuple[float, ...]
    clips: tuple[_Number, ...]
    noise_multipliers: tuple[_Number, ...]
    queries: _Count
    private: bool
    epsilon: tuple[float, ...] | None = None
    """What each agent may spend; None where σ was given and not ε."""
    delta: float | None = None
    adjacency: Adjacency | None = None
    accountant: Accountant | None = None
    release: bool
    params: _Count | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        each = ("counts", "sizes", "owners", "sample_rates", "lot_sizes", "clips", "noise_multipliers", "epsilon")
        check_lengths(self, each, self.agents)
        if any(agent >= self.agents for edge in self.edges for agent in edge):
            raise ValueError(f"an edge leads to an agent that is not among the {self.agents}")
        if self.counts is not None and len({len(row) for row in self.counts}) > 1:
            raise ValueError("counts has rows of different lengths")
        if self.private:
            if self.delta is None or self.adjacency is None or self.accountant is None:
                raise ValueError("a private run needs delta, adjacency and accountant")
            if not 0 < self.delta < 1:
                raise ValueError(f"delta is {self.delta}; it must lie strictly between 0 and 1")
            if not all(0 < rate <= 1 for rate in self.sample_rates):
                raise ValueError("a sample rate lies outside (0, 1]")
            if not all(sigma > 0 and isfinite(sigma) for sigma in self.noise_multipliers):
                raise ValueError("a noise multiplier of a private run is not positive and finite")
        return self

    @cached_property
    def graph(self) -> nx.Graph:
        """Who talks to whom, without loops."""
        graph = nx.empty_graph(self.agents)
        graph.add_edges_from((i, j) for i, j in self.edges if i != j)
        return graph


class Snapshot(Event):
    """The system after `round` rounds; sequences hold one value for each agent."""

    round: _Count
    queries: _Count
    accuracy: tuple[_Number, ...] | None = None
    loss: tuple[_Number, ...] | None = None
    consensus_distance: _Number
    bytes_sent: tuple[_Count, ...]
    seconds: float = 0.0
    lost_queries: _Count = 0
    """Queries charged before this snapshot whose answers a crash lost; kept by the reader, not in the file."""

    @property
    def spent(self) -> int:
        """All queries that each agent's data was asked: answered and lost."""
        return self.queries + self.lost_queries


class Resume(Event):
    """A run that was stopped goes on."""

    lost_queries: _Count = 0


class Checked(Event):
    """A check of the run's settings, by `tacit audit`."""

    checked: str
    verdict: str
    failed: tuple[str, ...] = ()
    false_alarm: float | None = None


class Finish(Event):
    """The last round is played."""

    seconds: float


def check_lengths(event: Event, names: Sequence[str], agents: int) -> None:
    """Refuse sequences that do not hold one value for each agent."""
    for name in names:
        value = getattr(event, name)
        if value is not None and len(value) != agents:
            raise ValueError(f"{name} has {len(value)} values for {agents} agents")
