"""From the guesses of one run to a lower bound on ε. Nothing here runs an attack.

Each of m canaries is included or left out by its own fair coin, one model is trained, and an attack that does not see the coins
guesses r of them and abstains on the rest. Adjacency is add-remove. m and r must be fixed before the coins are seen; if r is chosen
afterwards for the best bound, the stated confidence is wrong.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import expit
from scipy.stats import binom

from tacit.audit.bounds.rates import Bound, check_terms, gaussian_epsilon
from tacit.audit.bounds.tradeoff import Curve, gaussian_curve, refuted_noise_bound
from tacit.errors import InvalidInput
from tacit.privacy.event import Event

_HALVINGS = 40


@dataclass(frozen=True, kw_only=True)
class Guesses:
    """Of `canaries` included or left out by fair coins, `guesses` were guessed and `correct` of these were right."""

    canaries: int
    guesses: int
    correct: int

    def __post_init__(self) -> None:
        if self.canaries < 1:
            raise InvalidInput(f"canaries is {self.canaries}; at least one is needed")
        if not 0 <= self.guesses <= self.canaries:
            raise InvalidInput(f"guesses is {self.guesses}; it must lie between 0 and canaries={self.canaries}")
        if not 0 <= self.correct <= self.guesses:
            raise InvalidInput(f"correct is {self.correct}; it must lie between 0 and guesses={self.guesses}")


def guess(scores: Float[np.ndarray, "canaries"], included: Bool[np.ndarray, "canaries"], *, guesses: int) -> Guesses:
    """Guess "in" for the highest scores, half of `guesses`, and "out" for the lowest; ties go by index."""
    if scores.shape != included.shape or scores.ndim != 1 or not np.isfinite(scores).all():
        raise InvalidInput("scores and included must be equally long lists, the scores finite")
    if not 0 <= guesses <= len(scores):
        raise InvalidInput(f"guesses is {guesses}; it must lie between 0 and canaries={len(scores)}")
    order = np.argsort(scores, kind="stable")
    out, into = order[: guesses // 2], order[len(scores) - (guesses - guesses // 2) :]
    correct = int(np.sum(included[into])) + int(np.sum(~included[out]))
    return Guesses(canaries=len(scores), guesses=guesses, correct=correct)


def one_run_p_value(outcome: Guesses, epsilon: float, delta: float) -> float:
    """Bound the probability of this many correct guesses or more against any (ε, δ)-DP mechanism.

    Steinke, Nasr & Jagielski 2023: with W binomial of r guesses, each right with probability e^ε/(1 + e^ε),
    P[W ≥ v] + 2mδ·max over i ≥ 1 of P[v > W ≥ v - i]/i.
    """
    m, r, v = outcome.canaries, outcome.guesses, outcome.correct
    right = float(expit(epsilon))
    tail = float(binom.sf(v - 1, r, right))
    if delta == 0 or v == 0:
        return min(tail, 1.0)
    shift = np.arange(1, v + 1)
    between = np.cumsum(binom.pmf(v - shift, r, right))
    return min(tail + 2 * m * delta * float(np.max(between / shift)), 1.0)


def one_run_bound(outcome: Guesses, *, delta: float, confidence: float) -> Bound:
    """Bound ε for any mechanism by the largest ε whose p-value stays below 1 - confidence."""
    check_terms(delta, confidence)
    epsilon = _largest(lambda value: one_run_p_value(outcome, value, delta) < 1 - confidence)
    return Bound(epsilon=epsilon, method="one_run", confidence=confidence, delta=delta)


def one_run_fdp_bound(outcome: Guesses, *, delta: float, confidence: float, event: Event | None = None) -> Bound:
    """Bound ε by refuting trade-off curves, after Mahloujifar, Melis & Chaudhuri 2024.

    The curves are those of `event` with its noise varied (see `tradeoff_bound`), or of Gaussian DP without an event. The bound
    holds for mechanisms of that family: for Gaussian DP, only where the central limit is close.
    """
    check_terms(delta, confidence, positive=True)

    def refutes(curve: Curve) -> bool:
        return fdp_refutes(outcome, curve, 1 - confidence)

    if event is None:
        mu = _largest(lambda value: refutes(gaussian_curve(value)))
        epsilon = gaussian_epsilon(mu, delta)
        return Bound(epsilon=epsilon, method="one_run_fdp", confidence=confidence, delta=delta, mu=mu)
    return refuted_noise_bound("one_run_fdp", event, refutes, delta=delta, confidence=confidence)


def fdp_refutes(outcome: Guesses, curve: Curve, risk: float) -> bool:
    """Return whether this many correct guesses or more have a probability below `risk` under the symmetric curve f.

    Let P_i be the probability of i or more correct guesses. Draw one canary j at random and flip its coin. "Guess j
    is right and more than i are right" becomes "guess j is wrong and i or more are right", and the two coins' outputs
    obey f; averaged over j and the coins, by the convexity of f,

        Σ_{k ≥ i} (r - k)·p_k / m ≥ f(1 - Σ_{k > i} k·p_k / m),     p_k = P_k - P_{k+1}.

    In tails the left sum is ((r - i)·P_i - Σ_{k > i} P_k) / m, the right ((i + 1)·P_{i+1} + Σ_{k > i+1} P_k) / m, so
    every P_i has a least value that grows with all the P_k above it. Starting from P_v = risk and zeros above, the
    least values are computed downward; if one exceeds 1, then P_v = risk was impossible. This is the paper's recursion
    in other variables. Rounding matters only for a risk below about 1e-9.
    """
    m, r, v = outcome.canaries, outcome.guesses, outcome.correct
    tail, above = risk, 0.0  # the least P_{i+1}, and the sum of the P_k with k > i+1
    for i in range(v - 1, -1, -1):
        hits = ((i + 1) * tail + above) / m
        above += tail
        least = (above + m * curve(1 - hits)) / (r - i)
        if least <= tail:  # then so are all lower ones
            return False
        if least > 1:
            return True
        tail = least
    return False


def _largest(refuted: Callable[[float], bool]) -> float:
    """Return the largest refuted value, rounded down by bisection; 0 if none is refuted."""
    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high):
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
