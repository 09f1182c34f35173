"""What every agent can learn about every other when noisy values are averaged by gossip: ε(u→v), from all that v sees.

Everyone adds noise to a value of its own once, and then all gossip. v sees its neighbours' messages of all exchanges, and its own.
These are jointly Gaussian and far from independent, so what v learns of u is one number, µ²(u→v) = Bᵀ Σ⁺ B, of the whole view. Adding
up the messages one by one, as in the published bound of Muffliato, can say too little: a neighbour's second message minus what v
knows already may be u's value itself.
"""

from dataclasses import dataclass
from typing import Any

import networkx as nx
import torch
from jaxtyping import Float
from torch import Tensor

from tacit.algorithms import Muffliato
from tacit.audit.linear.responses import Responses
from tacit.errors import InvalidInput
from tacit.graphs.adjacency import adjacency
from tacit.graphs.mixing import mixing_matrix
from tacit.privacy.accounting import epsilon as derive_epsilon
from tacit.privacy.event import Event


@dataclass(frozen=True, kw_only=True, eq=False)
class Pairwise:
    """What agent v learns of agent u, in row u and column v.

    share: µ²(u→v) relative to that of u's noisy value itself, from 0 to 1: exact.
    published: the same by the published bound, a sum over messages as if they were independent, at most 1.
    """

    share: Float[Tensor, "agents agents"]
    published: Float[Tensor, "agents agents"]

    def epsilon(self, noise_multiplier: float, delta: float) -> Float[Tensor, "agents agents"]:
        """Return ε(u→v) at δ for noise of σ times what one record can move a value; infinite for an agent's own value."""

        def derive(share: float) -> float:
            event = Event(sample_rate=1.0, noise_multiplier=noise_multiplier / share**0.5, count=1)
            return derive_epsilon([event], delta=delta)

        shares = self.share.flatten().tolist()
        found = {share: derive(share) if share else 0.0 for share in set(shares)}
        together = torch.tensor([found[share] for share in shares], dtype=torch.float64)
        return together.reshape(self.share.shape).fill_diagonal_(torch.inf)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"share": self.share.tolist(), "published": self.published.tolist()}


def pairwise(graph: nx.Graph, *, exchanges: int, gap: float | None = None) -> Pairwise:
    """Return how much each agent learns about each other if noisy values are mixed `exchanges` times along a graph with Metropolis weights.

    With `gap`, the spectral gap of the weights, gossip is accelerated as in `Muffliato`. This is about one value that everybody gossips
    once. In training, hidden models flow back through later gradients, so it bounds nothing there.
    """
    if exchanges < 1:
        raise InvalidInput(f"exchanges is {exchanges}; at least one is needed")
    rule = Muffliato(exchanges=exchanges, gap=gap)
    responses = Responses.of(rule, graph, rounds=1, lr=1.0)
    agents = responses.agents
    share = torch.empty(agents, agents, dtype=torch.float64)
    for observer in range(agents):
        view = responses.view([observer], final=False)
        share[:, observer] = torch.tensor([view.share(target) for target in range(agents)], dtype=torch.float64)
    # What cannot be distinguished from rounding counts as not learnt.
    share = torch.where(share < 1e-9, 0.0, share).clamp(max=1.0).round(decimals=9)
    return Pairwise(share=share, published=_published(graph, exchanges))


def _published(graph: nx.Graph, exchanges: int) -> Float[Tensor, "agents agents"]:
    """Return Σ_t Σ_{w ∈ N(v)} (W^t)_{uw}²/‖(W^t)_w‖², at most 1."""
    weights = torch.from_numpy(mixing_matrix(graph).toarray())
    near = torch.from_numpy(adjacency(graph).toarray()).to(weights)
    power, total = torch.eye(len(weights), dtype=torch.float64), torch.zeros_like(weights)
    for _ in range(exchanges):
        total += (power.square() / power.square().sum(dim=1, keepdim=True)).T @ near
        power = weights @ power
    return total.fill_diagonal_(1.0).clamp(max=1.0)
