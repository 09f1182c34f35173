"""Local: every agent learns alone, from its own data, without messages: the baseline for cooperation.

θ⁺ = θ − η·step(g̃(θ))
"""

from dataclasses import dataclass

from tacit.algorithms.sgd import SGD


@dataclass(frozen=True, kw_only=True)
class Local(SGD):
    """SGD at every agent, without communication."""
