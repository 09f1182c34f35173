"""From a target ε to σ: calibration by secant steps on the accountant itself, from a guess by the central limit theorem.

That is as fast as a bracket by Rényi divergences, and valid for both adjacencies.
"""

import math
from collections.abc import Callable, Sequence

from tacit.errors import PrivacyError
from tacit.privacy.accounting import (
    CELL,
    COARSE_CELL,
    FOURIER_SHARE,
    MANY,
    Accountant,
    Adjacency,
    ceil_digits,
    check,
    derive_epsilon,
    rough_epsilon,
    round_rate_up,
)
from tacit.privacy.event import Event

_SIGMA_RANGE = (0.05, 1e6)


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
    """Return the smallest σ (to five digits, fewer where δ is tiny, rounded up) whose `queries` queries stay within (ε, δ)."""
    check(accountant, adjacency, delta)
    _check_target(epsilon, sample_rate, queries)
    return _calibrate(epsilon, delta, sample_rate, queries, accountant, adjacency, CELL, discrete=discrete)


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
    many = len(set(targets)) > MANY
    if many:
        targets = [(target, round_rate_up(rate)) for target, rate in targets]
    cell = COARSE_CELL if many else CELL
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
    if accountant == "pld" and delta <= (least := FOURIER_SHARE * queries):
        raise PrivacyError(
            f"delta is {delta:g}, and the pld accountant keeps {least:.2g} for its own rounding with {queries:,} queries; use a larger delta, "
            "or the rdp accountant"
        )

    def events(sigma: float) -> tuple[Event, ...]:
        return (Event(sample_rate=rate, noise_multiplier=sigma, count=queries, discrete=discrete),)

    def spent(sigma: float) -> float:
        return derive_epsilon(events(sigma), delta, accountant, adjacency, cell)

    if guess is None:
        guess = _solve(lambda sigma: rough_epsilon(events(sigma), delta), target, 1.0, slack=1e-2)
        guess *= 2 if adjacency == "replace_one" else 1
    digits = _digits(accountant, queries, delta)
    return _solve(spent, target, guess, slack=1e-4 if cell == CELL else 2e-3, digits=digits)


def _digits(accountant: Accountant, queries: int, delta: float) -> int:
    """Return how many digits σ has: so few that what rounding does to δ hardly ever decides about the last one."""
    moved = FOURIER_SHARE * queries / delta if accountant == "pld" else 0.0
    return 5 if moved <= 1e-6 else 4 if moved <= 1e-5 else 3


def _solve(spent: Callable[[float], float], target: float, guess: float, slack: float, digits: int = 5) -> float:
    """Return a σ of so many digits with target·(1 - slack) ≤ spent(σ) ≤ target, or the next one above it.

    log ε is nearly linear in log σ, with a slope near -1, so secant steps from a fair guess need few
    evaluations; they stay inside the bracket between a σ known to be too small and one known to be enough.
    """
    low, high = _SIGMA_RANGE
    too_little, enough = low / 10, high * 10
    sigma = ceil_digits(min(max(guess, low), high), digits)
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
        if enough <= ceil_digits(too_little * (1 + 1e-5), digits):
            return enough
        point = (math.log(sigma), math.log(min(max(now, 1e-12), 1e12)))
        if before is not None and point[0] != before[0]:
            slope = min(max((point[1] - before[1]) / (point[0] - before[0]), -10.0), -0.3)
        before = point
        # Aim slightly inside the target range, from either side.
        aim = math.log(target * (1 - slack / 2))
        step = min(max((aim - point[1]) / slope, -1.0), 1.0)
        sigma = min(max(ceil_digits(sigma * math.exp(step), digits), low), high)
        if not too_little < sigma < enough:
            sigma = ceil_digits(math.sqrt(too_little * enough), digits)
            if not too_little < sigma < enough:
                return enough
