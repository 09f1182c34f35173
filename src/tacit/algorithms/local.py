"""Local: every agent learns alone, from its own data, and nobody says anything: what cooperation is measured against.

θ⁺ = θ − η·step(g̃(θ))
"""

from dataclasses import dataclass

from tacit.algorithms.sgd import SGD


@dataclass(frozen=True, kw_only=True)
class Local(SGD):
    """SGD at every agent, without communication."""
