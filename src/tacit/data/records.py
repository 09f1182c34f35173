"""One table of records, and how a user's tensors, arrays or `Dataset` become one.

Tensors stay as compact as they were given (images of bytes stay bytes); turning them into what a model reads
is the data set's `prepare`, which runs on a batch after it was gathered.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Int64, Shaped
from torch import Tensor
from torch.utils.data import Dataset

from tacit.errors import DataError

Array: TypeAlias = Tensor | np.ndarray


@dataclass(frozen=True, eq=False)
class Records:
    """Inputs and targets, one record per row."""

    inputs: Shaped[Tensor, "records *shape"]
    targets: Shaped[Tensor, "records *target"]

    def __post_init__(self) -> None:
        for name, tensor in (("inputs", self.inputs), ("targets", self.targets)):
            if not isinstance(tensor, Tensor) or tensor.ndim == 0:
                raise DataError(f"{name} must be a tensor with one row per record, not {_describe(tensor)}")
        if len(self.inputs) != len(self.targets):
            raise DataError(f"{len(self.inputs)} inputs but {len(self.targets)} targets; each record has one of both")

    def __len__(self) -> int:
        return len(self.inputs)

    def __repr__(self) -> str:
        # Records are private: no log or error text that shows this object may show what they hold.
        return f"Records({len(self)} of {self.inputs.dtype} and shape {tuple(self.inputs.shape[1:])})"

    def take(self, indices: Int64[Tensor, "chosen"]) -> "Records":
        """Return the records at `indices`, in that order."""
        return Records(self.inputs[indices], self.targets[indices])

    @staticmethod
    def of(source: "Source") -> "Records":
        """Make a table of an (inputs, targets) pair, or of a map-style data set of (input, target) items.

        A data set is read once, item by item: whatever random transformation it applies is frozen there.
        """
        if isinstance(source, Records):
            return source
        if isinstance(source, tuple | list) and len(source) == 2 and all(isinstance(x, Array) for x in source):
            return Records(_tensor(source[0], "inputs"), _tensor(source[1], "targets"))
        if isinstance(source, Array) or not (hasattr(source, "__getitem__") and hasattr(source, "__len__")):
            raise DataError(
                f"cannot read records from {_describe(source)}; give Records, an (inputs, targets) pair of "
                "tensors or arrays, or a map-style data set of (input, target) items"
            )
        return _read_items(source)


Source: TypeAlias = Records | tuple[Array, Array] | Dataset[Any] | Sequence[tuple[Any, Any]]
"""What `Records.of` takes."""


def concatenate(tables: Sequence[Records]) -> Records:
    """Put tables of equally shaped records below each other."""
    for name in ("inputs", "targets"):
        first: Tensor = getattr(tables[0], name)
        for i, table in enumerate(tables):
            tensor: Tensor = getattr(table, name)
            if (tensor.shape[1:], tensor.dtype) != (first.shape[1:], first.dtype):
                raise DataError(
                    f"{name} of part {i} are {tensor.dtype} of shape {tuple(tensor.shape[1:])} but those of "
                    f"part 0 are {first.dtype} of shape {tuple(first.shape[1:])}; all parts must be alike"
                )
    return Records(torch.cat([t.inputs for t in tables]), torch.cat([t.targets for t in tables]))


def _read_items(items: Any) -> Records:
    if len(items) == 0:
        raise DataError(f"{_describe(items)} holds no records")
    inputs: list[Tensor] = []
    targets: list[Tensor] = []
    wrong: list[str] = []  # what is the matter with each item that cannot be used
    for i in range(len(items)):
        item = items[i]
        if not isinstance(item, tuple | list) or len(item) != 2:
            wrong.append(f"item {i} is {_describe(item)}, not an (input, target) pair")
            continue
        pair = _tensor(item[0], f"input of item {i}"), _tensor(item[1], f"target of item {i}")
        first = (inputs[0], targets[0]) if inputs else pair
        odd = [
            f"{name} of item {i} has shape {tuple(one.shape)} but that of the first has {tuple(other.shape)}; crop, pad or resize "
            "all of them to one shape"
            for name, one, other in zip(("input", "target"), pair, first, strict=True)
            if one.shape != other.shape
        ]
        wrong += odd[:1]
        if not odd:
            inputs.append(pair[0])
            targets.append(pair[1])
    if wrong:
        raise DataError(f"{len(wrong)} of {len(items)} records cannot be used. The first: {wrong[0]}")
    return Records(torch.stack(inputs), torch.stack(targets))


def _tensor(value: Any, name: str) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach()
    try:
        if isinstance(value, int | float):
            return torch.tensor(value)
        # torch shares an array's memory only where it is writable and laid out row by row.
        return torch.from_numpy(np.require(value, requirements=["C", "W"]))
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} cannot become a tensor: {_describe(value)} ({error})") from None


def _describe(value: object) -> str:
    if isinstance(value, Array):
        return f"a {type(value).__name__} of {value.dtype} and shape {tuple(value.shape)}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of length {len(value)}"
    return f"an object of type {type(value).__name__}"
