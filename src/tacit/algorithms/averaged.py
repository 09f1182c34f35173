"""Any rule, with the average of its models instead of the last ones.

    θ̄⁺ = θ̄ + max(1 − β, 1/(k + 1))·(θ⁺ − θ̄)

k is the round's number, from 0: θ̄ is the mean of all models so far, and after 1/(1 − β) rounds a moving average. Noise from
the last rounds is averaged out (Polyak & Juditsky, *Acceleration of Stochastic Approximation by Averaging*,
1992). θ̄ follows from answers that are already noisy, so it costs no privacy, and nothing more is
sent: the rule continues from its own θ.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor

from tacit.algorithms.interface import Algorithm, AroundRule, At, Stacked, check_rule
from tacit.algorithms.steps import check_decay
from tacit.errors import InvalidInput
from tacit.registry import RULES, ShippedRule


class AveragedState(NamedTuple):
    """The averages, and the state of the rule."""

    theta: Stacked
    rule: Any


@dataclass(frozen=True)
class Averaged(AroundRule):
    """A rule whose models are averaged over rounds, after they are made."""

    rule: Algorithm[Any]
    decay: float = 0.95

    def __post_init__(self) -> None:
        check_rule(self.rule)
        check_decay("decay", self.decay)

    def init(self, theta: Stacked) -> AveragedState:
        """Start at θ."""
        return AveragedState(theta, self.rule.init(theta))

    def round(self, state: AveragedState, at: At) -> AveragedState:
        """Play one round of the rule and add its models to the average."""
        after = self.rule.round(state.rule, at)
        theta = getattr(after, "theta", None)
        if not isinstance(theta, Tensor) or theta.shape != state.theta.shape:
            raise InvalidInput(f"{name_of(self.rule)}.round must return a state whose theta has the shape it was given")
        return AveragedState(state.theta.lerp(theta, max(1 - self.decay, 1 / (at.round + 1))), after)


def rule_of(algorithm: Algorithm[Any]) -> Algorithm[Any]:
    """Return the rule itself, without what is around it, such as averages."""
    return rule_of(algorithm.rule) if isinstance(algorithm, AroundRule) else algorithm


def name_of(algorithm: Algorithm[Any]) -> str:
    """Return what the rule itself is called: its name in the registry, or that of its class if it is not a shipped one."""
    shipped = _shipped(algorithm)
    return type(rule_of(algorithm)).__name__ if shipped is None else shipped[0]


def line_of(algorithm: Algorithm[Any]) -> ShippedRule | None:
    """Return the registry's line of the rule itself; None if it is not a shipped one."""
    shipped = _shipped(algorithm)
    return None if shipped is None else shipped[1]


def _shipped(algorithm: Algorithm[Any]) -> tuple[str, ShippedRule] | None:
    kind = type(rule_of(algorithm))
    place = f"{kind.__module__}:{kind.__qualname__}"
    return next(((name, line) for name, line in RULES.lines.items() if line.place == place), None)


def is_pooled(algorithm: Algorithm[Any]) -> bool:
    """Say whether one agent trains on the records of all."""
    line = line_of(algorithm)
    return line is not None and line.pooled
