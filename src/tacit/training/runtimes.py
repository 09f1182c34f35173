"""Where the agents of a session live. Nothing above a runtime knows whether a process hosts all of them, some or one."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from tacit.errors import InvalidInput
from tacit.networks import Network, ShardedNetwork, StackedNetwork, Tap, Topology, Transport, WiredNetwork
from tacit.networks.arriving import rank_losses_reported
from tacit.networks.sharded import swap_rows


class Hosted(NamedTuple):
    """Which agents a process hosts, by their numbers, out of how many."""

    agents: tuple[int, ...]
    total: int


@dataclass(frozen=True, kw_only=True, eq=False)
class NetworkSettings:
    """What a session requires of its network: the type and place of tensors, who sees messages, and how sums are added."""

    dtype: torch.dtype
    device: torch.device
    taps: Sequence[Tap] = ()
    any_order: bool = False

    def require_order(self, who: str) -> None:
        """Raise if sums may be added in any order, which only a process with all agents can do."""
        if self.any_order:
            raise InvalidInput(f"any_order lets a matrix product choose; {who} in one order only")


class Runtime(Protocol):
    """Which agents are hosted here, how they reach the others, and what can be collected from those.

    A session's data are those of the hosted agents, in their order. Everything else about the others is public: how many
    there are, what they declare, and who talks to whom.
    """

    @property
    def trials(self) -> int:
        """How many independent systems lie side by side."""

    def host(self, parts: int) -> Hosted:
        """Return which agents are hosted; `parts` is the number of agents whose records are here."""

    def connect(self, topologies: Sequence[Topology], wanted: NetworkSettings) -> Network:
        """Return the network of the hosted agents."""

    def gather(self, rows: Float[Tensor, "rows params"]) -> Float[Tensor, "agents params"] | None:
        """Return all agents' rows of something public, or None if no process collects them."""


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

    def connect(self, topologies: Sequence[Topology], wanted: NetworkSettings) -> Network:
        """Return a network whose exchanges are sums over rows."""
        return StackedNetwork(
            topologies,
            trials=self.trials,
            dtype=wanted.dtype,
            device=wanted.device,
            taps=wanted.taps,
            any_order=wanted.any_order,
        )

    def gather(self, rows: Float[Tensor, "rows params"]) -> Float[Tensor, "agents params"]:
        """Return the rows: everybody's are here."""
        return rows


@dataclass(frozen=True)
class OneAgent(ABC):
    """One agent out of `agents`. A subclass joins it to its neighbours."""

    agent: int
    agents: int
    trials = 1

    def __post_init__(self) -> None:
        if not 0 <= self.agent < self.agents:
            raise InvalidInput(f"agent {self.agent} is not among {self.agents}, which are numbered from 0")

    def host(self, parts: int) -> Hosted:
        """Return the one agent."""
        if parts != 1:
            raise InvalidInput(f"one agent is hosted here, but the data is that of {parts}; give only its own")
        return Hosted((self.agent,), self.agents)

    def connect(self, topologies: Sequence[Topology], wanted: NetworkSettings) -> Network:
        """Return the network that joins the agent to its neighbours."""
        wanted.require_order("an agent by itself adds up")
        (topology,) = topologies
        return self.join(topology, wanted.device, wanted.taps)

    @abstractmethod
    def join(self, topology: Topology, device: torch.device, taps: Sequence[Tap]) -> Network:
        """Return the agent's network."""

    def gather(self, rows: Float[Tensor, "rows params"]) -> None:
        """Return nothing: nobody collects all models."""
        return


@dataclass(frozen=True)
class Wired(OneAgent):
    """One agent out of `agents`, joined to its neighbours by a transport."""

    transport: Transport

    def join(self, topology: Topology, device: torch.device, taps: Sequence[Tap]) -> Network:
        """Return a network that sends and receives bytes."""
        return WiredNetwork(self.agent, topology, self.transport, device=device, taps=taps)


@dataclass(frozen=True, eq=False)
class Sharded:
    """The agents of one rank, out of those of all ranks of a process group: torch's default group unless another is given.

    `shards` holds the agents of each rank, ascending. Rank 0 collects what is public.
    """

    shards: tuple[tuple[int, ...], ...]
    rank: int
    group: Any = None
    trials = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < len(self.shards):
            raise InvalidInput(f"rank {self.rank} is not among {len(self.shards)}, which are numbered from 0")

    def host(self, parts: int) -> Hosted:
        """Return this rank's agents."""
        own = self.shards[self.rank]
        if parts != len(own):
            raise InvalidInput(
                f"rank {self.rank} hosts {len(own)} agents, but the data is that of {parts}; give only theirs"
            )
        return Hosted(own, sum(map(len, self.shards)))

    def connect(self, topologies: Sequence[Topology], wanted: NetworkSettings) -> Network:
        """Return a network that sums over rows here and exchanges rows with the other ranks."""
        wanted.require_order("agents in several processes add up")
        (topology,) = topologies
        return ShardedNetwork(
            topology,
            self.shards,
            self.rank,
            group=self.group,
            dtype=wanted.dtype,
            device=wanted.device,
            taps=wanted.taps,
        )

    def gather(self, rows: Float[Tensor, "rows ..."]) -> Float[Tensor, "agents ..."] | None:
        """Return all agents' rows on rank 0, in the order of agents, and None elsewhere."""
        sizes = [len(own) for own in self.shards]
        to, come = ([len(rows), *[0] * (len(sizes) - 1)], sizes if self.rank == 0 else [0] * len(sizes))
        found = rows.new_empty(sum(come), *rows.shape[1:])
        with rank_losses_reported():
            swap_rows(rows.contiguous(), to, found, come, self.group).wait()
        if self.rank:
            return None
        place = torch.tensor([agent for own in self.shards for agent in own], device=rows.device).argsort()
        return found.index_select(0, place)
