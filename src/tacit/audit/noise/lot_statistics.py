"""Tests of how lots are drawn, from answers that count who was drawn: y = Σ b_j·pull_j + σξ with b_j ~ Bernoulli(q).

With small q draws are few and far from normal, so the p-values are Chernoff bounds, P(mean ≥ m) ≤ exp(-n·I(m)) with
I(m) = sup_λ λm - log E e^{λy} over tilts λ, doubled for the two sides. They may be some ten times too large, never too small.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq, minimize_scalar
from scipy.special import expit
from scipy.stats import binom

_MOST = 1 - 1e-6  # in place of 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Draws:
    """Answers along the records' sum, and what each record adds to it when drawn."""

    answers: Float[np.ndarray, " answers"]
    pulls: Float[np.ndarray, " records"]

    @property
    def alike(self) -> bool:
        """Whether all records pull equally, so that answers count lots."""
        return bool(np.ptp(self.pulls) <= 1e-6 * np.abs(self.pulls).max())

    @property
    def rate(self) -> float:
        """The share of records drawn, by least squares."""
        return float(self.answers.mean() / self.pulls.sum())


def rate_p_value(drawn: Draws, rate: float, sigma: float) -> float:
    """Bound twice the probability of a mean at least as far off on the same side."""
    pulls, mean = drawn.pulls, float(drawn.answers.mean())
    with np.errstate(divide="ignore"):
        out, into = np.log1p(-rate), np.log(rate)

    def short(tilt: float) -> float:
        return mean - tilt * sigma**2 - float(pulls @ expit(into - out + tilt * pulls))

    off = short(0.0)
    tilt = off / (sigma**2 + rate * (1 - rate) * float(pulls @ pulls))
    while short(tilt) * off > 0 and abs(tilt) < abs(off) / sigma**2:  # a tilt moves the mean by at least σ²
        tilt *= 2
    if short(tilt) * off < 0:
        tilt = float(brentq(short, 0.0, tilt))
    grown = float(np.logaddexp(out, into + tilt * pulls).sum())
    return _two_sided(drawn, tilt * mean - tilt**2 * sigma**2 / 2 - grown)


def rate_interval(drawn: Draws, sigma: float, risk: float) -> tuple[float, float]:
    """Return the least and the largest q whose p-value is not below `risk`."""
    middle = min(max(drawn.rate, 0.0), 1.0)

    def above(rate: float) -> float:
        return rate_p_value(drawn, rate, sigma) - risk

    def end(last: float) -> float:
        if above(last) >= 0:
            return last
        return middle if above(middle) <= 0 else float(brentq(above, last, middle, xtol=1e-9))

    return end(0.0), end(1.0)


def spread_p_value(drawn: Draws, rate: float, sigma: float) -> float:
    """Bound twice the probability of answers that vary at least as much, or at most as much, as these.

    For a lot whose sum is d from the mean, E e^{λ(y - mean)²} = exp(λd²/(1 - 2λσ²))/√(1 - 2λσ²). Records must pull equally.
    """
    records, pull = len(drawn.pulls), float(drawn.pulls.mean())
    sizes = np.arange(records + 1)
    chances, away = binom.logpmf(sizes, records, rate), (pull * (sizes - rate * records)) ** 2
    square = float(np.mean((drawn.answers - rate * pull * records) ** 2))
    variance = sigma**2 + rate * (1 - rate) * records * pull**2

    def exponent(scaled: float) -> float:
        tilt = scaled / (2 * variance)
        rest = 1 - 2 * tilt * sigma**2
        return tilt * square + math.log(rest) / 2 - float(np.logaddexp.reduce(chances + tilt / rest * away))

    # Every tilt gives a valid bound; the search only makes it stronger.
    found = minimize_scalar(
        (lambda at: -exponent(at)) if square > variance else (lambda at: -exponent(-at / (1 - at))),
        bounds=(0.0, _MOST),
        method="bounded",
    )
    return _two_sided(drawn, -float(found.fun))


def _two_sided(drawn: Draws, exponent: float) -> float:
    return min(1.0, 2 * math.exp(-len(drawn.answers) * max(exponent, 0.0)))
