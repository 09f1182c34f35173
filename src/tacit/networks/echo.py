"""A network whose neighbours echo an agent's own values: enough to count a rule's messages without other agents."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tacit.errors import InvalidInput
from tacit.networks.codecs import DENSE, Codec
from tacit.networks.interface import Messages, one_or_all, require_balance, require_one_exchange
from tacit.networks.topology import Links, Topology


class EchoNetwork:
    """Counts what the hosted agents send along each trial's topology. Weights sum to one, so a mix is the agent's own value."""

    def __init__(
        self,
        topologies: Sequence[Topology],
        hosted: Sequence[int],
        *,
        trials: int = 1,
        device: torch.device | None = None,
    ) -> None:
        self.trials, self._agents = trials, np.asarray(hosted, dtype=np.int64)
        self._topologies = list(topologies) * (trials if len(topologies) == 1 else 1)
        self.hosted = torch.as_tensor(self._agents, device=device).repeat(trials)
        self.bytes_sent = np.zeros(trials * len(self._agents), dtype=np.int64)

    def exchange(self, round: int, *tensors: Float[Tensor, "rows ..."], codec: Codec = DENSE) -> "EchoInbox":
        """Count one message to every neighbour in this round."""
        if not tensors:
            raise InvalidInput("an exchange needs at least one tensor to send")
        for tensor in tensors:
            if tensor.shape[0] != len(self.hosted):
                raise InvalidInput(f"an exchange got {tensor.shape[0]} rows for {len(self.hosted)} agents")
        each = [topology.at(round) for topology in self._topologies]
        if len({len(stages) for stages in each}) > 1:
            raise InvalidInput("the trials' topologies have different numbers of exchanges in a round")
        stages = list(zip(*each, strict=True))
        return EchoInbox(self, stages, codec, tensors)

    def close(self) -> None:
        """Nothing holds it."""

    def send(self, links: tuple[Links, ...], codec: Codec, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Count a message and return what neighbours would read."""
        packets = [codec.encode(tensor) for tensor in tensors]
        bytes_of_row = sum(packet.bytes_of_row for packet in packets)
        self.bytes_sent += bytes_of_row * np.concatenate([each.listeners[self._agents] for each in links])
        return tuple(codec.decode(packet) for packet in packets)

    def degrees(self, links: tuple[Links, ...]) -> np.ndarray:
        """Return the number of neighbours of each row."""
        return np.concatenate([each.degrees[self._agents] for each in links])


class EchoInbox:
    """What neighbours would send if all agents were equal; see `tacit.networks.Inbox`."""

    def __init__(
        self, network: EchoNetwork, stages: list[tuple[Links, ...]], codec: Codec, tensors: tuple[Tensor, ...]
    ) -> None:
        self._network, self._stages, self._codec = network, stages, codec
        self._read = network.send(stages[0], codec, tensors)

    @property
    def degree(self) -> Float[Tensor, "rows 1"]:
        """The number of neighbours of each agent."""
        self._require_one("degree")
        return torch.from_numpy(self._network.degrees(self._stages[0])).to(self._read[0])[:, None]

    @property
    def own(self) -> Any:
        """What neighbours would read of the agent's own message."""
        self._require_one("own")
        return one_or_all(self._read)

    def mix(self) -> Any:
        """Return the agents' own values, sent in every exchange of the round."""
        mixed = self._read
        for links in self._stages[1:]:
            mixed = self._network.send(links, self._codec, mixed)
        return one_or_all(tuple(each.clone() for each in mixed))

    def sum(self) -> Any:
        """Return the agents' own values times the number of neighbours."""
        self._require_one("sum()")
        require_balance(self._stages[0])
        return one_or_all(tuple(x * self.degree.reshape(-1, *[1] * (x.ndim - 1)).to(x) for x in self._read))

    def messages(self) -> Any:
        """Return the agents' own values instead of every neighbour's."""
        self._require_one("messages()")
        degrees = self._network.degrees(self._stages[0])
        present = torch.arange(int(degrees.max(initial=0)))[None, :] < torch.from_numpy(degrees)[:, None]
        present = present.to(self._read[0].device)
        found = []
        for x in self._read:
            there = present.reshape(*present.shape, *[1] * (x.ndim - 1))
            found.append(Messages(torch.where(there, x[:, None], x.new_zeros(())), present))
        return one_or_all(tuple(found))

    def _require_one(self, what: str) -> None:
        require_one_exchange(len(self._stages), what)
