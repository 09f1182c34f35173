"""What a model reads of a record: one tensor, or several, as a tuple or a dictionary of tensors with one row per record each.

A model is called as `model(inputs)`, `model(*inputs)` or `model(**inputs)`: a tuple's tensors by their order, a dictionary's by
their names. `mapped` applies a function of one tensor to several; there is no nesting, and the order of names does not matter.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor

from tacit.errors import DataError

T = TypeVar("T")
S = TypeVar("S")
Several: TypeAlias = T | tuple[T, ...] | dict[str, T]
Inputs: TypeAlias = Tensor | tuple[Tensor, ...] | dict[str, Tensor]


def mapped(function: Callable[..., S], *several: Any) -> Any:
    """Apply a function to each tensor, or to corresponding tensors of several inputs, and return the same structure."""
    first = several[0]
    if isinstance(first, dict):
        return {name: function(*(one[name] for one in several)) for name in sorted(first)}
    if isinstance(first, tuple):
        return tuple(function(*parts) for parts in zip(*several, strict=True))
    return function(*several)


def parts(several: Several[T]) -> list[T]:
    """Return the tensors, or other parts, as a list."""
    if isinstance(several, dict):
        return [several[name] for name in sorted(several)]
    return list(several) if isinstance(several, tuple) else [several]


def rebuild(like: Any, flat: Sequence[S]) -> Any:
    """Return the structure that `parts` took apart, with these parts instead."""
    if isinstance(like, dict):
        return dict(zip(sorted(like), flat, strict=True))
    return tuple(flat) if isinstance(like, tuple) else flat[0]


def names(several: Several[Any], name: str = "inputs") -> list[str]:
    """Return the name of each part for messages."""
    if isinstance(several, dict):
        return [f"{name}[{key!r}]" for key in sorted(several)]
    return [f"{name}[{place}]" for place in range(len(several))] if isinstance(several, tuple) else [name]


def same_structure(one: Several[Any], other: Several[Any]) -> bool:
    """Return whether two have the same structure."""
    return names(one) == names(other)


def kinds(inputs: Inputs) -> Any:
    """Return the shape and type of each tensor's rows, in the same structure."""
    return mapped(lambda table: (tuple(table.shape[1:]), table.dtype), inputs)


def describe_inputs(inputs: Inputs) -> str:
    """Describe a record's inputs without their values."""
    words = [f"{table.dtype} and shape {tuple(table.shape[1:])}" for table in parts(inputs)]
    if isinstance(inputs, Tensor):
        return words[0]
    return ", ".join(f"{name} of {kind}" for name, kind in zip(names(inputs), words, strict=True))


def check_inputs(inputs: Any, records: int | None = None) -> Inputs:
    """Return inputs with a dictionary's names sorted, or raise. All must have one row per record."""
    if isinstance(inputs, dict):
        if not all(isinstance(name, str) and name.isidentifier() for name in inputs):
            raise DataError(
                f"inputs are called {', '.join(map(repr, inputs))}; they are the names of the model's arguments, so that each must "
                "be a name in Python"
            )
        inputs = {name: inputs[name] for name in sorted(inputs)}
    elif not isinstance(inputs, Tensor | tuple):
        raise DataError(
            f"inputs must be a tensor with one row per record, or a tuple or dictionary of such tensors, not {_kind(inputs)}"
        )
    if not parts(inputs):
        raise DataError(f"inputs are an empty {type(inputs).__name__}; a record has at least one tensor")
    for name, table in zip(names(inputs), parts(inputs), strict=True):
        if not isinstance(table, Tensor) or table.ndim == 0:
            raise DataError(f"{name} must be a tensor with one row per record, not {_kind(table)}")
        if records is not None and len(table) != records:
            raise DataError(f"{len(table)} {name} but {records} targets; each record has one of both")
    found: Inputs = inputs
    return found


def call_model(model: Callable[..., S], inputs: Inputs) -> S:
    """Call a model on a batch."""
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


def arguments(inputs: Inputs) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Return a model's positional and keyword arguments."""
    if isinstance(inputs, dict):
        return (), inputs
    return (inputs if isinstance(inputs, tuple) else (inputs,)), {}


def stack_records(records: Sequence[Inputs]) -> Inputs:
    """Return single records as one batch."""
    found: Inputs = mapped(lambda *tensors: torch.stack(tensors), *records)
    return found


def _kind(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a Tensor of {value.dtype} and shape {tuple(value.shape)}"
    return f"an object of type {type(value).__name__}"
