"""A module for stacked agents: a copy whose layers use each agent's own parameters.

Records of all blocks go through the user's own forward code and loss under one `vmap`, so that code sees a single record
and cannot mix two of them. Only the layers that hold trainable parameters are swapped, on a copy, for `_StackedLayer`s. They step
out of the `vmap`, split its batch into blocks, use each block's own parameters, and keep what went in and came out. One
backward pass from the losses to those outputs then gives every g that the rules in `layers` need. There are no hooks, and
the user's module is not changed.
"""

import copy
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import vmap

from tacit.data.guards import Guard
from tacit.data.inputs import Inputs, call_model, mapped
from tacit.data.products import EvenProducts
from tacit.models.functional import FlatModel
from tacit.privacy.gradients.batches import BatchData, SumsAndNorms, Unsupported
from tacit.privacy.gradients.clipping import HAIR, Lot, Quantum, clip_factors
from tacit.privacy.gradients.convolution import convolution_rule
from tacit.privacy.gradients.layers import (
    LEAST_SHARE,
    Accounted,
    Call,
    EmbeddingRule,
    LayerRule,
    LinearRule,
    NormRule,
    account_per_sample,
)
from tacit.privacy.gradients.whole import WholeRule

_MOST_HAIR = 2.0**-7


class StackedModel:
    """Clipped sums over blocks of records, each block with its own parameters."""

    def __init__(self, model: FlatModel, *, compiled: bool) -> None:
        self._model = model
        module = copy.deepcopy(model.training_module)
        self._names = {id(p): name for name, p in module.named_parameters() if p.requires_grad}
        if any(id(p) in self._names for p in module.parameters(recurse=False)) and _rule_type(module) is None:
            raise Unsupported("the module holds parameters of its own beside its layers")
        self._trace = _Trace()
        self._compiled = compiled
        self._hair = HAIR
        self._odd_products = True  # until a trial run shows none
        self.exact, self.room = True, 1.0  # exact until a layer has rounded sums
        self.strange: set[str] = set()
        self._module = nn.ModuleList([module])
        self._swap(self._module, {})

    def clipped(self, data: BatchData, clip: Float[Tensor, " blocks"], quantum: Quantum) -> SumsAndNorms:
        """Return every block's sum of clipped gradients, and every record's norm, in float64."""
        accounted = self._account(data)
        norms = torch.stack([each.squares for each in accounted]).sum(0).sqrt()
        factors = torch.where(data.keep & norms.isfinite(), clip_factors(norms, clip[:, None], self._hair), 0)
        return self._weighted(accounted, factors, quantum), norms

    def plain(self, data: BatchData) -> Float[Tensor, "blocks params"]:
        """Return every block's sum of gradients, unclipped, in float64."""
        return self._weighted(self._account(data), data.keep.double(), None)

    def numbers_kept(self, calls: "Sequence[_LayerCall]") -> int:
        """Return how many numbers are stored for one record, such as that of a trial."""
        kept = sum(taken.inputs.numel() + taken.outputs.numel() for taken in calls)
        used = _uses(calls)
        counts = zip(self._model.names, self._model.counts, strict=True)
        return kept + sum(count for name, count in counts if used[name] > 1)  # those have per-sample gradients

    def leave_room(self, tried: Sequence[Accounted], block: int, most_in_lot: int) -> None:
        """Clip to slightly less than C, to leave room for the rounding of all sums of a lot, with and without a record.

        Only sums of ghost norms over several positions are rounded: K float64 products for a number of a block, so a record
        with Σ‖aₜ‖‖gₜ‖ = s and factor w adds at most (K + 2)·2⁻⁵³·w·s, and w·s ≤ C / `LEAST_SHARE`.
        """
        rounded = [each.rounded * block for each in tried if each.rounded]
        if not rounded:
            return
        self.exact = False
        error = (max(rounded) + 2) * 2.0**-53 / LEAST_SHARE * math.sqrt(len(rounded))
        self._hair = HAIR + 2 * most_in_lot * error
        if self._hair > _MOST_HAIR:
            raise Unsupported("with so many positions and records, the rounding of sums cannot be bounded")

    def try_record(self, example: Lot) -> tuple[list["_LayerCall"], list[Accounted]]:
        """Run one public record, and return the calls of layers with their norms and sums."""
        theta = torch.zeros(1, self._model.size, dtype=self._model.dtype, device=example.targets.device)
        inputs, targets = example.take(torch.zeros(1, dtype=torch.int64, device=example.targets.device))
        keep = torch.ones(1, 1, dtype=torch.bool, device=theta.device)
        data = BatchData((theta,), inputs, targets, keep)
        self._odd_products = False
        with EvenProducts() as products:
            with torch.enable_grad():
                run = self._run(data)
            accounted = self._account(data)
        self._odd_products = products.needed
        self.strange |= products.strange
        return run.calls, accounted

    def _run(self, data: BatchData) -> "_ForwardPass":
        """Run every record by itself through the module and the loss."""

        def one(input: Inputs, target: Tensor) -> Tensor:
            outputs = call_model(self._module[0], mapped(lambda tensor: tensor[None], input))
            return self._model.loss_at(outputs, target)

        parameters = self._model.unflatten_stacked(data.public[0])
        with Guard() as guard:
            inputs = self._model.cast(data.inputs)
            run = self._trace.run(lambda: vmap(one)(inputs, data.targets), parameters, data.keep.shape)
        guard.check()
        self.strange |= guard.strange
        return run

    def _account(self, data: BatchData) -> list[Accounted]:
        """Run forward and backward; return every layer's part of norms and sums."""
        with EvenProducts() if self._odd_products else nullcontext():
            return self._accounted(data)

    def _accounted(self, data: BatchData) -> list[Accounted]:
        with torch.enable_grad():
            run = self._run(data)
            outputs = [taken.outputs for taken in run.calls]
            gradients: tuple[Tensor | None, ...] = torch.autograd.grad(run.losses.sum(), outputs, allow_unused=True)
        used = _uses(run.calls)
        left = [(each.layer, each.inputs, each.parameters, g) for each, g in zip(run.calls, gradients, strict=True)]
        del run, outputs, gradients  # frees memory early, here and below
        left.reverse()
        accounted = []
        repeated: dict[str, Tensor] = {}  # per-sample gradients of parameters that are used more than once
        while left:
            layer, given, own, gradient = left.pop()
            if gradient is None:  # the loss does not depend on this call
                continue
            call = Call(given, own, gradient.detach().unflatten(0, data.keep.shape))
            if all(used[name] == 1 for name in layer.names.values()):
                accounted.append(_renamed(layer.rule.account(call), layer.names))
                continue
            for local, each in layer.rule.per_sample(call).items():
                name = layer.names[local]
                repeated[name] = repeated[name] + each if name in repeated else each
        return [*accounted, account_per_sample(repeated)] if repeated else accounted

    def _weighted(
        self, accounted: list[Accounted], weights: Float[Tensor, "blocks records"], quantum: Quantum | None
    ) -> Float[Tensor, "blocks params"]:
        """Return the sums, and empty the list to free each layer's memory once it is added up."""
        found: dict[str, Tensor] = {}
        while accounted:
            found |= accounted.pop().sums(weights, quantum)
        blocks = len(weights)
        pieces = [
            found[name].reshape(blocks, count) if name in found else weights.new_zeros(blocks, count)
            for name, count in zip(self._model.names, self._model.counts, strict=True)
        ]
        return torch.cat(pieces, dim=1)

    def _swap(self, parent: nn.Module, made: dict[int, nn.Module]) -> None:
        for key, child in parent._modules.items():
            if child is None:
                continue
            if getattr(child, "inplace", False) is True:
                child.inplace = False  # type: ignore[assignment]  # it would overwrite the stored outputs of a layer before it
            if id(child) not in made:
                made[id(child)] = self._stacked_layer(child) or child
                if made[id(child)] is child:
                    self._swap(child, made)
            parent._modules[key] = made[id(child)]

    def _stacked_layer(self, layer: nn.Module) -> "_StackedLayer | None":
        """Return the replacement of a layer that holds trainable parameters itself; None for any other."""
        own = {name: p for name, p in layer.named_parameters(recurse=False) if id(p) in self._names}
        if not own:
            return None
        make = _rule_type(layer)
        if make is None:
            held = {name: p for name, p in layer.named_parameters() if id(p) in self._names}
            return _StackedLayer(WholeRule(layer, frozenset(held)), self._globals(held), {}, self._trace)
        trainable, frozen = frozenset(own), dict(layer.named_parameters(recurse=False))
        rule: LayerRule
        if isinstance(layer, nn.Conv1d | nn.Conv2d):
            rule = convolution_rule(layer, trainable, compiled=self._compiled)
        else:
            rule = make(layer, trainable)
        constants = {name: p.detach() for name, p in frozen.items() if name not in trainable}
        return _StackedLayer(rule, self._globals(own), constants, self._trace)

    def _globals(self, held: Mapping[str, nn.Parameter]) -> dict[str, str]:
        return {name: self._names[id(p)] for name, p in held.items()}


class _StackedLayer(nn.Module):
    """Replaces one layer in the copy. `names` maps the layer's parameter names to the model's."""

    def __init__(self, rule: LayerRule, names: dict[str, str], constants: dict[str, Tensor], trace: "_Trace") -> None:
        super().__init__()
        self.rule, self.names, self._constants, self._trace = rule, names, constants, trace

    def forward(self, *given: Any, **options: Any) -> Tensor:
        """Run the layer on a flat batch, block by block."""
        if len(given) != 1 or options or not isinstance(given[0], Tensor):
            raise Unsupported("a layer is called with more than one tensor")
        outputs: Tensor = _OutOfVmap.apply(given[0], self)  # type: ignore[no-untyped-call]
        return outputs

    def call(self, inputs: Float[Tensor, "all 1 ..."]) -> Float[Tensor, "all 1 ..."]:
        """Run the layer on the inputs of all records, each a batch of one."""
        return self._trace.call(self, inputs, self._constants)


class _OutOfVmap(torch.autograd.Function):
    """Gives a layer the whole batch of the `vmap` in which it is called; see torch's notes on extending `vmap`."""

    @staticmethod
    def forward(inputs: Tensor, layer: _StackedLayer) -> Tensor:
        """Refuse: the layer's input does not come from a record, or the model has a `vmap` of its own."""
        raise Unsupported("a layer is called on something other than the records")

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Store nothing: the code inside `vmap` is differentiated as it is."""

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, None], inputs: Tensor, layer: _StackedLayer) -> tuple[Tensor, int]:
        """Run the layer on all records at once."""
        if torch._C._functorch.is_functorch_wrapped_tensor(inputs):
            raise Unsupported("a layer is called in a vmap of the model's own")
        whole = inputs.expand(info.batch_size, *inputs.shape) if in_dims[0] is None else inputs.movedim(in_dims[0], 0)
        return layer.call(whole), 0


class _LayerCall(NamedTuple):
    layer: _StackedLayer
    inputs: Tensor
    parameters: Mapping[str, Tensor]
    outputs: Tensor
    versions: tuple[int, int]


class _ForwardPass(NamedTuple):
    losses: Tensor
    calls: list[_LayerCall]


class _Trace:
    """The calls of layers during one forward pass."""

    def __init__(self) -> None:
        self._parameters: Mapping[str, Tensor] = {}
        self._shape = torch.Size()
        self._calls: list[_LayerCall] = []

    def run(self, losses: Callable[[], Tensor], parameters: Mapping[str, Tensor], shape: torch.Size) -> _ForwardPass:
        """Compute the losses and return them with every call of a layer."""
        self._parameters, self._shape, self._calls = parameters, shape, []
        try:
            found = losses()
            for call in self._calls:
                if (call.inputs._version, call.outputs._version) != call.versions:
                    raise Unsupported("something overwrites the inputs or outputs of a layer")
            return _ForwardPass(found, self._calls)
        finally:
            self._parameters, self._calls = {}, []

    def call(self, layer: _StackedLayer, inputs: Tensor, constants: Mapping[str, Tensor]) -> Tensor:
        """Run one layer with every block's own parameters."""
        blocks, records = self._shape
        if inputs.ndim < 2 or inputs.shape[0] != blocks * records or inputs.shape[1] != 1:
            raise Unsupported("a layer does not get one row for each record")
        own = {local: self._parameters[name] for local, name in layer.names.items()}
        own |= {local: value.expand(blocks, *value.shape) for local, value in constants.items()}
        outputs, kept = layer.rule.run(inputs[:, 0].unflatten(0, self._shape), own)
        flat = outputs.flatten(0, 1)
        if not flat.requires_grad:
            flat.requires_grad_()
        kept = kept.detach()
        self._calls.append(_LayerCall(layer, kept, own, flat, (kept._version, flat._version)))
        return flat.unsqueeze(1)


def _uses(calls: Sequence[_LayerCall]) -> Counter[str]:
    """Return how often each parameter is used."""
    return Counter(name for taken in calls for name in taken.layer.names.values())


def _renamed(accounted: Accounted, names: Mapping[str, str]) -> Accounted:
    """Return the same under the model's names of parameters instead of the layer's own."""
    return Accounted(
        accounted.squares,
        lambda weights, quantum: {names[local]: value for local, value in accounted.sums(weights, quantum).items()},
        accounted.rounded,
    )


def _rule_type(layer: nn.Module) -> Any:
    """Return the rule for exactly this kind of layer, if there is one and the layer has no hooks."""
    hooked = layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks
    if hooked:
        return None
    if isinstance(layer, nn.Conv1d | nn.Conv2d) and type(layer) in (nn.Conv1d, nn.Conv2d) and layer.groups == 1:
        return convolution_rule
    if type(layer) is nn.Embedding and layer.max_norm is None and not layer.scale_grad_by_freq:
        return EmbeddingRule
    return {nn.Linear: LinearRule, nn.GroupNorm: NormRule, nn.LayerNorm: NormRule}.get(type(layer))
