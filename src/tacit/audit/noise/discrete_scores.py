"""Discrete Gaussian noise as standard normals, so that every test of normal noise applies to it exactly.

An integer k is replaced by Φ⁻¹(u) with u uniform on the interval of probability that k has in the stated distribution, drawn by the auditor. If
the noise is as stated, the result is standard normal, however coarse the grid; otherwise it is not.
"""

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import norm

from tacit.privacy import Plan
from tacit.privacy.noise_kinds import DiscreteGaussian

_FAR = 40  # standard deviations, beyond which float64 has no weights
_LEAST = 1e-300  # in place of a probability of 0


def scores_of_agent(
    noise: Float[np.ndarray, "..."], plan: Plan, agent: int, chance: np.random.Generator
) -> Float[np.ndarray, "..."]:
    """Return standard normals for an agent's discrete noise, in clipping norms.

    The stated standard deviation is that from which ε is derived: σ times the length that a rounded vector has at most. It is not taken from
    the code that makes the noise, which might forget what rounding adds.
    """
    stated, clip = plan.mechanism(agent).noise, plan.clips[agent]
    assert isinstance(stated, DiscreteGaussian)
    step = stated.rounding.step(clip)
    deviation = stated.multiplier * stated.rounding.bound(clip) / step
    return normal_scores(np.rint(noise * clip / step).astype(np.int64), deviation, chance)


def normal_scores(
    numbers: Int[np.ndarray, "..."], deviation: float, chance: np.random.Generator
) -> Float[np.ndarray, "..."]:
    """Return standard normals for integers k of probability proportional to exp(-k²/2s²), with s = `deviation`."""
    sizes = np.abs(numbers)
    reach = int(min(max(sizes.max(initial=0), np.ceil(_FAR * deviation)), _FAR * deviation + 1)) + 2
    weights = np.exp(-0.5 * (np.arange(reach + 1) / deviation) ** 2)
    tails = np.cumsum(weights[::-1])[::-1]  # from each size upwards
    total = 2 * tails[0] - weights[0]
    place = np.minimum(sizes, reach - 1)
    own = np.where(place == 0, 0.5, 1.0) * weights[place]  # zero has half of its probability on each side
    above = tails[place + 1] + chance.random(numbers.shape) * own
    side = np.where(numbers == 0, chance.choice([-1.0, 1.0], numbers.shape), np.sign(numbers))
    return np.asarray(side * norm.isf(np.maximum(above / total, _LEAST)))
