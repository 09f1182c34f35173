"""DP-SRM: descend along a gradient that is carried from round to round and corrected by differences.

    v⁺ = q̃ + (1 − a)v,   q̃ is the answer for ∇ℓ(θ) − (1 − a)∇ℓ(θ₋₁) of every record of one lot;   v = g̃(θ) in the first round
    θ⁺ = Wθ − η v⁺

Wang, Jayaraman, Evans & Gu, *Efficient Privacy-Preserving Stochastic Nonconvex Optimization*, UAI 2023 (PMLR 216), Algorithm 1, where a is γ, with the
neighbours' models mixed in as in DSGD. Both gradients of a record are taken in one query, so a round costs one query and the lot's own noise nearly cancels.

In the paper's theorems noise covers what a smoothness constant allows, which nobody knows for a network. In its experiments every record's gradient is clipped to
C₁ and its difference of gradients to C₂, so that a record contributes a·C₁ + (1 − a)·C₂ at most, with a = C₂. Here the vector that is summed,
∇ℓ(θ) − (1 − a)∇ℓ(θ₋₁), is clipped as a whole, to slack·a·C: a record whose gradient stays the same contributes a times that gradient. With C = C₁ = 1,
the bound of the paper is that of slack = 2 − a. Its steps shrink with the length of v; here they are those of the run. With a = 1 this is DSGD.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from tacit.algorithms.interface import At, Stacked
from tacit.algorithms.lossy import mix_rows
from tacit.algorithms.steps import descend
from tacit.errors import InvalidInput
from tacit.networks.codecs import DENSE, Codec


class DPSRMState(NamedTuple):
    """The models, those of the round before, and the carried gradients."""

    theta: Stacked
    before: Stacked
    direction: Stacked


@dataclass(frozen=True)
class Difference:
    """(∇ℓ(here) − keep·∇ℓ(before))/scale of one record."""

    keep: float
    scale: float

    def __call__(self, record: Any, here: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        """Return the vector that is clipped to C."""
        gradient: torch.Tensor = record.gradient(here)
        if self.keep:
            gradient = gradient - self.keep * record.gradient(before)
        return gradient / self.scale


@dataclass(frozen=True, kw_only=True)
class DPSRM:
    """Stochastic recursive momentum."""

    a: float = 0.2
    slack: float = 1.0
    codec: Codec = DENSE

    def __post_init__(self) -> None:
        if not 0 < self.a <= 1:
            raise InvalidInput(f"a is {self.a}; it must lie in (0, 1]")
        if not self.slack > 0:
            raise InvalidInput(f"slack is {self.slack}; it must be positive")

    def init(self, theta: Stacked) -> DPSRMState:
        """Start at θ with nothing carried."""
        return DPSRMState(theta, theta, torch.zeros_like(theta))

    def round(self, state: DPSRMState, at: At) -> DPSRMState:
        """Correct the carried gradient, mix and descend."""
        theta, before, direction = state
        if at.round == 0:
            direction = at.gradient(theta)
        else:
            scale = self.slack * self.a
            answer = at.query(Difference(1 - self.a, scale), theta, before)
            direction = scale * answer + (1 - self.a) * direction
        mixed = mix_rows(at, theta, codec=self.codec)
        return DPSRMState(descend(mixed, at.lr, direction), theta, direction)
