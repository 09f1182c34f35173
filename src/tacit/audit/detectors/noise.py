"""Bare noise: the real oracle asked about records without a gradient, with the user's own σ, C, width and agents."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np
import torch
from jaxtyping import Float
from scipy.stats import kstest

from tacit.audit.attacks.worlds import linear_model
from tacit.audit.detectors.made_up import ask_oracle
from tacit.audit.detectors.report import CheckFinding, compare
from tacit.audit.noise.noise_statistics import size_p_value, tail_p_value
from tacit.audit.noise.shifts import find_shift
from tacit.data import AgentData
from tacit.privacy import Plan, Privacy
from tacit.training.settings import Training

_MOST_AGENTS, _RECORDS = 12, 4
_MOST_WIDTH, _MOST_NUMBERS = 2**16, 2**23
_LEAST_QUERIES, _MOST_QUERIES = 8, 64
_SHIFTED_NUMBERS = 2**17  # of each agent, compared with others at every shift
_ON_GRID = 0.01  # of a step; rounding to float32 stays below it
_MOST_STEPS, _LEAST_NUMBERS = 2**20, 500


@dataclass(frozen=True, kw_only=True, eq=False)
class BareNoise:
    """Answers about records without a gradient, in units of the stated σC/L.

    exact: whether the model computes in float64, so that low bits are released.
    """

    noise: Float[np.ndarray, "agents queries width"]
    sigmas: tuple[float, ...]
    exact: bool


def read_noise(training: Training, plan: Plan, width: int, dtype: torch.dtype, queries: int | None = None) -> BareNoise:
    """Ask the oracle for bare noise."""
    agents, width = min(plan.agents, _MOST_AGENTS), min(width, _MOST_WIDTH)
    parts = [(torch.zeros(_RECORDS, 1), torch.zeros(_RECORDS)) for _ in range(agents)]
    sigmas, clips = plan.noise_multipliers[:agents], plan.clips[:agents]
    answers, _ = ask_oracle(
        training,
        model=partial(_wide_model, width, dtype),
        data=AgentData.from_parts(parts, name="bare noise", prepare=partial(_without_gradient, width)),
        privacy=Privacy(noise_multiplier=sigmas, delta=1e-5, clip=clips, lot_size=_RECORDS / 2),
        queries=queries or int(min(max(_MOST_NUMBERS // (agents * width), _LEAST_QUERIES), _MOST_QUERIES)),
    )
    scale = torch.tensor([_RECORDS / 2 / sigma / clip for sigma, clip in zip(sigmas, clips, strict=True)])
    noise = (answers * scale.double()[:, None, None]).numpy()
    return BareNoise(noise=noise, sigmas=sigmas, exact=dtype == torch.float64)


def _wide_model(width: int, dtype: torch.dtype) -> torch.nn.Module:
    return linear_model(width).to(dtype)


def _without_gradient(width: int, inputs: torch.Tensor) -> torch.Tensor:
    return inputs.expand(len(inputs), width) * 0


def check_noise(answers: BareNoise, false_alarm: float) -> list[CheckFinding]:
    """Test bare noise: its size, shape and largest value, and whether any of it occurs again, at any shift."""
    noise, risk = answers.noise, false_alarm / 4
    agents, queries, width = noise.shape
    if not np.isfinite(noise).all():
        bound = "normal noise of the stated size"
        return [CheckFinding("noise", "size", "fail", "answers that are not finite", bound)]
    each = [noise[agent].ravel() for agent in range(agents)]
    sizes = [size_p_value(values) for values in each]
    worst = int(np.argmin(sizes))
    stated, ratio = answers.sigmas[worst], float(np.sqrt(np.mean(each[worst] ** 2)))
    p_values = {
        "size": sizes,
        "shape": [float(kstest(values, "norm", method="asymp").pvalue) for values in each],
        "tail": [tail_p_value(values) for values in each],
    }
    about = {
        "size": (
            f"σ is {ratio * stated:.5g} (agent {worst}) · {agents} agents, {queries} queries of {width:,} numbers",
            f"σ = {stated:.5g}",
        ),
        "shape": ("distance from a normal distribution", "normal"),
        "tail": (f"the largest is {float(np.abs(noise).max()):.3g} σ", "as large as in normal noise"),
    }
    found = [compare("noise", name, _least(p_values[name]), risk, *about[name]) for name in about]
    return [*found, _check_shifts(noise, risk), _check_grid(noise, answers.exact)]


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


def _check_shifts(noise: Float[np.ndarray, "agents queries width"], risk: float) -> CheckFinding:
    agents, queries = noise.shape[:2]
    part = noise[:, :, : max(1, _SHIFTED_NUMBERS // queries)]
    found = [(find_shift(part[agent]), f"agent {agent} with itself") for agent in range(agents)]
    for one, other in combinations(range(agents), 2):
        found.append((find_shift(part[one], part[other]), f"agents {one} and {other}"))
    closest, who = min(found, key=lambda each: each[0].p_value)
    measured = (
        f"largest correlation {closest.correlation:.3g}: {who}, {closest.lag} queries and {closest.shift} numbers apart"
    )
    p_value = _least([each.p_value for each, _ in found])
    return compare("noise", "shifts", p_value, risk, measured, "no noise occurs again, at any shift")


def _least(p_values: Sequence[float]) -> float:
    """Return the least of several p-values, multiplied by their number."""
    return min(1.0, len(p_values) * min(p_values))
