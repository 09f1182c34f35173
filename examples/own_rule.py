"""A custom update rule, with and without privacy: exact diffusion against DSGD on a ring.

    python examples/own_rule.py

With a constant step on uneven data, DSGD's agents stay apart: each is pulled towards its own records. Exact
diffusion (Yuan, Ying, Zhao & Sayed, *Exact Diffusion for Distributed Optimization and Learning*, 2019) corrects for this
with one more vector of memory and no additional messages:

    ψ⁺ = θ − η g̃(θ)                     adapt
    φ = ψ⁺ + θ − ψ                      correct, with ψ from the previous round
    θ⁺ = (φ + Wφ)/2                     combine, with one message to each neighbour

ψ starts at θ, so the first round corrects nothing. The rule does not mention privacy. How many queries it
makes is counted in a rehearsal, and noise is calibrated to that. The step is the same for both rules and tuned for
neither; DSGD does better with one that decreases.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from torch import Tensor

import tacit
from tacit.algorithms import Algorithm, At

ROUNDS = 100


class ExactDiffusionState(NamedTuple):
    """The models, and where each agent's last step took it."""

    theta: Tensor
    adapted: Tensor


@dataclass(frozen=True, kw_only=True)
class ExactDiffusion:
    """Diffusion whose fixed point is the minimum of the sum, not a compromise that depends on the step size."""

    def init(self, theta: Tensor) -> ExactDiffusionState:
        """Start at θ."""
        return ExactDiffusionState(theta=theta, adapted=theta)

    def round(self, state: ExactDiffusionState, at: At) -> ExactDiffusionState:
        """Adapt, correct, combine."""
        adapted = state.theta - at.lr * at.gradient(state.theta)
        corrected = adapted + state.theta - state.adapted
        theta = (corrected + at.exchange(corrected).mix()) / 2
        return ExactDiffusionState(theta=theta, adapted=adapted)


def main() -> None:
    digits = tacit.data.load("digits")
    agents = digits.split(10, tacit.data.ByClass(t=1.0))  # one digit each: as uneven as possible
    settings: list[tacit.Privacy | tacit.NoPrivacy] = [
        tacit.NoPrivacy(lot_size=48),
        tacit.Privacy(epsilon=4.0, delta=1e-3, clip=1.0, lot_size=48),
    ]
    rules: list[Algorithm[Any]] = [tacit.DSGD(), ExactDiffusion()]
    table = Table(
        "rule", "ε", "mean", "worst", "apart", "MB sent each", title="Ten agents with one digit each, on a ring"
    )
    for privacy in settings:
        for rule in rules:
            result = tacit.train(
                rule,
                model=lambda: tacit.models.logistic(digits.input_shape, 10),
                data=agents,
                graph=tacit.graphs.ring(10),
                privacy=privacy,
                rounds=ROUNDS,
                lr=1.0,
                evaluate_every=ROUNDS,
            )
            accuracy = result.evaluate().accuracy
            assert accuracy is not None
            worst = max(result.guarantees(), key=lambda guarantee: guarantee.epsilon)
            table.caption = f"derived from each run's ledger: {worst}"
            table.add_row(
                type(rule).__name__,
                f"{worst.epsilon:.3g}",
                f"{accuracy.mean():.1%}",
                f"{accuracy.min():.1%}",
                f"{result.consensus_distance:.2f}",
                f"{result.history[-1].bytes_sent.mean() / 1e6:.2f}",
            )
    Console().print(table)


if __name__ == "__main__":
    main()
