"""What `tacit budget` computes: σ from ε or ε from σ, under each adjacency and accountant.

All numbers come from `tacit.privacy.accounting`. A row without an answer has no number, and says why.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, get_args

from tacit.errors import PrivacyError
from tacit.privacy import accounting, calibration
from tacit.privacy.accounting import Accountant, Adjacency
from tacit.privacy.event import Event
from tacit.privacy.turns import turns_of


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


@dataclass(frozen=True, kw_only=True)
class PlannedQueries:
    """A number of queries of Poisson lots at one rate, and the δ, adjacency and accountant with which ε is derived.

    bands: over how many queries noise is correlated, where as many groups of records take turns.
    discrete: whether noise is discrete; it is then counted by Rényi divergences of whole orders.
    """

    sample_rate: float
    queries: int
    delta: float
    adjacency: Adjacency
    accountant: Accountant
    bands: int = 1
    discrete: bool = False

    def event(self, sigma: float, queries: int | None = None) -> Event:
        """Return `queries` of them, or all, as they are charged."""
        count = turns_of(queries or self.queries, self.bands)
        return Event(
            sample_rate=self.bands * self.sample_rate, noise_multiplier=sigma, count=count, discrete=self.discrete
        )

    def epsilon(self, sigma: float, queries: int | None = None) -> float:
        """Return ε after `queries` of them, or after all, at this noise multiplier."""
        return accounting.epsilon([self.event(sigma, queries)], **self._terms)

    def finite_epsilon(self, sigma: float) -> float:
        """Return ε after all queries; refuse noise for which it is infinite."""
        spent = self.epsilon(sigma)
        if spent == math.inf:
            raise PrivacyError(
                f"--noise-multiplier {sigma:g} over {self.queries} queries protects nothing: ε is beyond what "
                f"{self.accountant} can compute; use more noise, smaller lots or fewer queries"
            )
        return spent

    def sigma(self, epsilon: float) -> float:
        """Return the least noise multiplier that keeps all queries within ε."""
        charged = self.event(1.0)
        asked: dict[str, Any] = {"sample_rate": charged.sample_rate, "queries": charged.count}
        return calibration.noise_multiplier(epsilon=epsilon, **asked, **self._terms, discrete=self.discrete)

    def rows(self, target: float | None, asked_sigma: float) -> list[BudgetRow]:
        """Return a row for every adjacency and accountant: the noise that the target needs, or else what the asked noise spends."""
        pairs = [(adjacency, accountant) for adjacency in get_args(Adjacency) for accountant in get_args(Accountant)]
        each = [replace(self, adjacency=adjacency, accountant=accountant) for adjacency, accountant in pairs]
        return [replace(one._row(target, asked_sigma), asked=one == self) for one in each]

    @property
    def _terms(self) -> dict[str, Any]:
        return {"delta": self.delta, "adjacency": self.adjacency, "accountant": self.accountant}

    def _row(self, target: float | None, asked_sigma: float) -> BudgetRow:
        row = BudgetRow(sample_rate=self.sample_rate, **self._terms)
        try:
            accounting.check(**self._terms)
            if self.bands > 1 and self.adjacency == "replace_one":
                raise PrivacyError("a record that replaces another may be in another group")
            if self.discrete and self.accountant != "rdp":
                raise PrivacyError("discrete noise has a bound by Rényi divergences alone")
        except PrivacyError:
            return replace(row, supported=False, note="not supported")
        row = replace(row, epsilon_at_asked_noise=_or_none(self.epsilon(asked_sigma)))
        try:
            sigma = asked_sigma if target is None else self.sigma(target)
        except PrivacyError:
            return replace(row, note="out of reach")
        spent = _or_none(self.epsilon(sigma))
        return replace(row, noise_multiplier=sigma, epsilon=spent, note="infinite" if spent is None else None)


def _or_none(value: float) -> float | None:
    return None if value == math.inf else value  # JSON has no infinity
