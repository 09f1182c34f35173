"""From events to ε. Nothing here holds data or changes anything.

An `Event` is what the oracle does to one data set: `count` queries, each of a Poisson lot at rate q under
Gaussian noise of σ times the clipping norm, or by the worst of several mechanisms. Everything is an upper bound computed by `dp-accounting`:
privacy loss distributions (`pld`, tight) or Rényi divergences (`rdp`). A combination that the accountant
cannot handle is an error, never a guess. Discrete noise has known Rényi divergences of whole orders only, so whatever is counted together
with it is counted by these (`rounding` has the proof). Where groups of records take turns, a record that replaces another may be in
another group: its turns are then other queries, and no pair of distributions of one query covers both. Under replace-one, whatever is
counted together with such queries is counted as a removal and an addition, by Rényi divergences. The distance between noise on
its grid and ideal noise is part of δ. `calibration` finds the σ for a target ε.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, get_args

from tacit.errors import PrivacyError, choose
from tacit.privacy.distances import LOG2_DISTANCE
from tacit.privacy.event import Case, Event

if TYPE_CHECKING:  # slow to import, and not needed for reading a ledger
    import dp_accounting

Accountant = Literal["pld", "rdp"]
Adjacency = Literal["add_remove", "replace_one"]

# PLD works on a grid of privacy losses. A cell of this share of ε makes it too large by about a hundredth of a percent
# for thousands of queries, and by more for millions.
CELL = 4e-5
_LARGEST_CELL = 2.0**-7
# For very many distinct rates at once: coarser cells and rates rounded up to a geometric
# grid. Both err on the safe side, by up to about two percent of σ.
COARSE_CELL = 4e-4
_RATE_GRID = 1.02
MANY = 12
WHOLE_ORDERS = (*range(2, 128), *range(128, 512, 16), 512, 1024, 2048)
"""The orders of Rényi divergences that are known for discrete noise: dp-accounting computes them by the formula for whole orders."""
MOST_EPSILON = (-LOG2_DISTANCE - 1075) * math.log(2)
"""A larger ε counts as infinite, 726,026 and more: up to here (1 + e^ε)·2^LOG2_DISTANCE is below 2⁻¹⁰⁷⁴; see `for_ideal_noise`."""
FOURIER_SHARE = 2.0**-52
"""How much of δ is kept for each query against the rounding of Fourier transforms, by which distributions are composed in float64. δ was off by at
most 0.4·2⁻⁵³ for each query where it is known: up to 10⁵ queries, with lots of all records and of few."""
# With more cells than this the noise protects nothing, and they are not worth their memory: ε counts as infinite.
_MOST_CELLS = 2**26


def check(accountant: str, adjacency: str, delta: float) -> None:
    """Refuse combinations that no accountant here supports."""
    choose("accountant", accountant, get_args(Accountant))
    choose("adjacency", adjacency, get_args(Adjacency))
    if accountant == "rdp" and adjacency == "replace_one":
        raise PrivacyError(
            "the rdp accountant has no bound for Poisson lots under replace-one adjacency; the pld accountant has one, but not for discrete noise"
        )
    if not 0 < delta < 1:
        raise PrivacyError(f"delta is {delta}; it must lie strictly between 0 and 1")
    if delta < sys.float_info.min:
        raise PrivacyError(
            f"delta is {delta}; below {sys.float_info.min:.3g} there is no room for the distance to ideal noise"
        )


def ceil_digits(value: float, digits: int = 4) -> float:
    """Round up to this many significant digits, so that an ε is never shown as less than it is. Nothing else rounds an ε."""
    if not 0 < value < math.inf:
        return value
    scale = 10.0 ** (digits - 1 - math.floor(math.log10(value)))
    return math.ceil(value * scale * (1 - 1e-12)) / scale


def epsilon(
    events: Sequence[Event],
    *,
    delta: float,
    accountant: Accountant = "pld",
    adjacency: Adjacency = "add_remove",
) -> float:
    """Return ε of all `events` together on one data set."""
    check(accountant, adjacency, delta)
    return derive_epsilon(_merge(events), delta, accountant, adjacency, CELL)


def epsilons(
    histories: Sequence[Sequence[Event]],
    *,
    delta: float,
    accountant: Accountant = "pld",
    adjacency: Adjacency = "add_remove",
) -> list[float]:
    """Return ε of each history. With very many distinct ones, most are upper bounds within a few percent.

    The largest always equals that of `largest_epsilon`.
    """
    check(accountant, adjacency, delta)
    merged = [_merge(events) for events in histories]
    cell = CELL
    if len(set(merged)) > MANY:
        cell = COARSE_CELL
        merged = [_merge([_rates_up(event) for event in events]) for events in merged]
    values = [derive_epsilon(events, delta, accountant, adjacency, cell) for events in merged]
    if len(set(values)) == 1 and cell == CELL:
        return values
    _, most = largest_epsilon(histories, delta=delta, accountant=accountant, adjacency=adjacency)
    return [min(value, most) for value in values]


def largest_epsilon(
    histories: Sequence[Sequence[Event]],
    *,
    delta: float,
    accountant: Accountant = "pld",
    adjacency: Adjacency = "add_remove",
) -> tuple[int, float]:
    """Return the index of the history with the largest ε, the first of equal ones, and that ε, as exactly as for one history alone.

    Histories that differ by rounding are equal, too. Histories that another one dominates (the same number of events, none with a larger rate or count or less noise, in this
    order) cannot have more. For the others, a coarse upper bound decides which are worth deriving.
    """
    from tacit.ties import RELATIVE, first_largest

    check(accountant, adjacency, delta)
    if not histories:
        raise PrivacyError("no histories were given, so there is no largest ε")
    front = _undominated(histories)
    exact = [(place, _merge(histories[place])) for place in front]
    if len(front) > 1 and accountant == "pld":
        bounds = [derive_epsilon(events, delta, accountant, adjacency, COARSE_CELL) for _, events in exact]
    else:
        bounds = [math.inf] * len(exact)
    found: dict[int, float] = {}
    most = -1.0
    for bound, (place, events) in sorted(zip(bounds, exact, strict=True), key=lambda each: (-each[0], each[1][0])):
        if bound < most * (1 - RELATIVE):
            break
        found[place] = derive_epsilon(events, delta, accountant, adjacency, CELL)
        most = max(most, found[place])
    places = sorted(found)
    largest = histories[places[first_largest(found[place] for place in places)]]
    return next(place for place, events in enumerate(histories) if _alike(events, largest, RELATIVE)), most


def _alike(some: Sequence[Event], others: Sequence[Event], relative: float) -> bool:
    return len(some) == len(others) and all(
        one.is_near(other, relative) for one, other in zip(some, others, strict=True)
    )


def _undominated(histories: Sequence[Sequence[Event]]) -> list[int]:
    """Return the indices of histories that no other dominates, the first of equal ones."""
    first: dict[tuple[Event, ...], int] = {}
    for place, events in enumerate(histories):
        first.setdefault(tuple(events), place)
    front: list[tuple[Event, ...]] = []
    # A dominated history comes after the one that dominates it.
    for events in sorted(first, key=lambda all_of: [_size(event) for event in all_of]):
        if not any(_dominates(other, events) for other in front):
            front.append(events)
    return sorted(first[events] for events in front)


def _size(event: Event) -> tuple[float, float, int, bool, bool]:
    return (-event.sample_rate, event.noise_multiplier, -event.count, not event.discrete, not event.cyclic)


def _dominates(one: Sequence[Event], other: Sequence[Event]) -> bool:
    return len(one) == len(other) and all(a.dominates(b) for a, b in zip(one, other, strict=True))


def _merge(events: Sequence[Event]) -> tuple[Event, ...]:
    """Add up the counts of equal mechanisms, in a canonical order: the order does not matter for composition."""
    counts: dict[tuple[tuple[Case, ...], bool, bool], int] = {}
    for event in events:
        kind = (event.cases, event.discrete, event.cyclic)
        counts[kind] = counts.get(kind, 0) + event.count
    return tuple(
        Event.of(cases, count, discrete=discrete, cyclic=cyclic)
        for (cases, discrete, cyclic), count in sorted(counts.items())
        if count
    )


@lru_cache(maxsize=65536)
def derive_epsilon(
    events: tuple[Event, ...], delta: float, accountant: Accountant, adjacency: Adjacency, cell: float
) -> float:
    """Return ε of merged events, by a grid of privacy losses whose cells are this share of ε."""
    if not events:
        return 0.0
    kept, used = for_ideal_noise(delta), accountant_of(events, accountant, adjacency)
    with quiet_accountants():
        epsilon = _by_renyi(events, kept, adjacency) if used == "rdp" else _by_losses(events, kept, adjacency, cell)
    return epsilon if epsilon <= MOST_EPSILON else math.inf


def accountant_of(events: Sequence[Event], accountant: Accountant, adjacency: Adjacency) -> Accountant:
    """Return the accountant that counts these events: the one asked for, or Rényi divergences where only they are known to hold.

    That is where noise is discrete and, under replace-one, where groups of records take turns.
    """
    replaced = adjacency == "replace_one"
    return "rdp" if any(event.discrete or (event.cyclic and replaced) for event in events) else accountant


def _by_renyi(events: tuple[Event, ...], delta: float, adjacency: Adjacency) -> float:
    import numpy as np
    from dp_accounting import rdp

    orders = np.asarray(rdp.RdpAccountant().orders)
    if any(event.discrete for event in events):
        orders = np.asarray(WHOLE_ORDERS)

    def added_or_removed(case: Case, at: "np.ndarray") -> "np.ndarray":
        accountant = rdp.RdpAccountant(at)  # of add-or-remove-one, the only adjacency it has
        return np.asarray(accountant.compose(dp_event(Event.of([case], 1))).rdp)

    def divergences(case: Case) -> "np.ndarray":
        if adjacency == "add_remove":
            return added_or_removed(case, orders)
        # To replace a record is to remove one and to add one; `filters` names the proposition.
        removed, added = added_or_removed(case, 2 * orders), added_or_removed(case, 2 * orders - 1)
        return (orders - 0.5) / (orders - 1) * removed + added

    total = sum(event.count * np.max([divergences(case) for case in event.cases], axis=0) for event in events)
    return float(rdp.compute_epsilon(orders, total, delta)[0])


def _by_losses(events: tuple[Event, ...], delta: float, adjacency: Adjacency, cell: float) -> float:
    from tacit.privacy.losses import composed_epsilon

    # A power of two that only grows with the events, so that ε never shrinks as events are added.
    span = max(rough_epsilon(events, delta), 2 * max(largest_loss(event) for event in events))
    interval = min(2.0 ** math.ceil(math.log2(max(span, 1e-9) * cell)), _LARGEST_CELL)
    if sum(event.count * largest_loss(event) for event in events) > _MOST_CELLS * _LARGEST_CELL:
        return math.inf
    queries = [(event.cases, event.count) for event in events]
    left = delta - FOURIER_SHARE * sum(event.count for event in events)
    return composed_epsilon(queries, left, adjacency, interval) if left > 0 else math.inf


def for_ideal_noise(delta: float) -> float:
    """Return the δ that ideal noise must satisfy so that the actual noise satisfies `delta` at the same ε.

    If all numbers released are within a total variation of τ = 2^LOG2_DISTANCE of the ideal ones, then (ε, δ - (1 + e^ε)·τ) for
    ideal noise is (ε, δ) for the actual one. Up to MOST_EPSILON that product is at most 2⁻¹⁰⁷⁴, and no two float64 numbers are
    closer together. So the float64 number just below δ will do.
    """
    return math.nextafter(delta, 0.0)


def rough_epsilon(events: Sequence[Event], delta: float) -> float:
    """About ε, by the central limit theorem of Gaussian DP. Good for choosing a grid or a first guess only."""
    mu_squared = sum(
        event.count * max(rate**2 * math.expm1(min(sigma**-2, 50.0)) for rate, sigma in event.cases) for event in events
    )
    return mu_squared / 2 + math.sqrt(2 * mu_squared * math.log(1 / delta))


def largest_loss(event: Event) -> float:
    """About the largest privacy loss of one query, at eight standard deviations."""
    return max(math.log1p(rate * math.expm1(min(8 / sigma + 0.5 / sigma**2, 700.0))) for rate, sigma in event.cases)


def dp_event(event: Event) -> "dp_accounting.DpEvent":
    """Return one query of an event, as dp-accounting describes it."""
    import dp_accounting

    gaussian = dp_accounting.GaussianDpEvent(event.noise_multiplier)
    return dp_accounting.PoissonSampledDpEvent(event.sample_rate, gaussian)


def _rates_up(event: Event) -> Event:
    cases = [(round_rate_up(rate), sigma) for rate, sigma in event.cases]
    return Event.of(cases, event.count, discrete=event.discrete, cyclic=event.cyclic)


def round_rate_up(rate: float) -> float:
    """Round a rate up to a geometric grid, so that very many rates become few."""
    return min(1.0, _RATE_GRID ** math.ceil(math.log(rate, _RATE_GRID) - 1e-9))


@contextmanager
def quiet_accountants() -> Iterator[None]:
    """Silence the accountants' messages about their own search, and nothing else."""
    from absl import logging

    before = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(before)
