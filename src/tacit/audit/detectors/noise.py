"""Bare noise: the real oracle asked about records without a gradient, at the user's own σ, C, width and agents."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

import numpy as np
import torch
from jaxtyping import Float
from scipy.stats import chi2, kstest, norm

from tacit.algorithms import Local
from tacit.audit.attacks.worlds import first_output, linear_model
from tacit.audit.detectors.report import Finding, judged, share
from tacit.audit.detectors.shifts import closest_shift
from tacit.data import AgentData
from tacit.privacy import Plan, Privacy
from tacit.training.session import Session
from tacit.training.settings import Training

_MOST_AGENTS, _RECORDS = 12, 4
_MOST_WIDTH, _MOST_NUMBERS = 2**16, 2**23
_LEAST_QUERIES, _MOST_QUERIES = 8, 64
_SHIFTED_NUMBERS = 2**17  # of each agent, to be held against others at every shift
_ON_GRID = 0.01  # of a step, which rounding to float32 stays below
_MOST_STEPS, _LEAST_NUMBERS = 2**20, 500


@dataclass(frozen=True, kw_only=True, eq=False)
class Answers:
    """What was released about records without a gradient, in units of the stated σC/L."""

    noise: Float[np.ndarray, "agents queries width"]
    sigmas: tuple[float, ...]
    exact: bool
    """Whether the model computes in float64, so that low bits are released."""


def read_noise(training: Training, plan: Plan, width: int, dtype: torch.dtype, queries: int | None = None) -> Answers:
    """Ask for bare noise."""
    agents = min(plan.agents, _MOST_AGENTS)
    width = min(width, _MOST_WIDTH)
    queries = queries or int(min(max(_MOST_NUMBERS // (agents * width), _LEAST_QUERIES), _MOST_QUERIES))
    parts = [(torch.zeros(_RECORDS, 1), torch.zeros(_RECORDS)) for _ in range(agents)]
    sigmas, clips = plan.noise_multipliers[:agents], plan.clips[:agents]
    settings = replace(
        training,
        algorithm=Local(),
        graph=None,
        model=partial(_wide, width, dtype),
        loss=first_output,
        data=AgentData.from_parts(parts, name="bare noise", prepare=partial(_without_gradient, width)),
        privacy=Privacy(noise_multiplier=sigmas, delta=1e-5, clip=clips, lot_size=_RECORDS / 2),
        rounds=queries,
        lr=0.1,
        same_start=True,
        spare_queries=0,
        sizes=None,
        compile=False,
    )
    with Session(settings) as session:
        theta = session.state.theta
        answers = torch.stack([session.real_oracle.gradient(theta).cpu().double() for _ in range(queries)], dim=1)
    scale = torch.tensor([_RECORDS / 2 / sigma / clip for sigma, clip in zip(sigmas, clips, strict=True)])
    return Answers(noise=(answers * scale.double()[:, None, None]).numpy(), sigmas=sigmas, exact=dtype == torch.float64)


def _wide(width: int, dtype: torch.dtype) -> torch.nn.Module:
    return linear_model(width).to(dtype)


def _without_gradient(width: int, inputs: torch.Tensor) -> torch.Tensor:
    return inputs.expand(len(inputs), width) * 0


def noise_findings(answers: Answers, false_alarm: float) -> list[Finding]:
    """Test bare noise: its size, shape and largest value, and whether any of it occurs again, at any shift."""
    noise, names = answers.noise, ("size", "shape", "tail", "shifts")
    agents, queries, width = noise.shape
    risk = share(false_alarm, names)
    if not np.isfinite(noise).all():
        return [
            Finding(
                part="noise",
                name="size",
                outcome="fail",
                measured="answers that are not finite",
                bound="normal noise of the stated size",
            )
        ]
    each = [noise[agent].ravel() for agent in range(agents)]
    size, shape, tail = ([test(values) for values in each] for test in (_size, _shape, _tail))
    worst = int(np.argmin(size))
    ratio = float(np.sqrt(np.mean(each[worst] ** 2)))
    about = f"{agents} agents, {queries} queries of {width:,} numbers"
    found = [
        judged(
            "noise",
            "size",
            _together(size),
            risk,
            f"σ is {answers.sigmas[worst] * ratio:.5g} (agent {worst}) · {about}",
            f"σ = {answers.sigmas[worst]:.5g}",
        ),
        judged("noise", "shape", _together(shape), risk, "distance from a normal distribution", "normal"),
        judged(
            "noise",
            "tail",
            _together(tail),
            risk,
            f"the largest is {max(float(np.abs(values).max()) for values in each):.3g} σ",
            "as large as of normal noise",
        ),
        _judged_shifts(noise, risk),
    ]
    return [*found, _grid_finding(noise, answers.exact)]


def grid_step(values: Float[np.ndarray, " numbers"]) -> float | None:
    """Return the step of the grid that all values lie on, or None where none is seen.

    Of enough values two neighbours on the grid are among them, so the step is the smallest gap. A grid as fine as the
    arithmetic itself is none.
    """
    ordered = np.unique(values)
    gaps = np.diff(ordered)
    rounding = 4 * float(np.abs(values).max()) * 2.0**-24
    gaps = gaps[gaps > rounding]
    if not len(gaps) or len(ordered) < 2:
        return None
    step = float(gaps.min())
    near = gaps[gaps < 1.5 * step]
    step = float(near.mean())
    # The mean of small gaps is off by rounding; the farthest values then tell the step far better.
    steps = np.round((ordered[-1] - ordered[0]) / step)
    step = float((ordered[-1] - ordered[0]) / max(steps, 1.0))
    off = np.abs((ordered - ordered[0]) / step - np.round((ordered - ordered[0]) / step))
    return step if steps > 1 and float(off.max()) < _ON_GRID and steps < _MOST_STEPS else None


def _grid_finding(noise: Float[np.ndarray, "agents queries width"], exact: bool) -> Finding:
    steps = [grid_step(values.ravel()) for values in noise]
    bound = "every answer on a public grid"
    if all(step is not None for step in steps):
        largest = max(step for step in steps if step is not None)
        words = f"all numbers lie on a grid of σC/{1 / largest:.0f}"
        return Finding(part="bits", name="grid", outcome="pass", measured=words, bound=bound)
    if noise[0].size < _LEAST_NUMBERS:
        few = f"{noise[0].size} numbers are too few to see a grid"
        return Finding(part="bits", name="grid", outcome="inconclusive", measured=few, bound=bound)
    words = "no grid is seen: the low bits of float64 may tell of the sum" if exact else "no grid is seen, in float32"
    return Finding(part="bits", name="grid", outcome="fail" if exact else "inconclusive", measured=words, bound=bound)


def _judged_shifts(noise: Float[np.ndarray, "agents queries width"], risk: float) -> Finding:
    agents, queries = noise.shape[:2]
    part = noise[:, :, : max(1, _SHIFTED_NUMBERS // queries)]
    found = [(closest_shift(part[agent]), f"agent {agent} with itself") for agent in range(agents)]
    found += [
        (closest_shift(part[one], part[other]), f"agents {one} and {other}")
        for one, other in combinations(range(agents), 2)
    ]
    closest, who = min(found, key=lambda each: each[0].p_value)
    measured = (
        f"largest correlation {closest.correlation:.3g}: {who}, {closest.lag} queries and {closest.shift} numbers apart"
    )
    p_value = min(1.0, len(found) * closest.p_value)
    return judged("noise", "shifts", p_value, risk, measured, "no noise occurs again, at any shift")


def _together(values: Sequence[float]) -> float:
    return min(1.0, len(values) * min(values))


def _size(values: np.ndarray) -> float:
    law, squares = chi2(values.size), float(np.sum(values**2))
    return min(1.0, 2 * min(float(law.cdf(squares)), float(law.sf(squares))))


def _shape(values: np.ndarray) -> float:
    return float(kstest(values, "norm", method="asymp").pvalue)


def _tail(values: np.ndarray) -> float:
    below = values.size * float(np.log1p(-min(2 * norm.sf(np.abs(values).max()), 1 - 1e-16)))
    return min(1.0, 2 * min(float(np.exp(below)), float(-np.expm1(below))))
