"""How good every agent's model is on public records."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import vmap

from tacit.data import Records
from tacit.data.inputs import Inputs, mapped
from tacit.data.prepare import Prepare
from tacit.models import FlatModel
from tacit.models.pooling import QuickPools

_RECORDS_AT_ONCE = 512
_SMALL_MODEL, _MODELS_AT_ONCE = 4096, 256  # parameters, and how many such models are called at once


@dataclass(frozen=True)
class Score:
    """Mean loss and, for classification, accuracy: one value for each agent."""

    loss: npt.NDArray[np.float64]
    accuracy: npt.NDArray[np.float64] | None


def evaluate(
    model: FlatModel,
    theta: Float[Tensor, "agents params"],
    records: Records,
    prepare: Prepare,
    *,
    classification: bool,
    one_by_one: bool = False,
) -> Score:
    """Return means over records (not over batches) of every agent's loss and accuracy.

    Small models are called many at once, unless `one_by_one`: then a model's score does not depend, to the bit, on how many
    others are scored with it.
    """
    agents, device = len(theta), theta.device
    loss = torch.zeros(agents, dtype=torch.float64, device=device)
    right = torch.zeros(agents, dtype=torch.float64, device=device)

    # For a small model, the call takes longer than the computation. Large ones are faster one by one.
    at_once = _MODELS_AT_ONCE if model.size <= _SMALL_MODEL and not one_by_one else 1

    def scored(theta: Tensor, inputs: Inputs, targets: Tensor) -> tuple[Tensor, Tensor]:
        outputs = model.outputs(theta, inputs)
        return model.losses_of(outputs, targets), outputs.argmax(dim=1) if classification else targets

    with torch.no_grad(), QuickPools():
        for start in range(0, len(records), _RECORDS_AT_ONCE):
            part = slice(start, start + _RECORDS_AT_ONCE)
            inputs = prepare(mapped(lambda table, part=part: table[part].to(device, copy=True), records.inputs))
            targets = records.targets[part].to(device)
            for first in range(0, agents, at_once):
                some = slice(first, first + at_once)
                if at_once == 1:
                    losses, labels = scored(theta[first], inputs, targets)
                else:
                    losses, labels = vmap(scored, in_dims=(0, None, None))(theta[some], inputs, targets)
                loss[some] += losses.double().sum(-1)
                if classification:
                    right[some] += (labels == targets).sum(-1)
    right[~theta.isfinite().all(dim=1)] = torch.nan  # the argmax of NaNs is the first class, which would often be right
    accuracy = (right / len(records)).cpu().numpy() if classification else None
    return Score((loss / len(records)).cpu().numpy(), accuracy)


def consensus_distance(theta: Float[Tensor, "trials agents params"]) -> npt.NDArray[np.float64]:
    """Return, for each trial, the root mean square distance of the agents' θ from their average."""
    distances = torch.linalg.vector_norm(theta - theta.mean(dim=1, keepdim=True), dim=2)
    result: npt.NDArray[np.float64] = distances.double().square().mean(dim=1).sqrt().cpu().numpy()
    return result
