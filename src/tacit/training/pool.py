"""Public records that teachers have labelled, and what students learn from them. Nothing here is private."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import grad

from tacit.data.inputs import Inputs, mapped
from tacit.data.prepare import Prepare
from tacit.models import FlatModel


class LabelledPool:
    """Gradients of students' losses on public records, each agent by itself, so that they are the same wherever it is hosted."""

    def __init__(self, model: FlatModel, inputs: Inputs, prepare: Prepare, device: torch.device) -> None:
        self._model = model
        with torch.no_grad():
            self._ready = prepare(mapped(lambda table: table.to(device, copy=True), inputs))

    def gradient(
        self, theta: Float[Tensor, "agents params"], labels: Float[Tensor, "agents records"]
    ) -> Float[Tensor, "agents params"]:
        """Return every agent's gradient of the mean loss on the records of which it has labels; zero without any."""
        return torch.stack([self._of_agent(*each) for each in zip(theta, labels, strict=True)])

    def _of_agent(self, theta: Float[Tensor, " params"], labels: Float[Tensor, " records"]) -> Float[Tensor, " params"]:
        rows = torch.nonzero(labels >= 0).flatten()
        if not len(rows):
            return torch.zeros_like(theta)
        inputs, targets = mapped(lambda table: table[rows], self._ready), labels[rows].long()
        found: Tensor = grad(lambda point: self._model.losses(point, inputs, targets).mean())(theta)
        return found
