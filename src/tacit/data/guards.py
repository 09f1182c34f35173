"""What user code may not do while it runs under `vmap`, where one call computes many records.

An operation that fails for one record fails for all of the call, and code that catches the error would take another branch
for all of them. Two of torch's own operations let an index that is out of range reach another record's numbers.
"""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from tacit.data.products import even_convolution


class CaughtFailure(Exception):
    """An operation failed, and the code that called it went on all the same."""


class Guard(TorchFunctionMode):
    """Watches every call of torch while records are computed together. Use it once, then call `check`."""

    def __init__(self) -> None:
        super().__init__()
        self._failed = False

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call the function, or its safe form."""
        try:
            if func in _SAFE:
                return _SAFE[func](*args, **(kwargs or {}))
            return func(*args, **(kwargs or {}))
        except Exception:
            self._failed = True
            raise

    def check(self) -> None:
        """Raise if anything failed, whether or not the error was caught."""
        if self._failed:
            raise CaughtFailure("an operation failed while records were computed")


def _embedding(input: Tensor, weight: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Look rows up; an index that is in no table gives NaN. Under `vmap` torch would read, and write, the next record's row."""
    known = (input >= 0) & (input < weight.shape[0])
    rows: Tensor = functional.embedding(input.clamp(0, weight.shape[0] - 1), weight, *args, **kwargs)
    return torch.where(known[..., None], rows, torch.nan)


def _embedding_of(weight: Tensor, indices: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Look rows up, with the arguments in the order of the operation beneath."""
    names = ("padding_idx", "scale_grad_by_freq", "sparse")
    given = dict(zip(names, args, strict=False)) | kwargs
    padding = given.get("padding_idx", -1)
    return _embedding(
        indices,
        weight,
        padding_idx=None if padding < 0 else padding,
        scale_grad_by_freq=given.get("scale_grad_by_freq", False),
    )


def _refused(*args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError("index_fill lets an index that is out of range reach another record; use torch.where")


_SAFE: dict[Any, Callable[..., Any]] = {
    functional.embedding: _embedding,
    torch.conv1d: even_convolution,
    torch.conv2d: even_convolution,
    torch.embedding: _embedding_of,
    torch.ops.aten.embedding: _embedding_of,
    torch.ops.aten.embedding.default: _embedding_of,
    torch.ops.aten.index_fill: _refused,
    torch.ops.aten.index_fill.int_Scalar: _refused,
    torch.ops.aten.index_fill.int_Tensor: _refused,
    torch.ops.aten.index_fill_: _refused,
    torch.ops.aten.index_fill_.int_Scalar: _refused,
    torch.ops.aten.index_fill_.int_Tensor: _refused,
    torch.index_fill: _refused,
    Tensor.index_fill: _refused,
    Tensor.index_fill_: _refused,
}


def chance_state() -> tuple[Any, ...]:
    """Return where the global generators of Python, numpy and torch stand: code that draws from one moves it."""
    numpy: Any = np.random.get_state(legacy=False)  # noqa: NPY002
    place = numpy["state"]
    return random.getstate(), place["key"].tobytes(), place["pos"], torch.get_rng_state().numpy().tobytes()
