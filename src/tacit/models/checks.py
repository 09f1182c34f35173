"""Refuses a module without per-sample gradients, and names the layer at fault.

A layer that mixes samples (batch norm) lets one record change the gradients of others, so clipping would bound
nothing. A layer that changes itself during a forward pass keeps a trace of private records. Known layers are recognised
by type; others are probed on a copy, with public inputs: the same record must give the same output with any other
records in the batch, and twice in a row.
"""

import copy
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from tacit.data.inputs import Inputs, call_model, mapped, names, parts
from tacit.data.prepare import close
from tacit.errors import ModelError
from tacit.models.seeding import seeded


def check_module(module: nn.Module, example: Inputs) -> None:
    """Raise a `ModelError` that names a layer that mixes samples or changes itself.

    `example` holds at least three prepared public inputs.
    """
    for name, layer in module.named_modules():
        label = f"{type(layer).__name__} {name!r}"
        if isinstance(layer, _BatchNorm):
            raise ModelError(f"{label} mixes samples, so a per-sample gradient does not exist; use GroupNorm")
        if isinstance(layer, nn.modules.lazy.LazyModuleMixin) and layer.has_uninitialized_params():  # type: ignore[misc]
            raise ModelError(f"{label} has no parameters yet; run the model once on an example before training")
    probe = copy.deepcopy(module).train()
    first_parameter = next(module.parameters(), None)
    if first_parameter is not None:
        like = first_parameter
        example = mapped(
            lambda tensor: tensor.to(like.device, like.dtype if tensor.is_floating_point() else None), example
        )
    before = _attributes(probe)
    first = _watch(probe, mapped(itemgetter([0, 1]), example), seed=0)
    after = _attributes(probe)
    for name, layer in probe.named_modules():
        if changed := [key for key, value in after[name].items() if not _same(before[name].get(key), value)]:
            label = f"{type(layer).__name__} {name!r}" if name else type(layer).__name__
            raise ModelError(f"{label} changes its {changed[0]!r} in a forward pass, which would keep a trace of data")
    again = _watch(probe, mapped(itemgetter([0, 1]), example), seed=1)
    complaint = "gives another output for the same batch: it holds state, or draws random numbers as dropout does. "
    complaint += "Random masks depend on a record's place in its lot, and clipping would no longer bound its influence"
    _compare(module, first, again, complaint)
    beside = _watch(probe, mapped(itemgetter([0, 2]), example), seed=1)
    _compare(module, again, beside, "mixes samples: a record's output changes with the others in its batch")


_OF_EVERY_MODULE = frozenset(vars(nn.Module()))


def _attributes(module: nn.Module) -> dict[str, dict[str, Any]]:
    """Return, for every layer, its buffers and other state that a forward pass might change."""
    kept = {}
    for name, layer in module.named_modules():
        own = {key: value for key, value in vars(layer).items() if key not in _OF_EVERY_MODULE}
        own |= {key: value.clone() for key, value in layer.named_buffers(recurse=False)}
        kept[name] = {
            key: copy.copy(value) if isinstance(value, list | dict | set) else value for key, value in own.items()
        }
    return kept


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and torch.equal(one, other)
    if isinstance(other, Tensor):
        return False
    try:
        return one is other or bool(one == other)
    except (TypeError, ValueError, RuntimeError):
        return False


Seen = dict[str, tuple[list[Tensor], Tensor]]


def _watch(module: nn.Module, batch: Inputs, seed: int) -> Seen:
    """Run a batch and return what went into and came out of every layer for the batch's first record."""
    seen: Seen = {}
    records = len(parts(batch)[0])

    def watcher(name: str) -> Callable[..., None]:
        def watch(_: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:
            given = [each for each in (*inputs, *named.values()) if _is_batch(each, records)]
            if given and _is_batch(output, records):
                seen[name] = ([each[0].detach().clone() for each in given], output[0].detach().clone())

        return watch

    # The hooks are on a copy, and are removed all the same.
    handles = [layer.register_forward_hook(watcher(name), with_kwargs=True) for name, layer in module.named_modules()]
    try:
        with torch.no_grad(), seeded(seed):
            call_model(module, batch)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        several = zip(names(batch), parts(batch), strict=True)
        kind = ", ".join(f"{name}, {each.dtype} of shape {tuple(each.shape)}" for name, each in several)
        kind = kind.removeprefix("inputs, ")
        raise ModelError(f"the model fails on a batch of {kind}: {type(error).__name__}: {error}") from error
    finally:
        for handle in handles:
            handle.remove()
    return seen


def _compare(module: nn.Module, one: Seen, other: Seen, complaint: str) -> None:
    # Innermost layers finish first, so the first difference under equal inputs is the culprit.
    layers = dict(module.named_modules())
    for name, (given, output) in one.items():
        if name not in other:
            continue
        given_too, output_too = other[name]
        same_input = len(given) == len(given_too) and all(
            one.shape == other.shape and torch.equal(one, other) for one, other in zip(given, given_too, strict=True)
        )
        if same_input and not close(output, output_too):
            label = f"{type(layers[name]).__name__} {name!r}" if name else type(module).__name__
            raise ModelError(f"{label} {complaint}")


def _is_batch(value: Any, length: int) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0 and value.shape[0] == length
