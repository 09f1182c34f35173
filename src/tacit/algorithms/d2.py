"""D², also called exact diffusion: DSGD without the bias of uneven data. With a private oracle, DP-D².

    ψ = θ − η g̃(θ);   θ⁺ = W̃(θ + ψ − ψ_prev),   ψ_prev = θ in the first round

Tang et al., *D²: Decentralized Training over Decentralized Data*, ICML 2018; Yuan et al., *Exact Diffusion for Distributed Optimization and
Learning*, 2019. With constant η this is θ⁺ = W̃(2θ − θ_prev − η g̃ + η g̃_prev). Without noise it converges to the optimum of all
agents' data, however uneven these are, where DSGD does not. One message has one vector: half of DSGT's bytes.

D² needs all eigenvalues of its weights above −1/3, and Metropolis weights on a ring of ten have exactly that. So W̃ = (I + W)/2
unless `lazy` is off; then W̃ = W, and a graph with λ_min(W) ≤ −1/3 or links that change are refused.

Source: these are the steps of exact diffusion in the public code of its authors (`pytorch_optimization.py` in Bluefog-Lib/bluefog), which mixes with (I + W)/2 too.
"""

from dataclasses import dataclass
from typing import NamedTuple

from tacit.algorithms.interface import At, Stacked
from tacit.algorithms.links import require_same_links, smallest_eigenvalue
from tacit.algorithms.steps import descend
from tacit.errors import GraphError
from tacit.networks.topology import Topology

_ROUNDING = 1e-9


class D2State(NamedTuple):
    """The models, and those before the last mixing without the correction."""

    theta: Stacked
    descended: Stacked


@dataclass(frozen=True, kw_only=True)
class D2:
    """Decentralized training over decentralized data."""

    lazy: bool = True

    def check_links(self, topology: Topology, rounds: int) -> None:
        """Raise where D² with W itself would diverge."""
        if self.lazy:
            return
        require_same_links("D2 with lazy=false", topology, rounds)
        least = smallest_eigenvalue(topology.at(0))
        if least <= -1 / 3 + _ROUNDING:
            raise GraphError(
                f"the smallest eigenvalue of the weights is {least:.4f}, and D2 needs more than -1/3; leave lazy=false out, so that it mixes "
                "with (I + W)/2"
            )

    def init(self, theta: Stacked) -> D2State:
        """Start at θ without a correction."""
        return D2State(theta, theta)

    def round(self, state: D2State, at: At) -> D2State:
        """Descend, correct by what the last mixing changed, and mix."""
        descended = descend(state.theta, at.lr, at.gradient(state.theta))
        corrected = state.theta + descended - state.descended
        mixed = at.exchange(corrected).mix()
        return D2State(0.5 * (corrected + mixed) if self.lazy else mixed, descended)
