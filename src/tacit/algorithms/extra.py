"""EXTRA: DSGD with a correction that makes it exact on uneven data. With a private oracle, DP-EXTRA.

    θ_{k+1} = θ_k + Wθ_k − η g̃(θ_k) − c_k,   c_{k+1} = (θ_k + Wθ_k)/2 − η g̃(θ_k),   c_0 = θ_0

Shi, Ling, Wu & Yin, *EXTRA: An Exact First-Order Algorithm for Decentralized Consensus Optimization*, SIAM J. Optim. 2015, with
W̃ = (I + W)/2: the first step is that of DSGD. One message has one vector: half of DSGT's bytes.

Source: the published form is θ_{k+1} = (I + W)θ_k − W̃θ_{k−1} − η(g̃_k − g̃_{k−1}), as public code also has it (`EXTRA.m` in vivekkhatana/GradConsensus). Here c_k is what
the last round left behind, so one gradient and one mixed model a round are enough.
"""

from dataclasses import dataclass
from typing import NamedTuple

from tacit.algorithms.interface import At, Stacked


class EXTRAState(NamedTuple):
    """The models and the correction of the next round."""

    theta: Stacked
    correction: Stacked


@dataclass(frozen=True, kw_only=True)
class EXTRA:
    """Exact first-order algorithm."""

    def init(self, theta: Stacked) -> EXTRAState:
        """Start at θ; the first step is that of DSGD."""
        return EXTRAState(theta, theta)

    def round(self, state: EXTRAState, at: At) -> EXTRAState:
        """Mix, descend and correct."""
        theta = state.theta
        step = at.lr * at.gradient(theta)
        mixed = at.exchange(theta).mix()
        return EXTRAState(theta + mixed - step - state.correction, 0.5 * (theta + mixed) - step)
