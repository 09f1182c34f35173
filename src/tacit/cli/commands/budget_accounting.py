"""What `tacit budget` computes: σ from ε or ε from σ, under each adjacency and accountant.

All numbers come from `tacit.privacy.accounting`. A row without an answer has no number, and says why.
"""

import math
from dataclasses import dataclass, replace
from typing import get_args

from tacit.errors import PrivacyError
from tacit.privacy import accounting
from tacit.privacy.accounting import Accountant, Adjacency, Event

Terms = tuple[Adjacency, Accountant]


@dataclass(frozen=True, kw_only=True)
class PlannedQueries:
    """A number of queries of Poisson lots at one rate, and the δ at which ε is derived."""

    sample_rate: float
    queries: int
    delta: float

    def epsilon(self, sigma: float, adjacency: Adjacency, accountant: Accountant, queries: int | None = None) -> float:
        """Return ε after `queries` of them, or after all, at this noise multiplier."""
        count = self.queries if queries is None else queries
        event = Event(sample_rate=self.sample_rate, noise_multiplier=sigma, count=count)
        return accounting.epsilon([event], delta=self.delta, adjacency=adjacency, accountant=accountant)

    def sigma(self, epsilon: float, adjacency: Adjacency, accountant: Accountant) -> float:
        """Return the least noise multiplier that keeps all queries within ε."""
        return accounting.noise_multiplier(
            epsilon=epsilon,
            delta=self.delta,
            sample_rate=self.sample_rate,
            queries=self.queries,
            adjacency=adjacency,
            accountant=accountant,
        )


@dataclass(frozen=True, kw_only=True)
class BudgetRow:
    """One combination of adjacency and accountant; σ and ε are None if there is no answer, and `note` says why."""

    adjacency: Adjacency
    accountant: Accountant
    sample_rate: float
    delta: float
    noise_multiplier: float | None = None
    epsilon: float | None = None
    epsilon_at_asked_noise: float | None = None
    asked: bool = False
    supported: bool = True
    note: str | None = None


def derive_epsilon(planned: PlannedQueries, sigma: float, asked: Terms) -> float:
    """Return the ε of this noise; refuse noise for which it is infinite."""
    spent = planned.epsilon(sigma, *asked)
    if spent == math.inf:
        raise PrivacyError(
            f"--noise-multiplier {sigma:g} over {planned.queries} queries protects nothing: ε is beyond what "
            f"{asked[1]} can compute; use more noise, smaller lots or fewer queries"
        )
    return spent


def derive_rows(planned: PlannedQueries, target: float | None, asked_sigma: float, asked: Terms) -> list[BudgetRow]:
    """Return a row for every combination: the noise that the target needs, or else what the asked noise spends."""
    pairs = [(adjacency, accountant) for adjacency in get_args(Adjacency) for accountant in get_args(Accountant)]
    return [_row(planned, target, asked_sigma, *pair, pair == asked) for pair in pairs]


def _row(
    planned: PlannedQueries,
    target: float | None,
    asked_sigma: float,
    adjacency: Adjacency,
    accountant: Accountant,
    asked: bool,
) -> BudgetRow:
    rate, delta = planned.sample_rate, planned.delta
    row = BudgetRow(adjacency=adjacency, accountant=accountant, sample_rate=rate, delta=delta, asked=asked)
    try:
        accounting.check(accountant, adjacency, planned.delta)
    except PrivacyError:
        return replace(row, supported=False, note="not supported")
    row = replace(row, epsilon_at_asked_noise=_or_none(planned.epsilon(asked_sigma, adjacency, accountant)))
    try:
        sigma = asked_sigma if target is None else planned.sigma(target, adjacency, accountant)
    except PrivacyError:
        return replace(row, note="out of reach")
    spent = _or_none(planned.epsilon(sigma, adjacency, accountant))
    return replace(row, noise_multiplier=sigma, epsilon=spent, note="infinite" if spent is None else None)


def _or_none(value: float) -> float | None:
    return None if value == math.inf else value  # JSON has no infinity
