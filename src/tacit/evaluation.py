"""How good every agent's model is on public records."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from tacit.data import Records
from tacit.models import FlatModel

_RECORDS_AT_ONCE = 512


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

    with torch.no_grad():
        for start in range(0, len(records), _RECORDS_AT_ONCE):
            part = slice(start, start + _RECORDS_AT_ONCE)
            inputs = prepare(records.inputs[part].to(device))
            targets = records.targets[part].to(device)
            # One model after another: measured faster than all in one `vmap`, for large models and small.
            for agent in range(agents):
                outputs = model.outputs(theta[agent], inputs)
                loss[agent] += model.losses_of(outputs, targets).double().sum()
                if classification:
                    right[agent] += (outputs.argmax(dim=1) == targets).sum()
    accuracy = (right / len(records)).cpu().numpy() if classification else None
    return Score((loss / len(records)).cpu().numpy(), accuracy)


def consensus_distance(theta: Float[Tensor, "trials agents params"]) -> npt.NDArray[np.float64]:
    """Return, for each trial, the root mean square distance of the agents' θ from their average."""
    distances = torch.linalg.vector_norm(theta - theta.mean(dim=1, keepdim=True), dim=2)
    result: npt.NDArray[np.float64] = distances.double().square().mean(dim=1).sqrt().cpu().numpy()
    return result
