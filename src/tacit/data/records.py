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
    """Inputs and targets, one record per row; and, where records are protected together, to whom each belongs.

    units: a number for each record. Records with the same number belong to one unit, such as a patient.
    """

    inputs: Shaped[Tensor, "records *shape"]
    targets: Shaped[Tensor, "records *target"]
    units: Int64[Tensor, "records"] | None = None

    def __post_init__(self) -> None:
        for name, tensor in (("inputs", self.inputs), ("targets", self.targets)):
            if not isinstance(tensor, Tensor) or tensor.ndim == 0:
                raise DataError(f"{name} must be a tensor with one row per record, not {_describe(tensor)}")
        if len(self.inputs) != len(self.targets):
            raise DataError(f"{len(self.inputs)} inputs but {len(self.targets)} targets; each record has one of both")
        if self.units is not None and (self.units.dtype, self.units.shape) != (torch.int64, self.targets.shape[:1]):
            raise DataError(
                f"units are {_describe(self.units)}; give one int64 number for each of {len(self.targets)} records"
            )

    def __len__(self) -> int:
        return len(self.inputs)

    def __repr__(self) -> str:
        # Records are private: no log or error text that shows this object may show what they hold.
        return f"Records({len(self)} of {self.inputs.dtype} and shape {tuple(self.inputs.shape[1:])})"

    def take(self, indices: Int64[Tensor, "chosen"]) -> "Records":
        """Return the records at `indices`, in that order."""
        return Records(self.inputs[indices], self.targets[indices], None if self.units is None else self.units[indices])

    def of_units(self, column: Any) -> "Records":
        """Return the same records with a column that says to whom each belongs: numbers, texts or whatever can be sorted."""
        try:
            _, numbers = np.unique(np.asarray(column), return_inverse=True)
        except (TypeError, ValueError) as error:
            raise DataError(f"the column of units cannot be sorted: {error}") from None
        return Records(self.inputs, self.targets, torch.from_numpy(numbers.reshape(-1).astype(np.int64)))

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
    units = [table.units for table in tables if table.units is not None]
    if len(units) not in (0, len(tables)):
        raise DataError("some parts say to whom records belong and others do not; give units of all, or of none")
    both = torch.cat([t.inputs for t in tables]), torch.cat([t.targets for t in tables])
    return Records(*both, torch.cat(units) if units else None)


def _read_items(items: Any) -> Records:
    if len(items) == 0:
        raise DataError(f"{_describe(items)} holds no records")
    inputs: list[Tensor] = []
    targets: list[Tensor] = []
    for i in range(len(items)):
        item = items[i]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise DataError(f"item {i} is {_describe(item)}, not an (input, target) pair")
        for column, value, name in ((inputs, item[0], "input"), (targets, item[1], "target")):
            tensor = _tensor(value, f"{name} of item {i}")
            if column and tensor.shape != column[0].shape:
                raise DataError(
                    f"{name} of item {i} has shape {tuple(tensor.shape)} but that of item 0 has "
                    f"{tuple(column[0].shape)}; crop, pad or resize all of them to one shape"
                )
            column.append(tensor)
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
