"""DiNNO: consensus ADMM whose primal problem is solved by a few steps. With a private oracle, DP-DiNNO.

With S = Σ_{j≠i} θ_j over the neighbours and d their number:

    y⁺ = y + ρ(dθ − S)
    ψ ← θ;  T times:  ψ ← ψ − η·step(g̃(ψ) + y⁺ + 2ρ(dψ − (dθ + S)/2))
    θ⁺ = ψ

Yu, Vincent & Schwager, *DiNNO*, RA-L 2022. ρ grows by a factor each round. One round costs T queries. Each round is
a new minimisation, so the inner step is reset unless `carry` is set; Adam from zero moments with T=1 is sign descent.

With a codec C, a neighbour's model is taken to be θ + C(θ_j) − C(θ), where C(θ) is what neighbours read of one's own: numbers that C leaves out pull nowhere.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from tacit.algorithms.interface import At, Stacked
from tacit.algorithms.steps import Adam, Step, descend
from tacit.errors import InvalidInput
from tacit.networks.codecs import DENSE, Codec


class DiNNOState(NamedTuple):
    """The models, the dual variables and what the inner step carries."""

    theta: Stacked
    dual: Stacked
    step: Any


@dataclass(frozen=True, kw_only=True)
class DiNNO:
    """Distributed neural network optimization."""

    rho: float = 0.5
    rho_growth: float = 1.0003
    inner_steps: int = 1
    step: Step = Adam()
    carry: bool = False
    codec: Codec = DENSE

    def __post_init__(self) -> None:
        for name in ("rho", "rho_growth"):
            if not getattr(self, name) > 0:
                raise InvalidInput(f"{name} is {getattr(self, name)}; it must be positive")
        if self.inner_steps < 1:
            raise InvalidInput(f"inner_steps is {self.inner_steps}; at least one is needed")

    def init(self, theta: Stacked) -> DiNNOState:
        """Start at θ with zero duals."""
        return DiNNOState(theta, torch.zeros_like(theta), self.step.init(theta))

    def round(self, state: DiNNOState, at: At) -> DiNNOState:
        """Update the duals, then descend T times on the augmented loss."""
        theta, rho = state.theta, self.rho * self.rho_growth**at.round
        inbox = at.exchange(theta, codec=self.codec)
        # What neighbours read of oneself, so that the duals of all agents sum to zero with any codec.
        own, degree, others = inbox.own, inbox.degree, inbox.sum()
        dual = state.dual + rho * (degree * own - others)
        anchor = (degree * own + others) / 2 + degree * (theta - own)
        psi, step = theta, state.step if self.carry else self.step.init(theta)
        for _ in range(self.inner_steps):
            gradient = at.gradient(psi) + dual + 2 * rho * (degree * psi - anchor)
            direction, step = self.step.step(step, gradient)
            psi = descend(psi, at.lr, direction)
        return DiNNOState(psi, dual, step)
