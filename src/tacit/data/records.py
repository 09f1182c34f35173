"""One table of records, and how a user's tensors, arrays or `Dataset` become one.

A record's input is one tensor, or several in a tuple or a dictionary; see `inputs`.

Tensors stay as compact as they were given (images of bytes stay bytes); the data set's `prepare` turns them into
what a model reads, for each batch after gathering.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Int64, Shaped
from torch import Tensor
from torch.utils.data import Dataset

from tacit.data.inputs import Inputs, check_inputs, describe_inputs, kinds, mapped, stack_records
from tacit.errors import DataError

Array: TypeAlias = Tensor | np.ndarray
Column: TypeAlias = Array | list[Any]


@dataclass(frozen=True, eq=False)
class Records:
    """Inputs and targets, one record per row, and optionally the unit that each belongs to.

    units: a number for each record. Records with the same number belong to one unit, such as a patient. A unit's number must not depend on which
        other units there are, since it may decide the unit's turn.
    """

    inputs: Inputs
    targets: Shaped[Tensor, "records *target"]
    units: Int64[Tensor, "records"] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", check_inputs(self.inputs))
        if not isinstance(self.targets, Tensor) or self.targets.ndim == 0:
            raise DataError(f"targets must be a tensor with one row per record, not {_describe(self.targets)}")
        check_inputs(self.inputs, len(self.targets))
        if self.units is not None and (self.units.dtype, self.units.shape) != (torch.int64, self.targets.shape[:1]):
            raise DataError(
                f"units are {_describe(self.units)}; give one int64 number for each of {len(self.targets)} records"
            )

    def __len__(self) -> int:
        return len(self.targets)

    def __repr__(self) -> str:
        # Records are private: a log or error message with this object must not show their values.
        return f"Records({len(self)} of {describe_inputs(self.inputs)})"

    @property
    def table(self) -> Shaped[Tensor, "records *shape"]:
        """The inputs, where a record has one; records with several are refused."""
        if isinstance(self.inputs, Tensor):
            return self.inputs
        raise DataError(f"this takes records with one input, but these have several: {describe_inputs(self.inputs)}")

    def take(self, indices: Int64[Tensor, "chosen"]) -> "Records":
        """Return the records at `indices`, in that order."""
        inputs = mapped(lambda table: table[indices], self.inputs)
        return Records(inputs, self.targets[indices], None if self.units is None else self.units[indices])

    def of_units(self, column: Any) -> "Records":
        """Return the same records with a column of units: whole numbers or strings, none missing."""
        plain = isinstance(column, Array) and not isinstance(column, np.ma.MaskedArray)
        ids = list(column.tolist() if plain else column)
        if not (all(type(one) is int for one in ids) or all(type(one) is str for one in ids)):
            kinds = ", ".join(sorted({type(one).__name__ for one in ids}))
            raise DataError(
                f"the column of units holds {kinds}; give whole numbers or texts, one for every record: missing or rounded values would "
                "merge several units into one"
            )
        numbers = {one: _stable_number(type(one).__name__, one) for one in set(ids)}
        return Records(self.inputs, self.targets, torch.tensor([numbers[one] for one in ids], dtype=torch.int64))

    @staticmethod
    def of(source: "RecordsLike") -> "Records":
        """Make a table of an (inputs, targets) pair, or of a map-style data set of (input, target) items.

        Inputs are a tensor, an array or a list of lists, or a tuple or dictionary of these, for models that read several.
        A data set is read once, item by item, so the result of any random transformation in it is fixed.
        """
        if isinstance(source, Records):
            return source
        if isinstance(source, tuple | list) and len(source) == 2:
            # A tuple of two lists is inputs and targets; a list may also hold two records.
            columns = (Array, list) if isinstance(source, tuple) else Array
            if isinstance(source[1], columns) and (isinstance(source[0], columns) or _is_several(source[0])):
                return Records(_inputs(source[0], "inputs"), _tensor(source[1], "targets"))
        if isinstance(source, Array) or not (hasattr(source, "__getitem__") and hasattr(source, "__len__")):
            raise DataError(
                f"cannot read records from {_describe(source)}; give Records, an (inputs, targets) pair of "
                "tensors or arrays, or a map-style data set of (input, target) items"
            )
        return _read_items(source)


RecordsLike: TypeAlias = (
    Records | tuple[Column | tuple[Column, ...] | dict[str, Column], Column] | Dataset[Any] | Sequence[tuple[Any, Any]]
)
"""What `Records.of` takes."""


def concatenate(tables: Sequence[Records]) -> Records:
    """Concatenate tables of records of one shape."""
    for name in ("inputs", "targets"):
        first: Inputs = getattr(tables[0], name)
        for i, table in enumerate(tables):
            own: Inputs = getattr(table, name)
            if kinds(own) != kinds(first):
                raise DataError(
                    f"{name} of part {i} are {describe_inputs(own)} but those of part 0 are {describe_inputs(first)}; all parts must be alike"
                )
    units = [table.units for table in tables if table.units is not None]
    if len(units) not in (0, len(tables)):
        raise DataError("some parts say to whom records belong and others do not; give units of all, or of none")
    inputs = mapped(lambda *columns: torch.cat(columns), *(table.inputs for table in tables))
    # Each part has numbers of its own: equal ones are not the same unit.
    apart = units if len(units) == 1 else [_number_apart(column, part) for part, column in enumerate(units)]
    return Records(inputs, torch.cat([table.targets for table in tables]), torch.cat(apart) if apart else None)


def _number_apart(units: Int64[Tensor, "records"], part: int) -> Int64[Tensor, "records"]:
    """Return new numbers for the units of a part, distinct from those of all other parts."""
    known, whose = units.unique(return_inverse=True)
    return torch.tensor([_stable_number(part, one) for one in known.tolist()], dtype=torch.int64)[whose]


def _stable_number(*name: object) -> int:
    """Return a number that follows from a unit's name alone, so that another unit changes no number. Two names collide with probability 2⁻⁶³."""
    return int.from_bytes(hashlib.blake2b(repr(name).encode(), digest_size=8).digest(), "little") >> 1


def _read_items(items: Any) -> Records:
    if len(items) == 0:
        raise DataError(f"{_describe(items)} holds no records")
    inputs: list[Inputs] = []
    targets: list[Tensor] = []
    wrong: list[str] = []  # what is wrong with each item that cannot be used
    number = 0  # of the first usable item
    for i in range(len(items)):
        try:
            item = items[i]
        except Exception as error:  # of the user's own code
            wrong.append(f"item {i} cannot be read: {type(error).__name__}: {error}")
            continue
        if not isinstance(item, tuple | list) or len(item) != 2:
            wrong.append(f"item {i} is {_describe(item)}, not an (input, target) pair")
            continue
        try:
            pair = _inputs(item[0], f"input of item {i}"), _tensor(item[1], f"target of item {i}")
        except DataError as error:
            wrong.append(str(error))
            continue
        first, number = ((inputs[0], targets[0]), number) if inputs else (pair, i)
        odd = [
            f"{name} of item {i} has shape {_shape(one)} but that of item {number} has {_shape(other)}; crop, pad or resize all of "
            "them to one shape"
            for name, one, other in zip(("input", "target"), pair, first, strict=True)
            if _shape(one) != _shape(other)
        ]
        wrong += odd[:1]
        if not odd:
            inputs.append(pair[0])
            targets.append(pair[1])
    if wrong:
        raise DataError(f"{len(wrong)} of {len(items)} records cannot be used. The first: {wrong[0]}")
    return Records(stack_records(inputs), torch.stack(targets))


def _shape(one: Inputs) -> Any:
    return mapped(lambda tensor: tuple(tensor.shape), one)


def _is_several(value: Any) -> bool:
    """Return whether this is a tuple of tensors or arrays, or a dictionary of these or lists; a tuple of numbers is one tensor."""
    if isinstance(value, dict):
        return bool(value) and all(isinstance(column, Array | list) for column in value.values())
    return isinstance(value, tuple) and bool(value) and all(isinstance(column, Array) for column in value)


def _inputs(value: Any, name: str) -> Inputs:
    if not _is_several(value):
        return _tensor(value, name)
    found: Inputs = mapped(lambda column: _tensor(column, name), value)
    return found


def _tensor(value: Any, name: str) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach()
    try:
        if isinstance(value, int | float) or _is_plain(value):
            return torch.as_tensor(value)
        # torch shares an array's memory only if it is writable and laid out row by row.
        return torch.from_numpy(np.require(value, requirements=["C", "W"]))
    except (TypeError, ValueError) as error:
        if name.startswith("target") and _is_text(value):
            raise DataError(
                f"{name} cannot be turned into a tensor, since labels are text; number the classes from 0 and give these numbers"
            ) from None
        raise DataError(f"{name} cannot be turned into a tensor: {_describe(value)} ({error})") from None


def _is_plain(value: Any) -> bool:
    """Return whether this is a list of Python numbers, or a list of such lists."""
    while isinstance(value, list | tuple) and len(value):
        value = value[0]
    return isinstance(value, int | float)


def _is_text(value: Any) -> bool:
    """Return whether this is a text, or holds texts."""
    first = np.ravel(np.asarray(value, dtype=object))[:1]
    return any(isinstance(each, str) for each in first)


def _describe(value: object) -> str:
    if isinstance(value, Array):
        kind = "a tensor" if isinstance(value, Tensor) else "an array"
        return f"{kind} of {value.dtype} and shape {tuple(value.shape)}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of length {len(value)}"
    return f"an object of type {type(value).__name__}"
