"""What `tacit budget` computes: σ from ε or ε from σ, under each adjacency and accountant.

Everything comes from `tacit.privacy.accounting`. Where there is no answer a row says so, and holds no number.
"""

import math
from dataclasses import dataclass, replace
from typing import get_args

from tacit.errors import PrivacyError
from tacit.privacy import accounting
from tacit.privacy.accounting import Accountant, Adjacency, Event

Asked = tuple[Adjacency, Accountant]


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """What is asked about: so many queries of Poisson lots at one rate, and the δ at which ε is taken."""

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
class Row:
    """One combination of adjacency and accountant; σ and ε are None where there is no answer, and `note` says why."""

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


def finite_epsilon(mechanism: Mechanism, sigma: float, asked: Asked) -> float:
    """Return the ε that is asked for, or say that there is none."""
    spent = mechanism.epsilon(sigma, *asked)
    if spent == math.inf:
        raise PrivacyError(
            f"--noise-multiplier {sigma:g} over {mechanism.queries} queries protects nothing: ε is beyond what "
            f"{asked[1]} can compute; use more noise, smaller lots or fewer queries"
        )
    return spent


def side_by_side(mechanism: Mechanism, target: float | None, asked_sigma: float, asked: Asked) -> list[Row]:
    """Return a row for every combination: the noise that the target needs, or else what the asked noise spends."""
    pairs = [(adjacency, accountant) for adjacency in get_args(Adjacency) for accountant in get_args(Accountant)]
    return [_row(mechanism, target, asked_sigma, *pair, pair == asked) for pair in pairs]


def _row(
    mechanism: Mechanism,
    target: float | None,
    asked_sigma: float,
    adjacency: Adjacency,
    accountant: Accountant,
    asked: bool,
) -> Row:
    row = Row(
        adjacency=adjacency,
        accountant=accountant,
        sample_rate=mechanism.sample_rate,
        delta=mechanism.delta,
        asked=asked,
    )
    try:
        accounting.check(accountant, adjacency, mechanism.delta)
    except PrivacyError:
        return replace(row, supported=False, note="not supported")
    row = replace(row, epsilon_at_asked_noise=_or_none(mechanism.epsilon(asked_sigma, adjacency, accountant)))
    try:
        sigma = asked_sigma if target is None else mechanism.sigma(target, adjacency, accountant)
    except PrivacyError:
        return replace(row, note="out of reach")
    spent = _or_none(mechanism.epsilon(sigma, adjacency, accountant))
    return replace(row, noise_multiplier=sigma, epsilon=spent, note="infinite" if spent is None else None)


def _or_none(value: float) -> float | None:
    return None if value == math.inf else value  # which JSON does not have
