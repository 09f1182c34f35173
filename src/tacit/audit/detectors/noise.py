"""Tests of bare noise: is it normal, of the stated size, on a grid, and fresh in every query and agent?"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from jaxtyping import Float
from scipy.stats import kstest

from tacit.audit.detectors.bare_noise import BareNoise, CoalitionView
from tacit.audit.detectors.report import CheckFinding, compare
from tacit.audit.noise.noise_statistics import find_shift, size_p_value, tail_p_value
from tacit.report.wording import name_agents
from tacit.ties import first_smallest

_SHIFTED_NUMBERS = 2**17  # of each agent, compared with others at every shift
_ON_GRID = 0.01  # of a step; rounding to float32 stays below it
_MOST_STEPS, _LEAST_NUMBERS = 2**20, 500
_MOST_PAIRED = 12  # agents of which every two are compared
_ROUNDING = 1e-6  # of linear algebra


def check_noise(answers: BareNoise, false_alarm: float) -> list[CheckFinding]:
    """Test bare noise: its size, shape and largest value, and whether any of it occurs again, at any shift.

    With masks, also whether they cancel in the sum of all agents, and whether as much protects an agent as its ε assumes.
    """
    noise, risk = answers.noise, false_alarm / (4 if answers.view is None else 5)
    agents, queries, width = noise.shape
    numbers = tuple(range(agents)) if answers.agents is None else answers.agents
    if not np.isfinite(noise).all():
        bound = "normal noise of the stated size"
        return [CheckFinding("noise", "size", "fail", "answers that are not finite", bound)]
    each = [noise[agent].ravel() for agent in range(agents)]
    sizes = [size_p_value(values) for values in each]
    worst = first_smallest(sizes)
    stated, ratio = answers.sigmas[worst], float(np.sqrt(np.mean(each[worst] ** 2)))
    shapes = [float(kstest(values, "norm", method="asymp").pvalue) for values in each]
    tails = [tail_p_value(values) for values in each]
    size = (
        f"σ is {ratio * stated:.5g} (agent {numbers[worst]}) · {agents} agents, {queries} queries of {width:,} numbers"
    )
    largest = f"the largest is {float(np.abs(noise).max()):.3g} σ"
    found = [
        compare("noise", "size", _least(sizes), risk, size, f"σ = {stated:.5g}"),
        compare("noise", "shape", _least(shapes), risk, "distance from a normal distribution", "normal"),
        compare("noise", "tail", _least(tails), risk, largest, "as large as in normal noise"),
        _check_shifts(noise if answers.apart is None else answers.apart, numbers, risk),
    ]
    found += [] if answers.view is None else _check_masks(answers.view, risk)
    return [*found, _check_grid(noise if answers.answers is None else answers.answers, answers.exact)]


def _check_masks(view: CoalitionView, risk: float) -> list[CheckFinding]:
    """Test what a coalition that subtracts its masks is left with."""
    size = float(np.sqrt(np.mean(view.total**2)))
    measured = f"the sum over all who are not curious has {size:.5g} times the size of their own noise"
    curious = f" from {name_agents(list(view.curious))}" if view.curious else ""
    enough = view.protects >= view.claimed * (1 - _ROUNDING)
    return [
        compare("noise", "sum", size_p_value(view.total), risk, measured, "1: masks cancel in it"),
        CheckFinding(
            "noise",
            "protection",
            "pass" if enough else "fail",
            f"noise that the curious do not know protects agent {view.target}{curious} as σ = {view.protects:.5g}",
            f"at least σ = {view.claimed:.5g}, from which ε is derived",
        ),
    ]


def grid_step(values: Float[np.ndarray, " numbers"]) -> float | None:
    """Return the step of the grid on which all values lie, or None where there seems to be none.

    With enough values, two of them are neighbours on the grid, so the step is the smallest gap. A grid as fine as the arithmetic
    does not count.
    """
    ordered = np.unique(values)
    gaps = np.diff(ordered)
    gaps = gaps[gaps > 4 * float(np.abs(values).max()) * 2.0**-24]  # wider than rounding
    if not len(gaps):
        return None
    rough = float(gaps[gaps < 1.5 * gaps.min()].mean())
    # Rounding moves the mean of small gaps; the farthest values give the step much more precisely.
    steps = np.round((ordered[-1] - ordered[0]) / rough)
    step = float((ordered[-1] - ordered[0]) / max(steps, 1.0))
    indices = (ordered - ordered[0]) / step
    off = np.abs(indices - np.round(indices))
    return step if 1 < steps < _MOST_STEPS and float(off.max()) < _ON_GRID else None


def _check_grid(noise: Float[np.ndarray, "agents queries width"], exact: bool) -> CheckFinding:
    steps = [grid_step(values.ravel()) for values in noise]
    found = [step for step in steps if step is not None]
    bound = "every answer on a public grid"
    if len(found) == len(steps):
        return CheckFinding("bits", "grid", "pass", f"all numbers lie on a grid of σC/{1 / max(found):.0f}", bound)
    if noise[0].size < _LEAST_NUMBERS:
        measured = f"{noise[0].size} numbers are too few to find a grid"
        return CheckFinding("bits", "grid", "inconclusive", measured, bound)
    if exact:
        return CheckFinding("bits", "grid", "fail", "no grid: the low bits of float64 may reveal the sum", bound)
    return CheckFinding("bits", "grid", "inconclusive", "no grid found, in float32", bound)


def _check_shifts(
    noise: Float[np.ndarray, "agents queries width"], numbers: Sequence[int], risk: float
) -> CheckFinding:
    agents, queries = noise.shape[:2]
    part = noise[:, :, : max(1, _SHIFTED_NUMBERS // queries)]
    found = [(find_shift(part[agent]), f"agent {numbers[agent]} with itself") for agent in range(agents)]
    for one, other in combinations(range(min(agents, _MOST_PAIRED)), 2):
        found.append((find_shift(part[one], part[other]), f"agents {numbers[one]} and {numbers[other]}"))
    closest, who = found[first_smallest(each.p_value for each, _ in found)]
    apart = f"{abs(closest.lag)} queries and {abs(closest.shift)} coordinates apart"
    measured = f"largest correlation {closest.correlation:.3g}: {who}, {apart}"
    p_value = _least([each.p_value for each, _ in found])
    return compare("noise", "shifts", p_value, risk, measured, "no noise occurs again, at any shift")


def _least(p_values: Sequence[float]) -> float:
    """Return the least of several p-values, multiplied by their number."""
    return min(1.0, len(p_values) * min(p_values))
