"""The record that moves the sum most, searched for by gradient ascent on its input.

What is climbed is the length of a record's gradient. Clipping should make all that is longer than C alike; a rule that bounds
something else than the length, or bounds it late, shows itself on records that are long in every direction.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import grad, vmap

from tacit.models import FlatModel

_STEPS, _STRIDE = 12, 0.3
SCALES = (1e-2, 0.1, 0.5, 1.0, 2.0, 10.0, 1e3)


def ascend(
    model: FlatModel, theta: Float[Tensor, " params"], inputs: Float[Tensor, "records ..."], targets: Tensor
) -> Float[Tensor, "records ..."]:
    """Return inputs whose gradients are longer, each climbed from the one given; what is not finite stays as it was."""

    def length(input: Tensor, target: Tensor) -> Tensor:
        own = grad(lambda at: model.losses(at, input[None], target[None], training=True)[0])(theta)
        return torch.log(own.square().sum() + 1e-30)

    climb = vmap(grad(length), randomness="error")
    best = inputs.to(model.dtype)
    for _ in range(_STEPS):
        slope = climb(best, targets).flatten(1)
        size = best.flatten(1).norm(dim=1, keepdim=True).clamp(min=1.0)
        step = _STRIDE * size * slope / slope.norm(dim=1, keepdim=True).clamp(min=1e-30)
        moved = best + step.reshape(best.shape)
        fine = moved.flatten(1).isfinite().all(dim=1).reshape(-1, *[1] * (best.ndim - 1))
        best = torch.where(fine, moved, best).detach()
    return best
