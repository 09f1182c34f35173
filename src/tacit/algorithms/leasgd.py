"""LEASGD: agents that do worse are pulled towards those that do better. With a private oracle, DP-LEASGD.

    θ⁺ = θ − η g̃(θ) − ηρ(θ − mean of the leaders' θ),   the leaders are those one hears whose loss is smaller

Cheng et al., *Towards Decentralized Deep Learning with Differential Privacy*, CLOUD 2019. Agents meet in random pairs, which is a
schedule: `matchings`. An agent without a leader only descends.

Only followers move, and only towards the better one of a pair: this copies models rather than averaging them. On evenly divided digits, in
random pairs without noise, that is as good as DSGD: 93.6 % and 93.5 % after 200 rounds with η = 0.5, where agents alone have 89.5 %. Where every
agent has one class, a leader learns nothing about the others, and no step or ρ makes up for that: 47 % at best, where DSGD has 80 % and more and
agents alone 10 %. ηρ is the share of the way to the leader; above 1 it overshoots, and ½ is the best tried.

The published ranking is by private losses, which are not charged. Here losses are those on public records, `at.public_loss`, and
cost nothing; with `private_ranking` they are an answer of the oracle, each record's loss clipped to C, and cost one query more whenever they
are measured. That is every `rank_every` rounds. Each message carries the loss as one more number.

Sources: the paper's abstract and that of its first version (*LEASGD*, arXiv 1811.11124), which name leaders, followers and elastic averaging, but have no equation. The pull
ηρ(θ − θ_leader) is that of elastic averaging (Zhang, Choromanska & LeCun, NeurIPS 2015), with the leader in place of the common centre. That an
agent with several leaders takes their mean is ours.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from tacit.algorithms.interface import At, Stacked
from tacit.algorithms.steps import descend
from tacit.errors import InvalidInput
from tacit.networks.codecs import DENSE, Codec


class LEASGDState(NamedTuple):
    """The models, and their losses on public records when these were last measured."""

    theta: Stacked
    loss: Float[Tensor, "agents 1"]


def _loss_of(record: Any, theta: Tensor) -> Tensor:
    loss: Tensor = record.loss(theta)
    return loss[None]


@dataclass(frozen=True, kw_only=True)
class LEASGD:
    """Leader-follower elastic averaging SGD."""

    rho: float = 1.0
    rank_every: int = 10
    private_ranking: bool = False
    codec: Codec = DENSE

    def __post_init__(self) -> None:
        if not self.rho > 0:
            raise InvalidInput(f"rho is {self.rho}; it must be positive")
        if self.rank_every < 1:
            raise InvalidInput(f"rank_every is {self.rank_every}; it must be at least 1")

    def init(self, theta: Stacked) -> LEASGDState:
        """Start at θ, not ranked yet."""
        return LEASGDState(theta, theta.new_zeros(len(theta), 1))

    def round(self, state: LEASGDState, at: At) -> LEASGDState:
        """Descend, and move towards those who do better."""
        theta, loss = state
        if at.round % self.rank_every == 0:
            private = self.private_ranking
            loss = at.query(_loss_of, theta, width=1) if private else at.public_loss(theta).to(theta.dtype)[:, None]
        inbox = at.exchange(theta, loss, codec=self.codec)
        models, losses = inbox.messages()
        leads = losses.present[..., None] & (losses.values < inbox.own[1][:, None])
        total = torch.zeros_like(theta)
        for number in range(leads.shape[1]):  # one after another, so that every network adds in the same order
            total = total + torch.where(leads[:, number], models.values[:, number] - inbox.own[0], theta.new_zeros(()))
        pull = total / leads.sum(1).clamp(min=1)
        return LEASGDState(descend(theta, at.lr, at.gradient(theta)) + at.lr * self.rho * pull, loss)
