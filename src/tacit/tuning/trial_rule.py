"""One update rule for several trials side by side, each with numbers of its own."""

from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.algorithms import Algorithm
from tacit.algorithms.interface import AroundRule, At, Stacked


class TrialRule(AroundRule):
    """The rules of all trials as one: where they differ in a number, it becomes a column with a value for each row.

    A rule with such columns computes what each rule computes for its own rows, up to the rounding of the number to the models' type.
    """

    def __init__(self, each: Sequence[Algorithm[Any]]) -> None:
        self.each = list(each)

    @property
    def rule(self) -> Algorithm[Any]:  # type: ignore[override]
        """The first trial's rule, which stands for all: they differ in numbers alone."""
        return self.each[0]

    def init(self, theta: Stacked) -> Any:
        """Start at θ."""
        return self.rule.init(theta)

    def round(self, state: Any, at: At) -> Any:
        """Play one round of every trial's rule."""

        def column(values: Sequence[float]) -> Tensor:
            theta: Tensor = state.theta
            if theta.is_meta:
                return theta.new_empty(len(theta), 1)
            return torch.tensor(values, dtype=torch.float64).to(theta)[_trial_of_rows(at.agents)][:, None]

        return _merge(self.each, column).round(state, at)


def _merge(each: Sequence[Any], column: Callable[[Sequence[float]], Tensor]) -> Any:
    """Return one object for all, in which numbers that differ are columns. Each was checked by itself when it was made."""
    first = each[0]
    if all(other == first for other in each[1:]):
        return first
    if not is_dataclass(first):
        return column(each)
    merged = copy(first)
    for field in fields(first):
        object.__setattr__(merged, field.name, _merge([getattr(other, field.name) for other in each], column))
    return merged


def _trial_of_rows(agents: Tensor) -> Tensor:
    """Return the trial of each row: agents of all trials follow each other, so it is how often an agent came before."""
    seen: Counter[int] = Counter()
    found = []
    for agent in agents.tolist():
        found.append(seen[agent])
        seen[agent] += 1
    return torch.tensor(found, device=agents.device)
