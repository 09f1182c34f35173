"""The rule for any layer: `vmap` runs it record by record, and makes each record's gradient."""

from typing import Any

from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap

from tacit.data.guards import Guard
from tacit.privacy.gradients.batches import Unsupported
from tacit.privacy.gradients.layers import Accounted, Call, Parameters, account_per_sample


class WholeRule:
    """A layer as a function of one record and the parameters of its block."""

    def __init__(self, layer: nn.Module, trainable: frozenset[str]) -> None:
        self._layer, self.trainable = layer, trainable

    def run(self, inputs: Tensor, parameters: Parameters) -> tuple[Tensor, Tensor]:
        """Run the layer on every record by itself."""
        with Guard() as guard:  # a guard outside does not see into the layer's own autograd function
            outputs = vmap(self._one)(_for_each_record(parameters, inputs), inputs.flatten(0, 1))
        guard.check()
        if guard.strange:
            raise Unsupported(f"{', '.join(sorted(guard.strange))} may not keep records apart")
        return outputs.unflatten(0, inputs.shape[:2]), inputs

    def account(self, call: Call) -> Accounted:
        """Compute the gradients and account for them."""
        return account_per_sample(self.per_sample(call))

    def per_sample(self, call: Call) -> dict[str, Tensor]:
        """Return every record's gradient, pulled back through the layer."""

        def pull(parameters: dict[str, Tensor], record: Tensor, gradient: Tensor) -> Any:
            return vjp(lambda p: self._one(p, record), parameters)[1](gradient)[0]

        with Guard() as guard:
            own = _for_each_record(call.parameters, call.inputs)
            found = vmap(pull)(own, call.inputs.flatten(0, 1), call.gradient.flatten(0, 1))
        guard.check()
        return {name: each.unflatten(0, call.inputs.shape[:2]) for name, each in found.items()}

    def _one(self, parameters: dict[str, Tensor], record: Tensor) -> Tensor:
        outputs: Tensor = functional_call(self._layer, parameters, (record[None],))
        return outputs[0]


def _for_each_record(parameters: Parameters, inputs: Tensor) -> dict[str, Tensor]:
    """Return a copy of its block's parameters for every record; `general` explains why there is one `vmap` and not two."""
    return {name: each.repeat_interleave(inputs.shape[1], 0) for name, each in parameters.items()}
