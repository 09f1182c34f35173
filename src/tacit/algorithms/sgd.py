"""SGD: one agent that holds all data, the centrally trained baseline. With a private oracle, DP-SGD.

    θ⁺ = θ − η·step(g̃(θ))

Abadi et al., *Deep Learning with Differential Privacy*, CCS 2016.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from tacit.algorithms.interface import At, Stacked
from tacit.algorithms.steps import Plain, Step, descend


class SGDState(NamedTuple):
    """The models and what the step carries."""

    theta: Stacked
    step: Any


@dataclass(frozen=True, kw_only=True)
class SGD:
    """Descend along the agent's own gradients."""

    step: Step = Plain()

    def init(self, theta: Stacked) -> SGDState:
        """Start at θ."""
        return SGDState(theta, self.step.init(theta))

    def round(self, state: SGDState, at: At) -> SGDState:
        """Take one step."""
        direction, step = self.step.step(state.step, at.gradient(state.theta))
        return SGDState(descend(state.theta, at.lr, direction), step)
