"""A module as a pure function of one flat parameter vector, so that agents can be stacked as rows.

The user's module is copied, never changed: no hooks, no wrappers. Only parameters that require a gradient are
in the vector; frozen ones stay constants of the copy, shared by all agents.
"""

import copy
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, vmap

from tacit.data.inputs import Inputs, arguments, mapped
from tacit.errors import ModelError

# Maps a batch of outputs and targets to one loss per record.
Loss = Callable[[Tensor, Tensor], Tensor]


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy of every record."""
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


class FlatModel:
    """`forward` and `loss` of a module at a parameter vector θ of `size` numbers."""

    def __init__(self, module: nn.Module, loss: Loss = cross_entropy) -> None:
        parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
        if not parameters:
            raise ModelError("the model has no parameter that requires a gradient; there is nothing to train")
        kinds = {p.dtype for p in parameters.values()}
        if len(kinds) > 1 or not kinds <= {torch.float32, torch.float64}:
            names = ", ".join(sorted(map(str, kinds)))
            raise ModelError(f"the model's parameters are {names}; use float32 for all of them, or float64")
        self.dtype = next(iter(kinds))
        self.names = list(parameters)
        self._shapes = [p.shape for p in parameters.values()]
        self.counts = [p.numel() for p in parameters.values()]
        self.size = sum(self.counts)
        self.training_module = copy.deepcopy(module).train()
        self._evaluation = copy.deepcopy(module).eval()
        self.loss = loss

    @property
    def layout(self) -> list[tuple[str, list[int]]]:
        """Names and shapes of the parameters, in their order in θ."""
        return [(name, list(shape)) for name, shape in zip(self.names, self._shapes, strict=True)]

    def double(self) -> "FlatModel":
        """Return the same model in float64, for exact checks."""
        return FlatModel(copy.deepcopy(self.training_module).double(), self.loss)

    def to(self, device: torch.device) -> "FlatModel":
        """Move the copies to a device."""
        self.training_module.to(device)
        self._evaluation.to(device)
        return self

    def flatten(self, module: nn.Module) -> Float[Tensor, " params"]:
        """Return the trainable parameters of a module of the same structure as one vector."""
        parameters = dict(module.named_parameters())
        return torch.cat([parameters[name].detach().reshape(-1) for name in self.names])

    def module(self, theta: Float[Tensor, " params"]) -> nn.Module:
        """Return an ordinary module with these parameters, ready for use."""
        module = copy.deepcopy(self._evaluation)
        parameters = dict(module.named_parameters())
        with torch.no_grad():
            for name, value in self._unflatten(theta).items():
                parameters[name].copy_(value)
        return module

    def outputs(self, theta: Float[Tensor, " params"], inputs: Inputs, *, training: bool = False) -> Tensor:
        """Return the outputs for a batch."""
        module = self.training_module if training else self._evaluation
        return functional_call(module, self._unflatten(theta), *arguments(self.cast(inputs)))

    def losses(
        self, theta: Float[Tensor, " params"], inputs: Inputs, targets: Tensor, *, training: bool = False
    ) -> Float[Tensor, " records"]:
        """Return one loss per record of a batch."""
        return self.losses_of(self.outputs(theta, inputs, training=training), targets)

    def losses_of(self, outputs: Tensor, targets: Tensor) -> Float[Tensor, " records"]:
        """Return one loss per record of a batch of outputs, each from its own output and target only."""
        return vmap(lambda output, target: self.loss_at(output[None], target))(outputs, targets)

    def loss_of_one(
        self, theta: Float[Tensor, " params"], input: Inputs, target: Tensor, *, training: bool = True
    ) -> Float[Tensor, ""]:
        """Return the loss of one record, which the model sees as a batch of one."""
        batch = mapped(lambda tensor: tensor[None], input)
        return self.loss_at(self.outputs(theta, batch, training=training), target)

    def loss_at(self, outputs: Float[Tensor, "1 ..."], target: Tensor) -> Float[Tensor, ""]:
        """Return the loss of the outputs for one record, still as a batch of one."""
        losses = self.loss(outputs, target[None])
        if losses.shape != (1,):
            raise ModelError(
                f"the loss returned shape {tuple(losses.shape)} for 1 record; it must return one value per record, for "
                "example with reduction='none'"
            )
        return losses[0]

    def unflatten_stacked(self, theta: Float[Tensor, "agents params"]) -> dict[str, Tensor]:
        """Return every parameter of stacked agents by name: [agents, ...]."""
        pieces = theta.split(self.counts, dim=1)
        return {
            n: p.unflatten(1, s) if s else p[:, 0] for n, p, s in zip(self.names, pieces, self._shapes, strict=True)
        }

    def cast(self, inputs: Inputs) -> Inputs:
        """Return floating inputs in the model's type."""
        found: Inputs = mapped(lambda tensor: tensor.to(self.dtype) if tensor.is_floating_point() else tensor, inputs)
        return found

    def _unflatten(self, theta: Float[Tensor, " params"]) -> dict[str, Tensor]:
        pieces = theta.split(self.counts)
        return {n: p.view(s) for n, p, s in zip(self.names, pieces, self._shapes, strict=True)}
