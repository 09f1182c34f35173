"""Muffliato-SGD: descend along a noisy gradient, then gossip several times, plainly or accelerated. With a private oracle, it is private.

    x₀ = θ − η·step(g̃(θ));   x₁ = W x₀;   x_{k+1} = γ W x_k + (1 − γ) x_{k−1};   θ⁺ = x_K

Cyffers, Even, Bellet & Massoulié, *Muffliato: Peer-to-Peer Privacy Amplification for Decentralized Optimization and Averaging*, NeurIPS
2022. With the spectral gap λ of W, γ = 2(1 − √(λ(1 − λ/4)))/(1 − λ/2)², which is Chebyshev's acceleration in the limit of many exchanges;
without it γ = 1, plain gossip. One query a round, K exchanges. With K = 1 this is DSGD that mixes after its step.

Its ε is that of the noisy gradient against everybody. No discount for distance in the graph is claimed; `tacit.audit.pairwise` shows what
each agent can see of every other.

Source: the paper's public code (totilas/muffliato). Its γ and its simulation of accelerated gossip are these; its training begins with γWx₀ instead, which moves the average
(`docs/errata.md`, row 25).
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from tacit.algorithms.interface import At, Stacked
from tacit.algorithms.links import require_same_links
from tacit.algorithms.lossy import mix_rows
from tacit.algorithms.steps import Plain, Step, descend
from tacit.errors import InvalidInput
from tacit.networks.codecs import DENSE, Codec
from tacit.networks.topology import Topology


class MuffliatoState(NamedTuple):
    """The models and what the step carries."""

    theta: Stacked
    step: Any


@dataclass(frozen=True, kw_only=True)
class Muffliato:
    """Noisy gradients and several exchanges a round; accelerated if `gap`, the spectral gap of the weights, is given."""

    exchanges: int = 1
    gap: float | None = None
    codec: Codec = DENSE
    step: Step = Plain()

    def __post_init__(self) -> None:
        if self.exchanges < 1:
            raise InvalidInput(f"exchanges is {self.exchanges}; at least one is needed")
        if self.gap is not None and not 0 < self.gap <= 1:
            raise InvalidInput(f"gap is {self.gap}; it must lie in (0, 1]: `tacit graph KIND` shows that of a graph")

    @property
    def gamma(self) -> float:
        """γ, the weight of the newest exchange."""
        if self.gap is None:
            return 1.0
        return 2 * (1 - math.sqrt(self.gap * (1 - self.gap / 4))) / (1 - self.gap / 2) ** 2

    def check_links(self, topology: Topology, rounds: int) -> None:
        """Raise if gossip is accelerated and weights change."""
        if self.gap is not None:
            require_same_links("Muffliato with acceleration", topology, rounds)

    def init(self, theta: Stacked) -> MuffliatoState:
        """Start at θ."""
        return MuffliatoState(theta, self.step.init(theta))

    def round(self, state: MuffliatoState, at: At) -> MuffliatoState:
        """Descend, then gossip."""
        direction, step = self.step.step(state.step, at.gradient(state.theta))
        before = descend(state.theta, at.lr, direction)
        theta, gamma = mix_rows(at, before, codec=self.codec), self.gamma
        for _ in range(self.exchanges - 1):
            mixed = mix_rows(at, theta, codec=self.codec)
            theta, before = mixed if self.gap is None else gamma * mixed + (1 - gamma) * before, theta
        return MuffliatoState(theta, step)
