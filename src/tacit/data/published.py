"""What the library keeps about a published data set: how it is loaded, its files, and public facts about its records."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from tacit.data.datasets import DataSet
from tacit.data.download import RemoteFile, locate
from tacit.data.prepare import Prepare
from tacit.data.records import Records


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published data set."""

    load: Callable[[Path], DataSet]
    """Loads it from the data folder, and downloads what is missing."""
    shape: tuple[int, ...]
    """Of one record, as a model reads it."""
    records: int
    """The number of training records."""
    classes: int
    files: tuple[RemoteFile, ...] = ()
    """What it is read from, if that is not part of a package."""
    enough: tuple[str, ...] = ()
    """Paths in the data folder from which it can be read instead."""

    def absent(self, folder: Path) -> str | None:
        """Return a file that would have to be downloaded; None if nothing would."""
        if self.enough and all(locate(path, folder) for path in self.enough):
            return None
        here = [
            (folder / file.path).is_file() or all(locate(path, folder) for path in file.layout) for file in self.files
        ]
        return next((file.path for file, there in zip(self.files, here, strict=True) if not there), None)


def with_halves(name: str, train: Records, held_out: Records, classes: int, prepare: Prepare) -> DataSet:
    """Return a published data set whose official test set is divided into validation and test."""
    # Halves are interleaved, because a test set need not be in random order: MNIST's first 5,000 test images
    # were written by other people than the last 5,000 and are easier, so contiguous halves would differ.
    positions = torch.arange(len(held_out))
    return DataSet(
        name=name,
        train=train,
        validation=held_out.take(positions[0::2]),
        test=held_out.take(positions[1::2]),
        classes=classes,
        prepare=prepare,
        published=True,
    )
