"""How training records are divided among agents: the paper's A(t), Dirichlet, and IID.

A rule is called with the targets, the number of classes (None where there are none), the number of agents and
a generator, and returns for each agent the rows it holds. Each row goes to exactly one agent. Its `str`
is a short public description: it becomes part of the owners' names.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Float64, Int64
from torch import Tensor

from tacit.errors import DataError, InvalidInput

Rows = list[Int64[np.ndarray, "held"]]

# Shares are products of floats: this close to a whole record counts as one.
_ROUNDING = 1e-7
_DRAWS = 100


class Partition(Protocol):
    """What `DataSet.split` takes."""

    def __call__(
        self, targets: Int64[Tensor, "records"], classes: int | None, agents: int, rng: np.random.Generator
    ) -> Rows:
        """Return the rows that each agent holds."""


@dataclass(frozen=True)
class ByClass:
    """The paper's A(t): from t=0, where classes are spread evenly, to t=1, where each agent has its own."""

    t: float

    def __post_init__(self) -> None:
        if not 0 <= self.t <= 1:
            raise InvalidInput(
                f"t={self.t} is outside [0, 1]; 0 spreads classes evenly, 1 gives each to its own agents"
            )

    def __str__(self) -> str:
        return f"A(t={self.t:.12g})"

    def __call__(
        self, targets: Int64[Tensor, "records"], classes: int | None, agents: int, rng: np.random.Generator
    ) -> Rows:
        """Return the rows that each agent holds."""
        per_class = _class_counts(self, targets, classes)
        fractions = class_fractions(self.t, agents, len(per_class))
        return _assign(apportion(fractions, per_class), targets, rng)


@dataclass(frozen=True)
class Dirichlet:
    """Shares of each class drawn from a symmetric Dirichlet: uneven for small alpha, even for large."""

    alpha: float
    min_size: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.alpha <= 1e6:
            raise InvalidInput(f"alpha={self.alpha} is outside (0, 1e6]; 0.1 is very uneven, 100 nearly even")
        if self.min_size < 0:
            raise InvalidInput(f"min_size={self.min_size} is negative; an agent needs at least 1")

    def __str__(self) -> str:
        least = f", min_size={self.min_size}" if self.min_size != 1 else ""
        return f"Dirichlet(alpha={self.alpha:.12g}{least})"

    def __call__(
        self, targets: Int64[Tensor, "records"], classes: int | None, agents: int, rng: np.random.Generator
    ) -> Rows:
        """Return the rows that each agent holds; shares are redrawn until all have `min_size`."""
        per_class = _class_counts(self, targets, classes)
        best = 0
        for _ in range(_DRAWS):
            shares = rng.dirichlet(np.full(agents, self.alpha), size=len(per_class)).T
            counts = apportion(shares, per_class)
            best = max(best, int(counts.sum(axis=1).min()))
            if best >= self.min_size:
                return _assign(counts, targets, rng)
        raise DataError(
            f"{self} gave the smallest of {agents} agents at most {best} of {len(targets)} records in "
            f"{_DRAWS} draws, not the {self.min_size} asked for; "
            "use a larger alpha, fewer agents or a smaller min_size"
        )


@dataclass(frozen=True, kw_only=True)
class IID:
    """Every record to an agent at random; sizes differ by at most one."""

    def __str__(self) -> str:
        return "IID"

    def __call__(
        self, targets: Int64[Tensor, "records"], classes: int | None, agents: int, rng: np.random.Generator
    ) -> Rows:
        """Return the rows that each agent holds."""
        return _rows(rng.permutation(np.arange(len(targets)) % agents), agents)


def class_fractions(t: float, agents: int, classes: int) -> Float64[np.ndarray, "agents classes"]:
    """A(t) = (1 − t)/N + t·S: entry (i, j) is the share of class j that agent i holds.

    S gives class j to its own agents: to agent j mod N, as in the paper, or, where agents outnumber classes,
    in equal shares to those with i mod J = j, which the paper leaves open.
    """
    if agents < 1 or classes < 1:
        raise InvalidInput(
            f"A(t) of {agents} agents and {classes} classes does not exist; there must be at least one of each"
        )
    groups = min(agents, classes)
    own = np.equal.outer(np.arange(agents) % groups, np.arange(classes) % groups).astype(np.float64)
    fractions: Float64[np.ndarray, "agents classes"] = (1 - t) / agents + t * own / own.sum(axis=0)
    return fractions


def apportion(
    shares: Float64[np.ndarray, "agents classes"], per_class: Int64[np.ndarray, "classes"]
) -> Int64[np.ndarray, "agents classes"]:
    """Turn shares into whole records, so that each class is divided completely.

    Each agent gets the whole records of its share. The remainder of a class goes, one each, to those whose
    shares were rounded down most so far. Without that memory the same agents would win in every class: 100
    classes of 500 over 1,000 agents would leave half of them with 100 records and half with none.
    """
    wanted = shares * per_class
    counts: Int64[np.ndarray, "agents classes"] = np.floor(wanted + _ROUNDING).astype(np.int64)
    owed = np.zeros(len(shares))
    for j, left in enumerate(per_class - counts.sum(axis=0)):
        fraction = wanted[:, j] - counts[:, j]
        owed += fraction
        claim = np.where(fraction > _ROUNDING, owed, -np.inf)  # agents with no share of a class get none
        winners = np.argsort(-claim, kind="stable")[:left]
        counts[winners, j] += 1
        owed[winners] -= 1
    return counts


def _class_counts(rule: Partition, targets: Tensor, classes: int | None) -> Int64[np.ndarray, "classes"]:
    if classes is None:
        raise DataError(f"{rule} divides records by class, but these have no classes; use IID()")
    return np.bincount(targets.cpu().numpy(), minlength=classes)


def _assign(counts: Int64[np.ndarray, "agents classes"], targets: Tensor, rng: np.random.Generator) -> Rows:
    shuffled = rng.permutation(len(targets))
    by_class = shuffled[np.argsort(targets.cpu().numpy()[shuffled], kind="stable")]
    agents, classes = counts.shape
    holder = np.empty(len(targets), dtype=np.int64)
    holder[by_class] = np.repeat(np.tile(np.arange(agents), classes), counts.T.ravel())
    return _rows(holder, agents)


def _rows(holder: Int64[np.ndarray, "records"], agents: int) -> Rows:
    sizes = np.bincount(holder, minlength=agents)
    return np.split(np.argsort(holder, kind="stable"), np.cumsum(sizes)[:-1])
