"""The structure of a module as a value to compare: two modules with the same one compute the same function of θ."""

import hashlib
import sys
from dataclasses import fields, is_dataclass
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as all_modules

_OWN = ("torch", "tacit")
_INTERNAL = frozenset(vars(nn.Module())) - {"training"}
_HOOKS = tuple(name for name in _INTERNAL if name.endswith("hooks"))
_GLOBAL_HOOKS = tuple(name for name in vars(all_modules) if name.startswith("_global") and name.endswith("hooks"))
_PLAIN = (int, float, str, bool, type(None))


def make_of(module: nn.Module) -> tuple[Any, ...] | None:
    """Return classes, settings, shapes and constants of all layers, or None if there is code or state that is not torch's.

    A user's code may behave differently from call to call; torch's layers with the same settings cannot.
    """
    if any(getattr(all_modules, name) for name in _GLOBAL_HOOKS):
        return None
    first: dict[int, str] = {}  # the first name of each parameter, which may be tied to others
    made: list[Any] = []
    for name, layer in module.named_modules(remove_duplicate=False):
        settings = {key: value for key, value in vars(layer).items() if key not in _INTERNAL}
        hooked = any(getattr(layer, hooks) for hooks in _HOOKS)
        if not _is_known(type(layer)) or hooked or not all(map(_is_plain, settings.values())):
            return None
        made.append((name, type(layer), type(layer).forward, tuple(sorted(settings.items()))))
        for own, parameter in layer.named_parameters(recurse=False):
            place = first.setdefault(id(parameter), f"{name}.{own}")
            value = () if parameter.requires_grad else _digest(parameter)
            made.append((own, place, tuple(parameter.shape), parameter.dtype, str(parameter.device), value))
        made += [(own, _digest(buffer)) for own, buffer in layer.named_buffers(recurse=False)]
    return tuple(made)


def is_own(function: Any) -> bool:
    """Return whether a function, or a dataclass with everything in it, is torch's or this library's."""
    if function is None:
        return True
    if isinstance(function, FunctionType | BuiltinFunctionType):
        named = getattr(sys.modules.get(function.__module__), function.__qualname__, None)
        return _is_known(function) and named is function  # and not another one under its name
    if not _is_known(type(function)) or not is_dataclass(function):
        return False
    values = [getattr(function, field.name) for field in fields(function)]
    return all(_is_plain(value) or is_own(value) for value in values)


def _is_known(thing: Any) -> bool:
    return str(thing.__module__).split(".")[0] in _OWN


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return type(value) in _PLAIN


def _digest(tensor: Tensor) -> Any:
    numbers = tensor.detach().cpu().reshape(-1).contiguous()
    digest = hashlib.sha256(numbers.view(torch.uint8).numpy().tobytes()).hexdigest()  # numpy has no bfloat16
    return tuple(tensor.shape), tensor.dtype, str(tensor.device), digest
