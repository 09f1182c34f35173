"""Q-DPSGD-1: DSGD whose models are quantised before they are sent. With a private oracle, the noise comes first.

    θ⁺ = θ + γ(W Q(θ) − Q(θ)) − η·step(g̃(θ))

Ding, Liang, Bi & Pan, *Differentially Private and Communication Efficient Collaborative Learning*, AAAI 2021. Q is unbiased (QSGD)
and follows from noisy answers and public chance alone, so it costs no privacy. An agent subtracts what neighbours read of its own
model, not the model itself: so quantisation leaves the average of all agents as it is. Without quantisation and with γ = 1 this is DSGD.

Sources: the paper's abstract, by which models are quantised after private steps, and `Q_DPSGD_1` in the public code of SoteriaFL (Li et al., NeurIPS 2022:
haoyuzhao123/soteriafl), which compares with it: θ_i⁺ = (1 − γ + γw_ii)θ_i + γ Σ_{j≠i} w_ij Q(θ_j) − γα g̃, the step of QuanTimed-DSGD (Reisizadeh et al.,
NeurIPS 2019). This is the equation above with η = γα, except that an agent subtracts (1 − w_ii)θ_i there and (1 − w_ii)Q(θ_i) here.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from tacit.algorithms.interface import At, Stacked
from tacit.algorithms.steps import Plain, Step, descend
from tacit.errors import InvalidInput
from tacit.networks.codecs import Codec
from tacit.networks.quantised import QSGD

_BYTE = QSGD(8)


class QDPSGD1State(NamedTuple):
    """The models and what the step carries."""

    theta: Stacked
    step: Any


@dataclass(frozen=True, kw_only=True)
class QDPSGD1:
    """Decentralized SGD with quantised models."""

    codec: Codec = _BYTE
    gamma: float = 1.0
    step: Step = Plain()

    def __post_init__(self) -> None:
        if not 0 < self.gamma <= 1:
            raise InvalidInput(f"gamma is {self.gamma}; it must lie in (0, 1]")

    def init(self, theta: Stacked) -> QDPSGD1State:
        """Start at θ."""
        return QDPSGD1State(theta, self.step.init(theta))

    def round(self, state: QDPSGD1State, at: At) -> QDPSGD1State:
        """Mix what was quantised, and descend."""
        direction, step = self.step.step(state.step, at.gradient(state.theta))
        inbox = at.exchange(state.theta, codec=self.codec)
        mixed = state.theta + self.gamma * (inbox.mix() - inbox.own)
        return QDPSGD1State(descend(mixed, at.lr, direction), step)
