"""A module for stacked agents: a copy whose layers with parameters know whose record is whose.

Records of all blocks go through the user's own forward code as one flat batch. Only the layers that hold trainable
parameters are swapped, on a copy, for `_Unit`s that split the batch into blocks, use each block's own parameters, and
keep what went in and came out. One backward pass from the losses to those outputs then gives every g that the rules
in `layers` need. Nothing is hooked, and the user's module is not touched.
"""

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tacit.models.functional import FlatModel
from tacit.privacy.clipping import Lot, clip_factors
from tacit.privacy.engines.convolution import convolution_rule
from tacit.privacy.engines.layers import (
    Accounted,
    Call,
    EmbeddingRule,
    LinearRule,
    NormRule,
    Rule,
    account_per_sample,
)
from tacit.privacy.engines.whole import WholeRule


class Unsupported(Exception):
    """This module cannot be taken layer by layer; the general engine takes it whole."""


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
        self._module = nn.ModuleList([module])
        self._swap(self._module, {})

    def clipped_sums(
        self,
        theta: Float[Tensor, "blocks params"],
        inputs: Float[Tensor, "all ..."],
        targets: Float[Tensor, "all ..."],
        keep: Bool[Tensor, "blocks records"],
        clip: Float[Tensor, " blocks"],
    ) -> tuple[Float[Tensor, "blocks params"], Float[Tensor, "blocks records"]]:
        """Return every block's sum of clipped gradients, and every record's norm, in float64."""
        accounted = self._account(theta, inputs, targets, keep)
        norms = torch.stack([each.squares for each in accounted]).sum(0).sqrt()
        factors = torch.where(keep & norms.isfinite(), clip_factors(norms, clip[:, None]), 0)
        return self._weighted(accounted, factors), norms

    def plain_sums(
        self, theta: Tensor, inputs: Tensor, targets: Tensor, keep: Tensor
    ) -> Float[Tensor, "blocks params"]:
        """Return every block's sum of gradients, unclipped, in float64."""
        return self._weighted(self._account(theta, inputs, targets, keep), keep.double())

    def numbers_kept(self, example: Lot) -> int:
        """Return how many numbers are kept for one record, such as the first of these."""
        theta = torch.zeros(1, self._model.size, dtype=self._model.dtype, device=example.inputs.device)
        inputs = self._model.cast(example.inputs[:1])
        with torch.enable_grad():
            run = self._trace.run(self._module[0], self._model.unflatten_stacked(theta), inputs, torch.Size((1, 1)))
        kept = sum(taken.inputs.numel() + taken.outputs.numel() for taken in run.calls)
        used = _uses(run.calls)
        counts = zip(self._model.names, self._model.counts, strict=True)
        return kept + sum(count for name, count in counts if used[name] > 1)  # those have per-sample gradients

    def _account(self, theta: Tensor, inputs: Tensor, targets: Tensor, keep: Tensor) -> list[Accounted]:
        """Run forward and backward; return what every layer adds to norms and sums."""
        parameters = self._model.unflatten_stacked(theta)
        with torch.enable_grad():
            run = self._trace.run(self._module[0], parameters, self._model.cast(inputs), keep.shape)
            losses = self._model.losses_of(run.outputs, targets)
            outputs = [taken.outputs for taken in run.calls]
            gradients: tuple[Tensor | None, ...] = torch.autograd.grad(losses.sum(), outputs, allow_unused=True)
        used = _uses(run.calls)
        left = [(each.unit, each.inputs, each.parameters, g) for each, g in zip(run.calls, gradients, strict=True)]
        del run, losses, outputs, gradients  # memory: what is done with is dropped, here and below
        left.reverse()
        accounted = []
        repeated: dict[str, Tensor] = {}  # per-sample gradients of parameters that are used more than once
        while left:
            unit, given, own, gradient = left.pop()
            if gradient is None:  # the loss does not depend on this call
                continue
            call = Call(given, own, gradient.detach().unflatten(0, keep.shape))
            if all(used[name] == 1 for name in unit.names.values()):
                accounted.append(_renamed(unit.rule.account(call), unit.names))
                continue
            for local, each in unit.rule.per_sample(call).items():
                name = unit.names[local]
                repeated[name] = repeated[name] + each if name in repeated else each
        return [*accounted, account_per_sample(repeated)] if repeated else accounted

    def _weighted(
        self, accounted: list[Accounted], weights: Float[Tensor, "blocks records"]
    ) -> Float[Tensor, "blocks params"]:
        """Return the sums, and empty the list: what a layer kept is dropped once it is added up."""
        found: dict[str, Tensor] = {}
        while accounted:
            found |= accounted.pop().sums(weights)
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
                child.inplace = False  # type: ignore[assignment]  # it would overwrite what a layer before it kept
            if id(child) not in made:
                made[id(child)] = self._unit(child) or child
                if made[id(child)] is child:
                    self._swap(child, made)
            parent._modules[key] = made[id(child)]

    def _unit(self, layer: nn.Module) -> "_Unit | None":
        """Return what takes the place of a layer that holds trainable parameters itself; None for any other."""
        own = {name: p for name, p in layer.named_parameters(recurse=False) if id(p) in self._names}
        if not own:
            return None
        make = _rule_type(layer)
        if make is None:
            held = {name: p for name, p in layer.named_parameters() if id(p) in self._names}
            return _Unit(WholeRule(layer, frozenset(held)), self._globals(held), {}, self._trace)
        trainable, frozen = frozenset(own), dict(layer.named_parameters(recurse=False))
        rule: Rule
        if isinstance(layer, nn.Conv1d | nn.Conv2d):
            rule = convolution_rule(layer, trainable, compiled=self._compiled)
        else:
            rule = make(layer, trainable)
        constants = {name: p.detach() for name, p in frozen.items() if name not in trainable}
        return _Unit(rule, self._globals(own), constants, self._trace)

    def _globals(self, held: Mapping[str, nn.Parameter]) -> dict[str, str]:
        return {name: self._names[id(p)] for name, p in held.items()}


class _Unit(nn.Module):
    """Stands in the copy for one layer. `names` maps its own names of parameters to those of the model."""

    def __init__(self, rule: Rule, names: dict[str, str], constants: dict[str, Tensor], trace: "_Trace") -> None:
        super().__init__()
        self.rule, self.names, self._constants, self._trace = rule, names, constants, trace

    def forward(self, *given: Any, **options: Any) -> Tensor:
        """Run the layer on a flat batch, block by block."""
        if len(given) != 1 or options or not isinstance(given[0], Tensor):
            raise Unsupported("a layer is called with more than one tensor")
        return self._trace.call(self, given[0], self._constants)


class _Taken(NamedTuple):
    unit: _Unit
    inputs: Tensor
    parameters: Mapping[str, Tensor]
    outputs: Tensor
    versions: tuple[int, int]


class _Run(NamedTuple):
    outputs: Tensor
    calls: list[_Taken]


class _Trace:
    """What the layers see and leave during one forward pass."""

    def __init__(self) -> None:
        self._parameters: Mapping[str, Tensor] = {}
        self._shape = torch.Size()
        self._calls: list[_Taken] = []

    def run(self, module: nn.Module, parameters: Mapping[str, Tensor], inputs: Tensor, shape: torch.Size) -> _Run:
        """Run the module and return its outputs with every call of a layer."""
        self._parameters, self._shape, self._calls = parameters, shape, []
        try:
            outputs = module(inputs)
            for call in self._calls:
                if (call.inputs._version, call.outputs._version) != call.versions:
                    raise Unsupported("something overwrites the inputs or outputs of a layer")
            return _Run(outputs, self._calls)
        finally:
            self._parameters, self._calls = {}, []

    def call(self, unit: _Unit, inputs: Tensor, constants: Mapping[str, Tensor]) -> Tensor:
        """Run one layer with every block's own parameters."""
        blocks, records = self._shape
        if inputs.ndim == 0 or inputs.shape[0] != blocks * records:
            raise Unsupported("a layer does not get one row for each record")
        own = {local: self._parameters[name] for local, name in unit.names.items()}
        own |= {local: value.expand(blocks, *value.shape) for local, value in constants.items()}
        outputs, kept = unit.rule.run(inputs.unflatten(0, self._shape), own)
        flat = outputs.flatten(0, 1)
        if not flat.requires_grad:
            flat.requires_grad_()
        kept = kept.detach()
        self._calls.append(_Taken(unit, kept, own, flat, (kept._version, flat._version)))
        return flat


def _uses(calls: Sequence[_Taken]) -> Counter[str]:
    """Return how often each parameter is used."""
    return Counter(name for taken in calls for name in taken.unit.names.values())


def _renamed(accounted: Accounted, names: Mapping[str, str]) -> Accounted:
    """Return the same with the model's names of parameters in the place of the layer's own."""
    return Accounted(
        accounted.squares, lambda weights: {names[local]: value for local, value in accounted.sums(weights).items()}
    )


def _rule_type(layer: nn.Module) -> Any:
    """Return the rule for exactly this kind of layer, if there is one and nothing is attached to the layer."""
    hooked = layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks
    if hooked:
        return None
    if isinstance(layer, nn.Conv1d | nn.Conv2d) and type(layer) in (nn.Conv1d, nn.Conv2d) and layer.groups == 1:
        return convolution_rule
    if type(layer) is nn.Embedding and layer.max_norm is None and not layer.scale_grad_by_freq:
        return EmbeddingRule
    return {nn.Linear: LinearRule, nn.GroupNorm: NormRule, nn.LayerNorm: NormRule}.get(type(layer))
