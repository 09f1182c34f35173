"""How good every agent's model is on public records, all agents at once."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import vmap

from tacit.data import Records
from tacit.models import FlatModel

# How many model outputs are computed in one go: agents times records.
_AT_ONCE = 1024


@dataclass(frozen=True)
class Score:
    """Mean loss and, for classification, accuracy: one value for each agent."""

    loss: npt.NDArray[np.float64]
    accuracy: npt.NDArray[np.float64] | None


def evaluate(
    model: FlatModel,
    theta: Float[Tensor, "agents params"],
    records: Records,
    prepare: Callable[[Tensor], Tensor],
    *,
    classification: bool,
) -> Score:
    """Return means over records (not over batches) of every agent's loss and accuracy."""
    agents, device = len(theta), theta.device
    loss = torch.zeros(agents, dtype=torch.float64, device=device)
    right = torch.zeros(agents, dtype=torch.float64, device=device)

    def one(theta: Tensor, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        outputs = model.outputs(theta, inputs)
        losses = model.losses_of(outputs, targets).double().sum()
        return losses, (outputs.argmax(dim=1) == targets).sum() if classification else losses.new_zeros(())

    rows = max(1, min(len(records), _AT_ONCE // min(agents, 16)))
    group = max(1, _AT_ONCE // rows)
    with torch.no_grad():
        for start in range(0, len(records), rows):
            part = slice(start, start + rows)
            inputs = prepare(records.inputs[part].to(device))
            targets = records.targets[part].to(device)
            for first in range(0, agents, group):
                some = slice(first, first + group)
                sums, hits = vmap(one, in_dims=(0, None, None))(theta[some], inputs, targets)
                loss[some] += sums
                right[some] += hits
    accuracy = (right / len(records)).cpu().numpy() if classification else None
    return Score((loss / len(records)).cpu().numpy(), accuracy)


def consensus_distance(theta: Float[Tensor, "trials agents params"]) -> npt.NDArray[np.float64]:
    """Return, for each trial, the root mean square distance of the agents' θ from their average."""
    distances = torch.linalg.vector_norm(theta - theta.mean(dim=1, keepdim=True), dim=2)
    result: npt.NDArray[np.float64] = distances.double().square().mean(dim=1).sqrt().cpu().numpy()
    return result
