"""A rule's state as named tensors, and back: nested tuples of tensors and numbers."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, tensor

from tacit.errors import InvalidInput, StorageError


def flatten(state: Any, name: str = "state") -> dict[str, Tensor]:
    """Return the tensors of a nested tuple by their places; plain numbers become tensors."""
    if isinstance(state, Tensor):
        return {name: state}
    if isinstance(state, tuple):
        return {k: v for i, part in enumerate(state) for k, v in flatten(part, f"{name}.{i}").items()}
    if isinstance(state, bool | int | float):
        return {name: tensor(state)}
    raise InvalidInput(
        f"an algorithm's state holds {type(state).__name__}; only tensors, numbers and tuples can be saved"
    )


def restore(template: Any, tensors: Mapping[str, Tensor], name: str = "state") -> Any:
    """Put tensors back into a state with the template's structure."""
    if isinstance(template, tuple):
        parts = [restore(part, tensors, f"{name}.{i}") for i, part in enumerate(template)]
        return type(template)(*parts) if hasattr(template, "_fields") else tuple(parts)
    if name not in tensors:
        raise StorageError(f"the checkpoint has no {name!r}: it was made by another algorithm or version")
    saved = tensors[name]
    if not isinstance(template, Tensor):
        return type(template)(saved.item())
    if saved.shape != template.shape or saved.dtype != template.dtype:
        raise StorageError(
            f"the checkpoint's {name!r} is {saved.dtype} of shape {tuple(saved.shape)}, the run's is {template.dtype} of "
            f"shape {tuple(template.shape)}"
        )
    return saved.to(template.device)
