"""DeepSqueeze: compressed models with error feedback: what was left out is added to the next message.

    x = θ − η·step(g̃(θ));   v = x + δ;   δ⁺ = v − C(v);   θ⁺ = x + γ(W C(v) − C(v))

Tang et al., *DeepSqueeze: Decentralization Meets Error-Compensated Compression*, 2019. Unlike CHOCO-SGD it keeps no replicas, so links may
change. γ follows from the codec unless it is given. The average of all agents is kept. Without compression and with γ = 1 this is DSGD that mixes after its step.

Source: the public code of CHOCO-SGD's authors, who compare with it (`deep_squeeze.py` in epfml/ChocoSGD), has these steps.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from tacit.algorithms.interface import At, Stacked
from tacit.algorithms.lossy import check_gamma, usual_gamma
from tacit.algorithms.steps import Plain, Step, descend
from tacit.networks.codecs import Codec
from tacit.networks.quantised import QSGD

_FOUR_BITS = QSGD(4)


class DeepSqueezeState(NamedTuple):
    """The models, what messages left out so far, and what the step carries."""

    theta: Stacked
    left_out: Stacked
    step: Any


@dataclass(frozen=True, kw_only=True)
class DeepSqueeze:
    """Decentralized SGD with error feedback."""

    codec: Codec = _FOUR_BITS
    gamma: float | None = None
    step: Step = Plain()

    def __post_init__(self) -> None:
        check_gamma(self.gamma)

    def init(self, theta: Stacked) -> DeepSqueezeState:
        """Start at θ with nothing left out."""
        return DeepSqueezeState(theta, torch.zeros_like(theta), self.step.init(theta))

    def round(self, state: DeepSqueezeState, at: At) -> DeepSqueezeState:
        """Descend, send with what was left out before, and mix what was read."""
        gamma = usual_gamma(self.codec) if self.gamma is None else self.gamma
        direction, step = self.step.step(state.step, at.gradient(state.theta))
        x = descend(state.theta, at.lr, direction)
        wanted = x + state.left_out
        inbox = at.exchange(wanted, codec=self.codec)
        return DeepSqueezeState(x + gamma * (inbox.mix() - inbox.own), wanted - inbox.own, step)
