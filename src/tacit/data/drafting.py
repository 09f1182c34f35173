"""Writes a schema from what is public: the tables' shapes and types, the number of classes, and the model.

Nothing is measured on records. A model adds a range if it looks up whole-number inputs, as they are, in an embedding:
any other number would fail there. If that is not certain, no range is written.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from tacit.data.fields import Field
from tacit.data.inputs import Inputs, Several, call_model, mapped, parts, rebuild
from tacit.data.prepare import bytes_to_unit
from tacit.data.schema import Schema

if TYPE_CHECKING:
    from tacit.data.datasets import DataSet


def settle(data: "DataSet", model: nn.Module) -> Schema:
    """Return the schema of a run: the declared one or a draft, limited to what classes and model allow."""
    return narrowed(draft(data) if data.schema is None else data.schema, data, model)


def draft(data: "DataSet") -> Schema:
    """Return the shapes and types of the training tables, without ranges; bytes have one by their type."""
    return Schema(inputs=mapped(Field.like, data.train.inputs), targets=Field.like(data.train.targets))


def narrowed(schema: Schema, data: "DataSet", model: nn.Module | None) -> Schema:
    """Add the ranges that follow from the classes and the model. A declared range that is wider is an error."""
    if data.classes is not None:
        reason = f"{data.classes} classes are numbered from 0"
        schema = replace(schema, targets=schema.targets.within(0, data.classes - 1, reason))
    # What another `prepare` does to a number is not known, so the model's range says nothing about raw ones.
    if model is not None and data.prepare is bytes_to_unit:
        fields = parts(schema.inputs)
        for place, field in enumerate(fields):
            rows = embedding_rows(model, schema.inputs, place) if field.dtype in (torch.int32, torch.int64) else None
            if rows is not None:
                fields[place] = field.within(0, rows - 1, f"the model looks them up in an embedding of {rows} rows")
        schema = replace(schema, inputs=rebuild(schema.inputs, fields))
    return schema


def embedding_rows(model: nn.Module, inputs: Several[Field], place: int = 0) -> int | None:
    """Return the number of rows of the embeddings that look up one of the model's inputs as it is, or None if unsure.

    Several embeddings may read different columns: the largest counts, and every place of the input must be read by
    one of them. A copy of the model is run on zeros, for which every embedding has a row.
    """
    parameter = next(model.parameters(), None)
    device = None if parameter is None else parameter.device
    zeros: Inputs = mapped(lambda field: torch.zeros((2, *field.shape), dtype=field.dtype, device=device), inputs)
    watch = _Lookups(parts(zeros)[place])
    try:
        with torch.no_grad(), torch.random.fork_rng(), watch:
            call_model(copy.deepcopy(model).train(), zeros)
    except Exception:  # errors of the model are reported by later checks
        return None
    return watch.rows if watch.rows and watch.reached.all() else None


class _Lookups(TorchDispatchMode):
    """Records which places of a tensor are looked up in an embedding, directly or through a view."""

    def __init__(self, source: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._source, self._version = source, source._version
        self._places = torch.arange(source.numel())
        self.reached = torch.zeros(source.numel(), dtype=torch.bool)
        self.rows = 0

    def __torch_dispatch__(
        self, operation: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Record a lookup, then call the function."""
        if operation is torch.ops.aten.embedding.default:
            weight, indices = args[:2]
            if self._is_source(indices):
                places = self._places.as_strided(indices.shape, indices.stride(), indices.storage_offset())
                self.reached[places.flatten()] = True
                self.rows = max(self.rows, len(weight))
        return operation(*args, **(kwargs or {}))

    def _is_source(self, indices: Tensor) -> bool:
        """Return whether these are unchanged numbers of the source itself."""
        source = self._source
        same = indices.untyped_storage().data_ptr() == source.untyped_storage().data_ptr()
        return same and indices.dtype == source.dtype and source._version == self._version
