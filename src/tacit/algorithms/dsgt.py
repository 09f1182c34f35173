"""DSGT: track the average gradient of all agents and descend along it. With a private oracle, DP-DSGT.

    y⁺ = g̃(θ) + Wy − g̃_prev
    θ⁺ = W(θ − η y⁺)

Pu & Nedić, *Distributed Stochastic Gradient Tracking Methods*, 2020. y and g̃_prev start at zero, so that the
average of y is always that of the latest g̃. One message carries θ − η y⁺ and y⁺: twice the bytes of DSGD.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from tacit.algorithms.interface import At, Stacked
from tacit.algorithms.lossy import mix_rows
from tacit.algorithms.steps import descend
from tacit.networks.codecs import DENSE, Codec


class DSGTState(NamedTuple):
    """The models, the latest gradients, their trackers and the trackers as mixed with the neighbours'."""

    theta: Stacked
    gradient: Stacked
    tracker: Stacked
    mixed_tracker: Stacked


@dataclass(frozen=True, kw_only=True)
class DSGT:
    """Decentralized stochastic gradient tracking."""

    codec: Codec = DENSE

    def init(self, theta: Stacked) -> DSGTState:
        """Start at θ with nothing tracked."""
        zero = torch.zeros_like(theta)
        return DSGTState(theta=theta, gradient=zero, tracker=zero, mixed_tracker=zero)

    def round(self, state: DSGTState, at: At) -> DSGTState:
        """Update the tracker, descend and mix."""
        g = at.gradient(state.theta)
        y = g + state.mixed_tracker - state.gradient
        theta, mixed = mix_rows(at, descend(state.theta, at.lr, y), y, codec=self.codec)
        return DSGTState(theta=theta, gradient=g, tracker=y, mixed_tracker=mixed)
