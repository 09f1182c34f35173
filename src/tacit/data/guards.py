"""What user code may not do while it runs under `vmap`, where one call computes many records.

An operation that fails for one record fails for all records of the call, and code that catches the error would take another
branch for all of them. Two of torch's own operations let an index out of range reach another record's numbers.
"""

import random
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch._ops import HigherOrderOperator
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from tacit.data.operations import SEEN
from tacit.data.products import even_convolution


class CaughtFailure(Exception):
    """An operation failed, but the code that called it continued."""


class Guard(TorchFunctionMode):
    """Watches every call of torch while records are computed together. Use it once, then call `check`."""

    def __init__(self) -> None:
        super().__init__()
        self._failed, self._before = False, None
        self.strange: set[str] = set()  # calls inside which nothing is observed

    def __enter__(self) -> Self:
        """Begin to watch."""
        self._before, SEEN.depth = getattr(SEEN, "depth", None), 0
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        """Watch no longer."""
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        SEEN.depth = self._before

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call the function, or its safe form."""
        if (
            isinstance(func, HigherOrderOperator)
            or any(map(callable, args))
            or any(map(callable, (kwargs or {}).values()))
        ):
            self._note(func, args)
        depth, SEEN.depth = SEEN.depth, 1
        try:
            if func in _SAFE:
                return _SAFE[func](*args, **(kwargs or {}))
            if isinstance(func, _OPERATIONS) and "backward" in str(func):
                raise NotImplementedError(
                    f"{func} is called directly; such operations trust their indices, and a wrong index reaches another record"
                )
            return func(*args, **(kwargs or {}))
        except Exception:
            self._failed = True
            raise
        finally:
            SEEN.depth = depth

    def _note(self, func: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Record a call of code that is not torch's own; its inner calls are not observed."""
        given = args[0] if args else None
        if isinstance(given, type) and given.__module__.startswith("tacit."):
            return
        self.strange.add(getattr(given if isinstance(given, type) else func, "__name__", str(func)))

    def check(self) -> None:
        """Raise if anything failed, whether or not the error was caught."""
        if self._failed:
            raise CaughtFailure("an operation failed while records were computed")


def _embedding(input: Tensor, weight: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Look rows up; an index outside the table gives NaN. Under `vmap` torch would read and write the next record's row."""
    known = (input >= 0) & (input < weight.shape[0])
    rows: Tensor = functional.embedding(input.clamp(0, weight.shape[0] - 1), weight, *args, **kwargs)
    return torch.where(known[..., None], rows, torch.nan)


def _embedding_of(weight: Tensor, indices: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Look rows up, with the arguments in the order of the underlying operation."""
    names = ("padding_idx", "scale_grad_by_freq", "sparse")
    given = dict(zip(names, args, strict=False)) | kwargs
    padding = given.get("padding_idx", -1)
    return _embedding(
        indices,
        weight,
        padding_idx=None if padding < 0 else padding,
        scale_grad_by_freq=given.get("scale_grad_by_freq", False),
    )


def _sampled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a safe form of grid sampling: NaN where a place is not finite. Torch would read and write arbitrary memory."""

    def safe(input: Tensor, grid: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        known = grid.isfinite().all(-1)
        within = torch.where(known[..., None], grid, 0).clamp(-_FAR, _FAR)
        return torch.where(known[:, None], function(input, within, *args, **kwargs), torch.nan)

    return safe


def _refused(*args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError("index_fill lets an index that is out of range reach another record; use torch.where")


_OPERATIONS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
_FAR = 1e6  # in halves of an image: anything further out counts as this far
_GRIDS: tuple[Any, ...] = (functional.grid_sample, torch.grid_sampler, torch.grid_sampler_2d, torch.grid_sampler_3d)
_GRID_OPERATIONS: tuple[Any, ...] = (
    torch.ops.aten.grid_sampler,
    torch.ops.aten.grid_sampler_2d,
    torch.ops.aten.grid_sampler_3d,
)

_SAFE: dict[Any, Callable[..., Any]] = {
    **{each: _sampled(each) for each in (*_GRIDS, *_GRID_OPERATIONS, *(each.default for each in _GRID_OPERATIONS))},
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
    """Return the state of the global generators of Python, numpy and torch: code that draws from one changes it."""
    numpy: Any = np.random.get_state(legacy=False)  # noqa: NPY002
    place = numpy["state"]
    kept = numpy["has_gauss"], numpy["gauss"]  # the second of two normal numbers is kept for the next call
    return random.getstate(), place["key"].tobytes(), place["pos"], kept, torch.get_rng_state().numpy().tobytes()


def restore_chance(state: tuple[Any, ...]) -> None:
    """Restore the global generators."""
    python, key, place, kept, ours = state
    random.setstate(python)
    numpy: Any = np.random.get_state(legacy=False)  # noqa: NPY002
    numpy["state"] = {"key": np.frombuffer(key, dtype=np.uint32), "pos": place}
    numpy["has_gauss"], numpy["gauss"] = kept
    np.random.set_state(numpy)  # noqa: NPY002
    torch.set_rng_state(torch.frombuffer(bytearray(ours), dtype=torch.uint8))
