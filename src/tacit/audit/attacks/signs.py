"""The attack on DiNNO with Adam from rest: each step shows the sign of a sum and hardly anything of its size."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from scipy.stats import norm
from torch import Tensor

from tacit.algorithms import DiNNO
from tacit.audit.attacks.world import World
from tacit.errors import InvalidInput


def sign_scores(
    world: World,
    observers: Sequence[int],
    sent: Sequence[tuple[Tensor, ...]],
    models: Float[Tensor, "stack 1"],
    scale: float,
    rate: float,
    noise: float,
) -> Float[np.ndarray, " trials"]:
    """Return the log-likelihood ratio of the signs of the target's steps along the record's direction.

    An observer of the target's whole neighbourhood knows everything that is added to g̃ there. What it learns in a round is whether
    g̃ was above or below minus that.
    """
    rule, graph, target = world.algorithm, world.graph, world.target
    assert isinstance(rule, DiNNO)
    assert graph is not None
    near = sorted(graph[target])
    seen = {each for observer in observers for each in (observer, *graph[observer])}
    if not {target, *near} <= seen:
        raise InvalidInput(
            f"to read the signs of agent {target}'s steps, observers must see all of its neighbours {near}; they see "
            f"{sorted(seen)}. Let all of its neighbours observe"
        )
    states = torch.stack([tensors[0][:, 0] for tensors in sent] + [models[:, 0]]).unflatten(1, (-1, len(graph)))
    mine, others = states[:, :, target], states[:, :, near].sum(dim=2)
    dual, total = torch.zeros_like(mine[0]), torch.zeros_like(mine[0])
    for number in range(world.rounds):
        rho = rule.rho * rule.rho_growth**number
        gap = len(near) * mine[number] - others[number]
        dual = dual + rho * gap
        known = scale * (dual + rho * gap)  # with ψ = θ, 2ρ(dθ − (dθ + S)/2) = ρ(dθ − S)
        up = (mine[number + 1] < mine[number]).numpy()  # descending along a positive sum
        without = norm.cdf(known.numpy() / noise)
        drawn = norm.cdf((known.numpy() + 1) / noise)
        chance = (1 - rate) * without + rate * drawn
        total += torch.from_numpy(np.where(up, _log(chance) - _log(without), _log(1 - chance) - _log(1 - without)))
    return total.numpy()


def _log(chance: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(chance, 1e-300))
