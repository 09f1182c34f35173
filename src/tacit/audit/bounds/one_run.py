"""From the guesses of one run to a lower bound on ε. Nothing here runs an attack.

Each of m canaries is put in or left out by a fair coin of its own, one model is trained, and an attack that does not
see the coins guesses at most r of them, abstaining on the rest. A canary put in or left out is add-remove adjacency.
m and r are fixed before the coins are seen; r chosen for the best bound afterwards makes the confidence untrue.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import expit
from scipy.stats import binom

from tacit.audit.bounds.rates import Bound, check, gaussian_epsilon
from tacit.audit.bounds.tradeoff import Curve, family_epsilon, gaussian_curve, least_noise_refuted
from tacit.errors import InvalidInput
from tacit.privacy.accounting import Event

_HALVINGS = 40


@dataclass(frozen=True, kw_only=True)
class Guesses:
    """Of `canaries` put in or left out by fair coins, `guesses` were guessed, `correct` of them rightly."""

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
    """Guess "in" for the highest half of `guesses` scores and "out" for the lowest, ties in order of index."""
    if scores.shape != included.shape or scores.ndim != 1 or not np.isfinite(scores).all():
        raise InvalidInput("scores and included must be equally long lists, the scores finite")
    if not 0 <= guesses <= len(scores):
        raise InvalidInput(f"guesses is {guesses}; it must lie between 0 and canaries={len(scores)}")
    order = np.argsort(scores, kind="stable")
    out, into = order[: guesses // 2], order[len(scores) - (guesses - guesses // 2) :]
    correct = int(np.sum(included[into])) + int(np.sum(~included[out]))
    return Guesses(canaries=len(scores), guesses=guesses, correct=correct)


def one_run_p_value(outcome: Guesses, epsilon: float, delta: float) -> float:
    """Bound the probability of so many correct guesses, or more, against any (ε, δ)-DP mechanism.

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
    check(delta, confidence)
    epsilon = _largest(lambda value: one_run_p_value(outcome, value, delta) < 1 - confidence)
    return Bound(epsilon=epsilon, method="one_run", confidence=confidence, delta=delta)


def one_run_fdp_bound(outcome: Guesses, *, delta: float, confidence: float, event: Event | None = None) -> Bound:
    """Bound ε by refuting trade-off curves, after Mahloujifar, Melis & Chaudhuri 2024.

    The curves are those of Gaussian DP, or of `event` under varied noise (see `tradeoff_bound`). The bound holds
    for mechanisms of that family: with the Gaussian one, only where the central limit is close.
    """
    check(delta, confidence, positive=True)

    def refutes(curve: Curve) -> bool:
        return fdp_refutes(outcome, curve, 1 - confidence)

    if event is None:
        mu = _largest(lambda value: refutes(gaussian_curve(value)))
        epsilon = gaussian_epsilon(mu, delta)
        return Bound(epsilon=epsilon, method="one_run_fdp", confidence=confidence, delta=delta, mu=mu)
    noise, capped = least_noise_refuted(event, refutes) or (None, False)
    return Bound(
        epsilon=0.0 if noise is None else family_epsilon(event, noise, delta),
        method="one_run_fdp",
        confidence=confidence,
        delta=delta,
        noise_multiplier=noise,
        capped=capped,
    )


def fdp_refutes(outcome: Guesses, curve: Curve, risk: float) -> bool:
    """Return whether so many correct guesses, or more, have probability below `risk` under this symmetric curve f.

    Let P_i be the probability of i or more correct guesses. Draw one canary j at random and flip its coin. "Guess j
    is right and more than i are right" becomes "guess j is wrong and i or more are right", and the two coins' outputs
    obey f; averaged over j and the coins, by the convexity of f,

        Σ_{k ≥ i} (r - k)·p_k / m ≥ f(1 - Σ_{k > i} k·p_k / m),     p_k = P_k - P_{k+1}.

    In tails the left sum is ((r - i)·P_i - Σ_{k > i} P_k) / m, the right ((i + 1)·P_{i+1} + Σ_{k > i+1} P_k) / m, so
    every P_i has a least value that grows with all the P_k above it. Starting from P_v = risk and zeros above, the
    least values are computed downward; if one exceeds 1, then P_v = risk was impossible. This is the paper's recursion
    in other variables. Rounding is felt only for a risk below about 1e-9.
    """
    m, r, v = outcome.canaries, outcome.guesses, outcome.correct
    tail, above = risk, 0.0  # the least P_{i+1}, and the sum of the P_k with k > i+1
    for i in range(v - 1, -1, -1):
        hits = ((i + 1) * tail + above) / m
        above += tail
        least = (above + m * curve(1 - hits)) / (r - i)
        if least <= tail:  # then all the lower ones stay at this value too
            return False
        if least > 1:
            return True
        tail = least
    return False


def _largest(refuted: Callable[[float], bool]) -> float:
    """Return, from below, the end of the refuted values that begin at 0; 0 if there are none."""
    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high):
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
