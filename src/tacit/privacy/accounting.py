"""From events to ε, and from a target ε to σ. Nothing here holds data or changes anything.

An `Event` is what the oracle does to one data set: `count` queries, each of a Poisson lot at rate q under
Gaussian noise of σ times the clipping norm, or by the worst of several mechanisms. Everything is an upper bound computed by `dp-accounting`:
privacy loss distributions (`pld`, tight) or Rényi divergences (`rdp`). A combination that the accountant
cannot handle is an error, never a guess. Discrete noise has known Rényi divergences of whole orders only, so whatever is counted together
with it is counted by these (`rounding` has the proof). Where groups of records take turns, a record that replaces another may be in
another group: its turns are then other queries, and no pair of distributions of one query covers both. Under replace-one, whatever is
counted together with such queries is counted as a removal and an addition, by Rényi divergences. Calibration is by secant steps on the accountant itself, from a guess by the
central limit theorem: as fast as a bracket by Rényi divergences, and valid for both adjacencies. The distance between noise on
its grid and ideal noise is part of δ.
"""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, get_args

from tacit.errors import PrivacyError, choose
from tacit.privacy.distances import LOG2_DISTANCE
from tacit.privacy.event import Case
from tacit.privacy.event import Event as Event

if TYPE_CHECKING:  # slow to import, and not needed for reading a ledger
    import dp_accounting

Accountant = Literal["pld", "rdp"]
Adjacency = Literal["add_remove", "replace_one"]

# PLD works on a grid of privacy losses. A cell of this share of ε makes it too large by about a hundredth of a percent
# for thousands of queries, and by more for millions.
_CELL = 4e-5
_LARGEST_CELL = 2.0**-7
# For very many distinct rates at once: coarser cells and rates rounded up to a geometric
# grid. Both err on the safe side, by up to about two percent of σ.
_COARSE_CELL = 4e-4
_RATE_GRID = 1.02
_MANY = 12
WHOLE_ORDERS = (*range(2, 128), *range(128, 512, 16), 512, 1024, 2048)
"""The orders of Rényi divergences that are known for discrete noise: dp-accounting computes them by the formula for whole orders."""
_SIGMA_RANGE = (0.05, 1e6)
MOST_EPSILON = (-LOG2_DISTANCE - 1075) * math.log(2)
"""A larger ε counts as infinite, 726,026 and more: up to here (1 + e^ε)·2^LOG2_DISTANCE is below 2⁻¹⁰⁷⁴; see `for_ideal_noise`."""
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
    """Round up to so many significant digits: what is shown of an ε is never less than it is. The one place that does so."""
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
    return _epsilon(_merge(events), delta, accountant, adjacency, _CELL)


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
    cell = _CELL
    if len(set(merged)) > _MANY:
        cell = _COARSE_CELL
        merged = [_merge([_rates_up(event) for event in events]) for events in merged]
    values = [_epsilon(events, delta, accountant, adjacency, cell) for events in merged]
    if len(set(values)) == 1 and cell == _CELL:
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
    """Return the index of the history with the largest ε, and that ε, as exactly as for one history alone.

    Histories that another one dominates (the same number of events, none with a larger rate or count or less noise, in this
    order) cannot have more. For the others, a coarse upper bound decides which are worth deriving.
    """
    check(accountant, adjacency, delta)
    if not histories:
        raise PrivacyError("there is no largest ε of no histories")
    front = _undominated(histories)
    exact = [(place, _merge(histories[place])) for place in front]
    if len(front) > 1 and accountant == "pld":
        bounds = [_epsilon(events, delta, accountant, adjacency, _COARSE_CELL) for _, events in exact]
    else:
        bounds = [math.inf] * len(exact)
    worst, most = front[0], -1.0
    for bound, (place, events) in sorted(zip(bounds, exact, strict=True), key=lambda each: (-each[0], each[1][0])):
        if bound <= most:
            break
        value = _epsilon(events, delta, accountant, adjacency, _CELL)
        if value > most:
            worst, most = place, value
    return worst, most


def noise_multiplier(
    *,
    epsilon: float,
    delta: float,
    sample_rate: float,
    queries: int,
    accountant: Accountant = "pld",
    adjacency: Adjacency = "add_remove",
    discrete: bool = False,
) -> float:
    """Return the smallest σ (to five digits, rounded up) whose `queries` queries stay within (ε, δ)."""
    check(accountant, adjacency, delta)
    _check_target(epsilon, sample_rate, queries)
    return _calibrate(epsilon, delta, sample_rate, queries, accountant, adjacency, _CELL, discrete=discrete)


def noise_multipliers(
    *,
    epsilons: Sequence[float],
    delta: float,
    sample_rates: Sequence[float],
    queries: int,
    accountant: Accountant = "pld",
    adjacency: Adjacency = "add_remove",
    discrete: bool = False,
) -> list[float]:
    """Calibrate many agents at once. Equal ones are calibrated once; very many distinct rates are rounded up."""
    check(accountant, adjacency, delta)
    targets = list(zip(epsilons, sample_rates, strict=True))
    for target, rate in targets:
        _check_target(target, rate, queries)
    many = len(set(targets)) > _MANY
    if many:
        targets = [(target, _round_rate_up(rate)) for target, rate in targets]
    cell = _COARSE_CELL if many else _CELL
    sigma: dict[tuple[float, float], float] = {}
    guess, before = None, 1.0
    for target, rate in sorted(set(targets)):
        if guess is not None:  # σ is close to proportional to the rate
            guess *= rate / before
        guess = _calibrate(target, delta, rate, queries, accountant, adjacency, cell, guess, discrete=discrete)
        sigma[target, rate], before = guess, rate
    return [sigma[target] for target in targets]


def _check_target(target: float, rate: float, queries: int) -> None:
    if not 0 < target < math.inf:
        raise PrivacyError(f"epsilon is {target}; it must be positive and finite")
    if queries < 1:
        raise PrivacyError(f"queries is {queries}; at least one is needed to calibrate noise")
    Event(sample_rate=rate, noise_multiplier=1.0)


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
def _epsilon(
    events: tuple[Event, ...], delta: float, accountant: Accountant, adjacency: Adjacency, cell: float
) -> float:
    if not events:
        return 0.0
    kept, used = for_ideal_noise(delta), accountant_of(events, accountant, adjacency)
    with _quiet():
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
        return np.asarray(accountant.compose(_dp_event(Event.of([case], 1))).rdp)

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
    span = max(_rough(events, delta), 2 * max(_largest_loss(event) for event in events))
    interval = min(2.0 ** math.ceil(math.log2(max(span, 1e-9) * cell)), _LARGEST_CELL)
    if sum(event.count * _largest_loss(event) for event in events) > _MOST_CELLS * _LARGEST_CELL:
        return math.inf
    queries = [(event.cases, event.count) for event in events]
    return composed_epsilon(queries, delta, adjacency, interval)


def for_ideal_noise(delta: float) -> float:
    """Return the δ that ideal noise must satisfy so that the actual noise satisfies `delta` at the same ε.

    If all numbers released are within a total variation of τ = 2^LOG2_DISTANCE of the ideal ones, then (ε, δ - (1 + e^ε)·τ) for
    ideal noise is (ε, δ) for the actual one. Up to MOST_EPSILON that product is at most 2⁻¹⁰⁷⁴, and no two float64 numbers are
    closer together. So the float64 number just below δ will do.
    """
    return math.nextafter(delta, 0.0)


def _rough(events: Sequence[Event], delta: float) -> float:
    """About ε, by the central limit theorem of Gaussian DP. Good for choosing a grid or a first guess only."""
    mu_squared = sum(
        event.count * max(rate**2 * math.expm1(min(sigma**-2, 50.0)) for rate, sigma in event.cases) for event in events
    )
    return mu_squared / 2 + math.sqrt(2 * mu_squared * math.log(1 / delta))


def _largest_loss(event: Event) -> float:
    """About the largest privacy loss of one query, at eight standard deviations."""
    return max(math.log1p(rate * math.expm1(min(8 / sigma + 0.5 / sigma**2, 700.0))) for rate, sigma in event.cases)


def _dp_event(event: Event) -> "dp_accounting.DpEvent":
    import dp_accounting

    gaussian = dp_accounting.GaussianDpEvent(event.noise_multiplier)
    return dp_accounting.PoissonSampledDpEvent(event.sample_rate, gaussian)


def _calibrate(
    target: float,
    delta: float,
    rate: float,
    queries: int,
    accountant: Accountant,
    adjacency: Adjacency,
    cell: float,
    guess: float | None = None,
    *,
    discrete: bool = False,
) -> float:
    def events(sigma: float) -> tuple[Event, ...]:
        return (Event(sample_rate=rate, noise_multiplier=sigma, count=queries, discrete=discrete),)

    def spent(sigma: float) -> float:
        return _epsilon(events(sigma), delta, accountant, adjacency, cell)

    if guess is None:
        guess = _solve(lambda sigma: _rough(events(sigma), delta), target, 1.0, slack=1e-2)
        guess *= 2 if adjacency == "replace_one" else 1
    return _solve(spent, target, guess, slack=1e-4 if cell == _CELL else 2e-3)


def _solve(spent: Callable[[float], float], target: float, guess: float, slack: float) -> float:
    """Return a σ of five digits with target·(1 - slack) ≤ spent(σ) ≤ target, or the next one above it.

    log ε is nearly linear in log σ, with a slope near -1, so secant steps from a fair guess need few
    evaluations; they stay inside the bracket between a σ known to be too small and one known to be enough.
    """
    low, high = _SIGMA_RANGE
    too_little, enough = low / 10, high * 10
    sigma = ceil_digits(min(max(guess, low), high), 5)
    before: tuple[float, float] | None = None
    slope = -1.0
    while True:
        now = spent(sigma)
        if now <= target:
            enough = sigma
            if now >= target * (1 - slack) or sigma <= low:
                return sigma
        else:
            too_little = sigma
            if sigma >= high:
                raise PrivacyError(
                    f"no noise multiplier up to {high:g} reaches epsilon={target:g}; "
                    "allow a larger epsilon or delta, smaller lots or fewer queries"
                )
        if enough <= ceil_digits(too_little * (1 + 1e-5), 5):
            return enough
        point = (math.log(sigma), math.log(min(max(now, 1e-12), 1e12)))
        if before is not None and point[0] != before[0]:
            slope = min(max((point[1] - before[1]) / (point[0] - before[0]), -10.0), -0.3)
        before = point
        # Aim slightly inside the target range, from either side.
        aim = math.log(target * (1 - slack / 2))
        step = min(max((aim - point[1]) / slope, -1.0), 1.0)
        sigma = min(max(ceil_digits(sigma * math.exp(step), 5), low), high)
        if not too_little < sigma < enough:
            sigma = ceil_digits(math.sqrt(too_little * enough), 5)
            if not too_little < sigma < enough:
                return enough


def _rates_up(event: Event) -> Event:
    cases = [(_round_rate_up(rate), sigma) for rate, sigma in event.cases]
    return Event.of(cases, event.count, discrete=event.discrete, cyclic=event.cyclic)


def _round_rate_up(rate: float) -> float:
    return min(1.0, _RATE_GRID ** math.ceil(math.log(rate, _RATE_GRID) - 1e-9))


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the accountants' messages about their own search, and nothing else."""
    from absl import logging

    before = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(before)
