"""AD-PSGD: agents average in random pairs while their gradients are being computed. With a private oracle, DP-AD-PSGD.

    θ⁺ = Wθ − η g̃(θ of `delay` rounds before),   W pairs agents at random

Lian, Zhang, Zhang & Liu, *Asynchronous Decentralized Parallel Stochastic Gradient Descent*, ICML 2018. An agent waits
only for its partner: it computes a gradient at the model that it had when it began, and applies it to a model that has been averaged
since. The average of all agents moves by the average gradient, however old that is. With `delay` = 0 this is DSGD on the same pairs.

Only models are averaged. A tracker of gradients, as in DSGT, has to subtract the same gradient that it added, which stale gradients would break, so
there is none here: use DSGT itself on the schedule `matchings`, in synchronous rounds.

Source: the equation as A(DP)²SGD (Xu, Zhang & Wang 2020) is described, which adds noise to it: a gradient at an old model is applied to one that was mixed since. There, links are those of
whoever is ready; here, rounds have a clock, and every gradient is equally old.
"""

from dataclasses import dataclass
from typing import NamedTuple

from tacit.algorithms.interface import At, Stacked
from tacit.algorithms.links import require_pairs
from tacit.algorithms.lossy import mix_rows
from tacit.algorithms.steps import descend
from tacit.errors import InvalidInput
from tacit.networks.codecs import DENSE, Codec
from tacit.networks.topology import Topology


class ADPSGDState(NamedTuple):
    """The models, and those of the last rounds, the oldest first."""

    theta: Stacked
    past: tuple[Stacked, ...]


@dataclass(frozen=True, kw_only=True)
class ADPSGD:
    """Asynchronous decentralized parallel SGD, on a clock."""

    delay: int = 1
    codec: Codec = DENSE

    def __post_init__(self) -> None:
        if self.delay < 0:
            raise InvalidInput(f"delay is {self.delay}; a gradient cannot come from a later model")

    def check_links(self, topology: Topology, rounds: int) -> None:
        """Raise unless agents meet in pairs."""
        require_pairs("AD-PSGD", topology, rounds)

    def init(self, theta: Stacked) -> ADPSGDState:
        """Start at θ, as if it had been there before."""
        return ADPSGDState(theta, (theta,) * self.delay)

    def round(self, state: ADPSGDState, at: At) -> ADPSGDState:
        """Average with the partner, and descend along the gradient of an old model."""
        asked_at, *later = (*state.past, state.theta)
        gradient = at.gradient(asked_at)
        mixed = mix_rows(at, state.theta, codec=self.codec)
        return ADPSGDState(descend(mixed, at.lr, gradient), tuple(later))
