"""Data sets by name, and synthetic ones of any size.

Training records are the official training set. The official test set is always divided in the same way: models
are tuned on validation and reported on test, and neither is ever trained on.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor
from torch.nn.functional import interpolate

from tacit.data import official
from tacit.data.datasets import DataSet
from tacit.data.download import RemoteFile, data_folder, fetch, locate, refuse_missing_folder
from tacit.data.formats import read_cifar, read_idx
from tacit.data.official import IDX_NAMES
from tacit.data.prepare import Normalise
from tacit.data.published import Published, with_halves
from tacit.data.records import Records, concatenate
from tacit.errors import InvalidInput, choose
from tacit.registry import DATA_SETS

_CIFAR10_SCALE = Normalise(mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616))
_CIFAR100_SCALE = Normalise(mean=(0.5071, 0.4865, 0.4409), std=(0.2673, 0.2564, 0.2762))
_DIGITS = Path(__file__).parent / "assets" / "digits.npz"
_SMALL_TRAIN = "cifar-100-small/train"
_SMALL_PER_CLASS = 100


def load(name: str, data_dir: str | Path | None = None) -> DataSet:
    """Load a published data set, downloading it if it is not in the data folder yet."""
    published = find_published(name)
    if published.files:
        refuse_missing_folder(data_dir)
    return published.load(data_folder(data_dir))


def find_published(name: str) -> Published:
    """Return what the library keeps about a published data set."""
    found: Published = DATA_SETS[choose("data set", name, DATA_SETS)]
    return found


def absent(name: str, data_dir: str | Path | None = None) -> str | None:
    """Return a file of a published data set that `load` would have to download; None if all are in the data folder."""
    return find_published(name).absent(data_folder(data_dir))


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
    apart = torch.cdist(centres.double(), centres.double()).fill_diagonal_(torch.inf).min(dim=1).values.mean()
    centres *= float(f"{distance / float(apart):.6g}")  # so that rounding on another processor moves no record

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


@lru_cache(maxsize=1)
def _read_digits() -> Records:
    """Read the test set of UCI's "Optical Recognition of Handwritten Digits" (E. Alpaydin, C. Kaynak, 1998; CC BY 4.0), 8×8 pixels of 17 shades."""
    with np.load(_DIGITS) as file:
        return Records(torch.from_numpy(file["images"])[:, None], torch.from_numpy(file["targets"]).long())


def _digits(folder: Path) -> DataSet:
    records = _read_digits()  # only copies of them are given away
    # There is no official test set: every fifth record of each class is held out. Of each class, because the
    # labels recur with a period: of every fifth record of all, one half would have 37 nines and 7 fours. For
    # the same reason what is held out is put in the order of classes before it is halved.
    held_out = _earlier_of_same_class(records.targets) % 5 == 0
    by_class = torch.argsort(records.targets, stable=True)
    return with_halves(
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
        return with_halves(name, train, test, 10, scale)

    return loader


def _cifar10(folder: Path) -> DataSet:
    found = fetch([official.CIFAR10], folder)
    *train, test = (Records(*read_cifar(found[member], "labels")) for member in official.CIFAR10.members)
    return with_halves("cifar10", concatenate(train), test, 10, _CIFAR10_SCALE)


def _cifar100(folder: Path) -> DataSet:
    found = fetch([official.CIFAR100], folder)
    train, test = (Records(*read_cifar(found[member], "fine_labels")) for member in official.CIFAR100.members)
    return with_halves("cifar100", train, test, 100, _CIFAR100_SCALE)


def _cifar100_small(folder: Path) -> DataSet:
    """The first 100 training images of each class: from a file of its own, or else from CIFAR-100's."""
    path, official_test = locate(_SMALL_TRAIN, folder), official.CIFAR100.members[1]
    if path is None:
        whole = _cifar100(folder)
        first = _earlier_of_same_class(whole.train.targets) < _SMALL_PER_CLASS
        return replace(whole, name="cifar100-small", train=whole.train.take(torch.nonzero(first)[:, 0]))
    test = locate(official_test, folder) or fetch([official.CIFAR100], folder)[official_test]
    train = Records(*read_cifar(path, "fine_labels"))
    return with_halves("cifar100-small", train, Records(*read_cifar(test, "fine_labels")), 100, _CIFAR100_SCALE)


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


DIGITS = Published(load=_digits, shape=(1, 8, 8), records=1_433, classes=10)
MNIST = Published(
    load=_idx("mnist", official.MNIST, Normalise(mean=(0.1307,), std=(0.3081,))),
    shape=(1, 32, 32),
    records=60_000,
    classes=10,
    files=official.MNIST,
)
FASHION_MNIST = Published(
    load=_idx("fashion-mnist", official.FASHION_MNIST, Normalise(mean=(0.2860,), std=(0.3530,))),
    shape=(1, 32, 32),
    records=60_000,
    classes=10,
    files=official.FASHION_MNIST,
)
CIFAR10 = Published(load=_cifar10, shape=(3, 32, 32), records=50_000, classes=10, files=(official.CIFAR10,))
CIFAR100 = Published(load=_cifar100, shape=(3, 32, 32), records=50_000, classes=100, files=(official.CIFAR100,))
CIFAR100_SMALL = Published(
    load=_cifar100_small,
    shape=(3, 32, 32),
    records=100 * _SMALL_PER_CLASS,
    classes=100,
    files=(official.CIFAR100,),
    enough=(_SMALL_TRAIN, official.CIFAR100.members[1]),
)
