"""An ε with everything it must be stated with (`Guarantee`), why it holds (`Basis`), and its limit (`Budget`)."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from tacit.errors import PrivacyError, refuse_misspelt
from tacit.privacy.accounting import Accountant, Adjacency, ceil_digits, check
from tacit.privacy.event import Event
from tacit.privacy.filters import divergence, filtered_epsilon, order_of
from tacit.privacy.mechanisms import RECORD
from tacit.privacy.observers import EVERYBODY, Observer

WORDS = {"add_remove": "add-or-remove-one", "replace_one": "replace-one"}
EXPOSED = "a run without privacy has read these records: there is no guarantee"

Basis = Literal["plan", "plans", "filter", "nothing"]
"""Why an ε holds; docs/guarantee.md names the theorems.

plan: σ, q and the number of all counted queries were fixed before the first of them.
plans: it adds up runs; it holds if no run was planned after seeing another's results.
filter: the same, and a budget's filter proves `Guarantee.adaptive` however runs were planned.
nothing: a run without privacy has read the records, or the noise protects nothing.
"""


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """An ε with everything it must be stated with."""

    epsilon: float
    delta: float
    adjacency: Adjacency
    accountant: Accountant
    release: bool
    basis: Basis = "plan"
    adaptive: float | None = None
    """The ε, at the same δ and adjacency, that holds even if runs were planned after seeing others' results."""
    exposed: bool = False
    """Whether any run without privacy has read these records."""
    observer: Observer = EVERYBODY
    """Against whom it holds."""
    unit: str = RECORD
    """The unit of privacy: what neighbouring data sets differ in."""

    def __str__(self) -> str:
        if math.isinf(self.epsilon):
            return f"ε=∞: {EXPOSED if self.exposed else 'there is no guarantee'}"
        value, stated = per(self.unit, format_epsilon(self.epsilon)), terms(self.delta, self.adjacency, self.accountant)
        words = f"{value} against {self.observer} at {stated}"
        if self.observer == EVERYBODY:
            words = f"{value} at {stated}, against {self.observer}"
        if self.basis in ("plans", "filter"):
            words += f"; {self.condition}"
            if self.observer.curious:
                words += "; counting each party as one agent in every run"
        if not self.release:
            words += "; not a release"
        return f"{words}; {EXPOSED}" if self.exposed else words

    @property
    def condition(self) -> str:
        """The condition under which ε holds, in words; empty for one plan fixed beforehand."""
        if self.basis == "plans":
            return "if no run was planned from another's results"
        if self.basis == "filter":
            assert self.adaptive is not None
            return f"or ε={format_epsilon(self.adaptive)} if runs were planned from others' results"
        return "there is no guarantee" if self.basis == "nothing" else ""


def per(unit: str, epsilon: str = "") -> str:
    """Name ε with its unit: ε per patient, or with its value ε=3.697 per patient."""
    return f"ε={epsilon} per {unit}" if epsilon else f"ε per {unit}"


def terms(delta: float, adjacency: Adjacency, accountant: Accountant) -> str:
    """Return the terms that every ε is stated with."""
    return f"δ={delta:g}, {WORDS[adjacency]}, {accountant}"


def format_epsilon(epsilon: float) -> str:
    """Write ε to four digits, rounded up, so never less than it is."""
    return f"{ceil_digits(epsilon):.4g}"


@refuse_misspelt
@dataclass(frozen=True, kw_only=True)
class Budget:
    """The most that all runs together may spend on one owner's data."""

    epsilon: float
    delta: float
    adjacency: Adjacency = "add_remove"
    accountant: Accountant = "pld"
    observer: Observer = EVERYBODY
    """Against whom."""

    def __post_init__(self) -> None:
        check(self.accountant, self.adjacency, self.delta)
        if not isinstance(self.observer, Observer):
            raise PrivacyError(
                f"observer is {self.observer!r}; give Observer(curious=...), or nothing for everybody else"
            )
        if not 0 < self.epsilon < math.inf:
            raise PrivacyError(f"a budget's epsilon is {self.epsilon}; it must be positive and finite")

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data, for JSON."""
        return asdict(self) | {"observer": self.observer.key}

    @staticmethod
    def of_json(document: Any) -> "Budget":
        """Read plain data back; anything else is an error."""
        kinds = {field.name for field in fields(Budget)}
        if not isinstance(document, dict) or set(document) != kinds:
            raise PrivacyError(f"a budget has the fields {', '.join(sorted(kinds))}, but this is {str(document)[:200]}")
        return Budget(**(document | {"observer": Observer.of_key(document["observer"])}))

    def filtered(self, events: Sequence[Event]) -> float:
        """Return the ε of these queries under this budget's filter: they pass if it is at most the budget's ε."""
        return filtered_epsilon(events, epsilon=self.epsilon, delta=self.delta, adjacency=self.adjacency)

    def divergence(self, event: Event) -> float:
        """Return how much an event counts in the filter."""
        return divergence(event, order_of(self.epsilon, self.delta, self.adjacency), self.adjacency)

    def __str__(self) -> str:
        if self.observer == EVERYBODY:
            return f"ε={self.epsilon:g} at δ={self.delta:g} ({WORDS[self.adjacency]}, against {self.observer})"
        return f"ε={self.epsilon:g} against {self.observer} at δ={self.delta:g} ({WORDS[self.adjacency]})"
