"""Measures of the runs of `convergence`: where they settle, how fast they get there, and how that depends on σ."""

import math
from collections.abc import Sequence

import numpy as np

from tacit.experiments.experiment import ResultRow
from tacit.experiments.statistics import Slope, fit_slope

_TAIL = 0.75  # the last quarter of the rounds is where a run has settled
_SMALLEST = 1e-10  # distances below are rounding
_ABOVE = 4.0  # times the distance where a noisy run settles: above, the linear phase is seen
_NEARING = 0.9  # of a distance that a run has at the end of the last quarter, of that at its beginning


def least_noise(rows: Sequence[ResultRow]) -> float | None:
    """Return the smallest σ above zero."""
    return min((row["sigma"] for row in rows if row["sigma"] > 0), default=None)


def levels(rows: Sequence[ResultRow], name: str) -> list[float]:
    """Return the values of a setting, the largest first."""
    return sorted({row[name] for row in rows}, reverse=True)


def settled(rows: Sequence[ResultRow], measure: str) -> dict[tuple[float, int], float]:
    """Return for each σ and trial the root mean square of a distance over the last quarter of the rounds."""
    found: dict[tuple[float, int], list[float]] = {}
    for row in _tail(rows):
        found.setdefault((row["sigma"], row["trial"]), []).append(row[measure])
    return {key: float(np.sqrt(np.mean(np.square(values)))) for key, values in found.items()}


def typical(rows: Sequence[ResultRow], measure: str) -> float | None:
    """Return the settled distance, averaged over the trials."""
    values = list(settled(rows, measure).values())
    return float(np.mean(values)) if values else None


def nearing(rows: Sequence[ResultRow], measure: str) -> bool:
    """Whether a distance still shrinks by more than a tenth over the last quarter of the rounds."""
    distances = list(course(_tail(rows), measure).values())
    return distances[-1] < _NEARING * distances[0]


def slope_in_sigma(rows: Sequence[ResultRow], measure: str) -> Slope | None:
    """Return the slope of the logarithm of the settled distance against that of σ; one means in proportion."""
    pairs = [(sigma, value) for (sigma, _), value in settled(rows, measure).items() if sigma > 0 and value > 0]
    return fit_slope([math.log(sigma) for sigma, _ in pairs], [math.log(value) for _, value in pairs])


def linear_phase(rows: Sequence[ResultRow]) -> int:
    """Return the last round before a noisy run comes near to where it settles; 0 if there is none."""
    level, last = _ABOVE * (typical(rows, "to_limit") or 0.0), 0
    for round, distance in course(rows, "to_limit").items():
        if distance <= level:
            break
        last = round
    return last


def decay(rows: Sequence[ResultRow], *, until: float = math.inf) -> Slope | None:
    """Return by how much the logarithm of the distance to the limit changes in a round, fitted up to a round."""
    fitted = [row for row in rows if row["round"] <= until and row["to_limit"] > _SMALLEST]
    return fit_slope([row["round"] for row in fitted], [math.log(row["to_limit"]) for row in fitted])


def course(rows: Sequence[ResultRow], measure: str) -> dict[int, float]:
    """Return the root mean square over trials at each round, in order."""
    by_round: dict[int, list[float]] = {}
    for row in rows:
        by_round.setdefault(row["round"], []).append(row[measure])
    return {round: float(np.sqrt(np.mean(np.square(by_round[round])))) for round in sorted(by_round)}


def _tail(rows: Sequence[ResultRow]) -> list[ResultRow]:
    return [row for row in rows if row["round"] >= _TAIL * row["rounds"]]
