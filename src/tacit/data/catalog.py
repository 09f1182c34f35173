"""Data sets by name, and synthetic ones of any size.

Training records are the official training set. The official test set is divided once and for all: models
are tuned on validation and reported on test, and neither is ever trained on.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor
from torch.nn.functional import interpolate

from tacit.data.datasets import DataSet
from tacit.data.download import RemoteFile, data_folder, fetch, locate
from tacit.data.formats import read_cifar, read_idx
from tacit.data.official import CIFAR10, CIFAR100, FASHION_MNIST, IDX_NAMES, MNIST
from tacit.data.prepare import Normalise, Prepare
from tacit.data.records import Records, concatenate
from tacit.errors import InvalidInput, choose

_CIFAR10_SCALE = Normalise(mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616))
_CIFAR100_SCALE = Normalise(mean=(0.5071, 0.4865, 0.4409), std=(0.2673, 0.2564, 0.2762))
_SMALL_TRAIN = "cifar-100-small/train"
_SMALL_PER_CLASS = 100


def load(name: str, data_dir: str | Path | None = None) -> DataSet:
    """Load a published data set, downloading it if it is not in the data folder yet."""
    return _LOADERS[choose("data set", name, _LOADERS)](data_folder(data_dir))


def absent(name: str, data_dir: str | Path | None = None) -> str | None:
    """Return a file of a published data set that `load` would have to download; None if all are in the data folder."""
    folder = data_folder(data_dir)
    if name == "cifar100-small" and all(locate(part, folder) for part in (_SMALL_TRAIN, CIFAR100.members[1])):
        return None
    files = _FILES[choose("data set", name, _FILES)]
    here = [(folder / file.path).is_file() or all(locate(part, folder) for part in file.layout) for file in files]
    return next((file.path for file, there in zip(files, here, strict=True) if not there), None)


def synthetic(
    records: int,
    *,
    features: int = 20,
    classes: int = 10,
    held_out: int = 1_000,
    distance: float = 4.0,
    seed: int = 0,
) -> DataSet:
    """Draw Gaussian clusters of unit variance, one for each class.

    Validation and test have `held_out` records each. `distance` is the average distance between a centre and its
    nearest neighbour: at 4 a linear model gets most records right, and no model all of them.
    """
    if min(records, features, held_out) < 1 or classes < 2:
        raise InvalidInput(
            f"{records} records of {features} features in {classes} classes with {held_out} held out are not a "
            "data set; there must be at least one record and feature, two classes and one record held out"
        )
    rng = np.random.default_rng(seed)
    centres = torch.from_numpy(rng.standard_normal((classes, features), dtype=np.float32))
    apart = torch.cdist(centres, centres).fill_diagonal_(torch.inf).min(dim=1).values.mean()
    centres *= distance / apart

    def draw(count: int) -> Records:
        targets = torch.from_numpy(rng.integers(classes, size=count))
        inputs = torch.from_numpy(rng.standard_normal((count, features), dtype=np.float32))
        return Records(inputs.add_(centres[targets]), targets)

    return DataSet(
        name=f"synthetic {records}x{features}, {classes} classes, distance {distance:.12g}, seed {seed}",
        train=draw(records),
        validation=draw(held_out),
        test=draw(held_out),
        classes=classes,
        published=True,
    )


def _digits(folder: Path) -> DataSet:
    from sklearn.datasets import load_digits  # slow to import, and nothing else here needs it

    digits = load_digits()
    records = Records(torch.from_numpy(digits.images.astype(np.uint8))[:, None], torch.from_numpy(digits.target))
    # There is no official test set: every fifth record of each class is held out. Of each class, because the
    # labels recur with a period: of every fifth record of all, one half would have 37 nines and 7 fours. For
    # the same reason what is held out is put in the order of classes before it is halved.
    held_out = _earlier_of_same_class(records.targets) % 5 == 0
    by_class = torch.argsort(records.targets, stable=True)
    return _dataset(
        "digits",
        records.take(torch.nonzero(~held_out)[:, 0]),
        records.take(by_class[held_out[by_class]]),
        10,
        Normalise(mean=(0.0,), std=(1.0,), top=16),
    )


def _idx(name: str, files: tuple[RemoteFile, ...], scale: Normalise) -> Callable[[Path], DataSet]:
    def loader(folder: Path) -> DataSet:
        found = fetch(files, folder)
        paths = {Path(relative).name: path for relative, path in found.items()}
        tensors = [read_idx(paths[file], 3 if "idx3" in file else 1) for file in IDX_NAMES]
        train, test = (
            Records(_enlarge(images[:, None]), labels.long()) for images, labels in (tensors[:2], tensors[2:])
        )
        return _dataset(name, train, test, 10, scale)

    return loader


def _cifar10(folder: Path) -> DataSet:
    found = fetch([CIFAR10], folder)
    *train, test = (Records(*read_cifar(found[member], "labels")) for member in CIFAR10.members)
    return _dataset("cifar10", concatenate(train), test, 10, _CIFAR10_SCALE)


def _cifar100(folder: Path) -> DataSet:
    found = fetch([CIFAR100], folder)
    train, test = (Records(*read_cifar(found[member], "fine_labels")) for member in CIFAR100.members)
    return _dataset("cifar100", train, test, 100, _CIFAR100_SCALE)


def _cifar100_small(folder: Path) -> DataSet:
    """The first 100 training images of each class: from a file of its own, or else from CIFAR-100's."""
    path, official_test = locate(_SMALL_TRAIN, folder), CIFAR100.members[1]
    if path is None:
        whole = _cifar100(folder)
        first = _earlier_of_same_class(whole.train.targets) < _SMALL_PER_CLASS
        return replace(whole, name="cifar100-small", train=whole.train.take(torch.nonzero(first)[:, 0]))
    test = locate(official_test, folder) or fetch([CIFAR100], folder)[official_test]
    train = Records(*read_cifar(path, "fine_labels"))
    return _dataset("cifar100-small", train, Records(*read_cifar(test, "fine_labels")), 100, _CIFAR100_SCALE)


def _dataset(name: str, train: Records, held_out: Records, classes: int, prepare: Prepare) -> DataSet:
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


def _earlier_of_same_class(targets: Int64[Tensor, "records"]) -> Int64[Tensor, "records"]:
    """Count, for each record, those of its class that come before it."""
    by_class = torch.argsort(targets, stable=True)
    sizes = torch.bincount(targets)
    first = torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes)
    earlier = torch.empty_like(targets)
    earlier[by_class] = torch.arange(len(targets)) - first
    return earlier


def _enlarge(images: UInt8[Tensor, "records 1 28 28"]) -> UInt8[Tensor, "records 1 32 32"]:
    """Resize to the paper's 32 × 32 once, in chunks, so that floats never fill the memory."""
    return torch.cat([_resize(chunk.float()).round().to(torch.uint8) for chunk in torch.split(images, 10_000)])


def _resize(images: Float[Tensor, "records 1 28 28"]) -> Float[Tensor, "records 1 32 32"]:
    return interpolate(images, size=(32, 32), mode="bilinear", align_corners=False)


_LOADERS: dict[str, Callable[[Path], DataSet]] = {
    "digits": _digits,
    "mnist": _idx("mnist", MNIST, Normalise(mean=(0.1307,), std=(0.3081,))),
    "fashion-mnist": _idx("fashion-mnist", FASHION_MNIST, Normalise(mean=(0.2860,), std=(0.3530,))),
    "cifar10": _cifar10,
    "cifar100": _cifar100,
    "cifar100-small": _cifar100_small,
}
_FILES: dict[str, tuple[RemoteFile, ...]] = {
    "digits": (),
    "mnist": MNIST,
    "fashion-mnist": FASHION_MNIST,
    "cifar10": (CIFAR10,),
    "cifar100": (CIFAR100,),
    "cifar100-small": (CIFAR100,),
}
NAMES = tuple(_LOADERS)
"""The data sets that `load` knows."""
