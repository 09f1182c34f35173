"""Local DSGD: several steps alone, then one exchange. With a private oracle, DP-local-DSGD.

    ψ ← θ;  T times:  ψ ← ψ − η·step(g̃(ψ));   θ⁺ = Wψ

Koloskova et al., *A Unified Theory of Decentralized SGD with Changing Topology and Local Updates*, ICML 2020. One round costs T queries
and one message. With T = 1 this is DSGD that mixes after its step.

Source: the equation of DSGD, with T steps in place of one. No text or code of the paper was compared.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from tacit.algorithms.interface import At, Stacked
from tacit.algorithms.lossy import mix_rows
from tacit.algorithms.steps import Plain, Step, descend
from tacit.errors import InvalidInput
from tacit.networks.codecs import DENSE, Codec


class LocalDSGDState(NamedTuple):
    """The models and what the step carries."""

    theta: Stacked
    step: Any


@dataclass(frozen=True, kw_only=True)
class LocalDSGD:
    """Decentralized SGD with local steps."""

    local_steps: int = 4
    codec: Codec = DENSE
    step: Step = Plain()

    def __post_init__(self) -> None:
        if self.local_steps < 1:
            raise InvalidInput(f"local_steps is {self.local_steps}; at least one is needed")

    def init(self, theta: Stacked) -> LocalDSGDState:
        """Start at θ."""
        return LocalDSGDState(theta, self.step.init(theta))

    def round(self, state: LocalDSGDState, at: At) -> LocalDSGDState:
        """Descend T times, then mix."""
        theta, step = state
        for _ in range(self.local_steps):
            direction, step = self.step.step(step, at.gradient(theta))
            theta = descend(theta, at.lr, direction)
        return LocalDSGDState(mix_rows(at, theta, codec=self.codec), step)
