"""Targets that name classes: what they look like, how many classes there are, and whether all targets lie among them."""

from dataclasses import replace

import torch
from torch import Tensor

from tacit.data.records import Records, RecordsLike
from tacit.errors import DataError


def is_labels(targets: Tensor) -> bool:
    """Return whether targets look like class labels: one integer for each record."""
    return targets.ndim == 1 and not targets.is_floating_point() and not targets.is_complex()


def read_records(source: RecordsLike) -> Records:
    """Widen integer targets to the int64 that cross entropy reads; inputs stay as they are."""
    records = Records.of(source)
    return replace(records, targets=records.targets.long()) if is_labels(records.targets) else records


def count_classes(tables: list[Records]) -> int | None:
    """Return one more than the largest label in any of the tables; None if one of them has other targets."""
    if not all(is_labels(table.targets) and len(table) for table in tables):
        return None
    return 1 + max(int(table.targets.max()) for table in tables)


def check_labels(name: str, targets: Tensor, classes: int) -> None:
    """Refuse targets that are not int64 labels of this many classes."""
    if targets.dtype != torch.int64 or targets.ndim != 1:
        raise DataError(
            f"{name} are {targets.dtype} of shape {tuple(targets.shape)}; "
            "a classification has one int64 class for each record"
        )
    check_range(name, targets, classes)


def check_range(name: str, targets: Tensor, classes: int) -> None:
    """Refuse labels that this many classes do not have."""
    if bool(((targets < 0) | (targets >= classes)).any()):
        # The labels are private: the message, for their owner, says neither which nor how many do not fit.
        raise DataError(
            f"not all {name} lie between 0 and {classes - 1}, the numbers of {classes} classes; drop or correct these records. Where they "
            "are private, so is this message: do not forward it"
        )
