"""DSGD: average with the neighbours, then descend along the agent's own gradient. With a private oracle, DP-DSGD.

    θ⁺ = Wθ − η·step(g̃(θ))

Lian et al., *Can Decentralized Algorithms Outperform Centralized Algorithms?*, NeurIPS 2017. All agents mix the
last round's values; momentum, if any, is carried from round to round.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from tacit.algorithms.interface import At, Stacked
from tacit.algorithms.lossy import mix_inbox
from tacit.algorithms.steps import Plain, Step, descend
from tacit.networks.codecs import DENSE, Codec


class DSGDState(NamedTuple):
    """The models and what the step carries."""

    theta: Stacked
    step: Any


@dataclass(frozen=True, kw_only=True)
class DSGD:
    """Decentralized stochastic gradient descent."""

    step: Step = Plain()
    codec: Codec = DENSE

    def init(self, theta: Stacked) -> DSGDState:
        """Start at θ."""
        return DSGDState(theta, self.step.init(theta))

    def round(self, state: DSGDState, at: At) -> DSGDState:
        """Mix and descend."""
        inbox = at.exchange(state.theta, codec=self.codec)  # which may travel while gradients are computed
        direction, step = self.step.step(state.step, at.gradient(state.theta))
        mixed = mix_inbox(inbox, state.theta, codec=self.codec)
        return DSGDState(descend(mixed, at.lr, direction), step)
