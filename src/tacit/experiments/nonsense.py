"""Agents that send nonsense, for experiments with robust means."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tacit.algorithms import Algorithm
from tacit.networks import DENSE, Codec, Inbox

_SIZE = 10.0  # of the numbers, at most


@dataclass(frozen=True)
class Nonsense:
    """A rule in which the first few agents send random numbers instead of their models."""

    rule: Algorithm[Any]
    senders: int

    def init(self, theta: Tensor) -> Any:
        """Start as the rule does."""
        return self.rule.init(theta)

    def round(self, state: Any, at: Any) -> Any:
        """Play one round of the rule, with other messages of these agents."""
        return self.rule.round(state, _NonsenseAt(at, self.senders))


class _NonsenseAt:
    """A round in which some agents send nonsense."""

    def __init__(self, at: Any, senders: int) -> None:
        self._at, self._senders = at, senders

    def __getattr__(self, name: str) -> Any:
        return getattr(self._at, name)

    def exchange(self, *tensors: Tensor, codec: Codec = DENSE) -> Inbox:
        """Send one message to every neighbour."""
        lies = (self._at.agents < self._senders)[:, None]
        sent = [
            x.where(~lies, _SIZE * (2 * self._at.chance(x.shape[1]).to(x) - 1)) if x.ndim == 2 else x for x in tensors
        ]
        inbox: Inbox = self._at.exchange(*sent, codec=codec)
        return inbox
