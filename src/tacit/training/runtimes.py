"""Where the agents of a session live. Nothing above a runtime knows whether a process hosts all of them, some or one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from tacit.errors import InvalidInput
from tacit.networks import Network, StackedNetwork, Tap, Topology, Transport, WiredNetwork


class Hosted(NamedTuple):
    """Which agents a process hosts, by their numbers, out of how many."""

    agents: tuple[int, ...]
    total: int


class Runtime(Protocol):
    """Which agents are hosted here, how they reach the others, and what can be had of those.

    A session's data are those of the hosted agents, in their order. Everything else about the others is public: how many
    there are, what they declare, and who talks to whom.
    """

    @property
    def trials(self) -> int:
        """How many independent systems lie side by side."""

    def host(self, parts: int) -> Hosted:
        """Return who is hosted, given for how many agents there are records here."""

    def connect(
        self,
        topologies: Sequence[Topology],
        *,
        dtype: torch.dtype,
        device: torch.device,
        taps: Sequence[Tap],
        any_order: bool,
    ) -> Network:
        """Return the network of the hosted agents."""

    def gather(self, rows: Float[Tensor, "rows params"]) -> Float[Tensor, "agents params"] | None:
        """Return all agents' rows of something public, or None where nobody collects them."""


@dataclass(frozen=True)
class Stacked:
    """All agents in one process, of several trials side by side."""

    trials: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.trials, int) or self.trials < 1:
            raise InvalidInput(f"trials is {self.trials!r}; it must be a whole number, at least 1")

    def host(self, parts: int) -> Hosted:
        """Return all agents."""
        return Hosted(tuple(range(parts)), parts)

    def connect(
        self,
        topologies: Sequence[Topology],
        *,
        dtype: torch.dtype,
        device: torch.device,
        taps: Sequence[Tap],
        any_order: bool,
    ) -> Network:
        """Return a network whose exchanges are sums over rows."""
        return StackedNetwork(
            topologies, trials=self.trials, dtype=dtype, device=device, taps=taps, any_order=any_order
        )

    def gather(self, rows: Float[Tensor, "rows params"]) -> Float[Tensor, "agents params"]:
        """Return the rows: everybody's are here."""
        return rows


@dataclass(frozen=True)
class Wired:
    """One agent out of `agents`, joined to its neighbours by a transport."""

    agent: int
    agents: int
    transport: Transport
    trials = 1

    def __post_init__(self) -> None:
        if not 0 <= self.agent < self.agents:
            raise InvalidInput(f"agent {self.agent} is not among {self.agents}, which are numbered from 0")

    def host(self, parts: int) -> Hosted:
        """Return the one agent."""
        if parts != 1:
            raise InvalidInput(f"one agent is hosted here, and the data is that of {parts}; give its own alone")
        return Hosted((self.agent,), self.agents)

    def connect(
        self,
        topologies: Sequence[Topology],
        *,
        dtype: torch.dtype,
        device: torch.device,
        taps: Sequence[Tap],
        any_order: bool,
    ) -> Network:
        """Return a network that sends and receives bytes."""
        if any_order:
            raise InvalidInput("any_order lets a matrix product choose; an agent by itself adds up in one order only")
        (topology,) = topologies
        return WiredNetwork(self.agent, topology, self.transport, device=device, taps=taps)

    def gather(self, rows: Float[Tensor, "rows params"]) -> None:
        """Return nothing: nobody collects all models."""
        return
