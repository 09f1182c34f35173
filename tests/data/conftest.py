import gzip
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with the published data sets; tests that need it skip where it is absent."""
    folder = Path(os.environ.get("TACIT_DATA") or PROJECT.parent / "shared" / "data")
    needed = ("MNIST/raw", "FashionMNIST/raw", "cifar-100-python/test", "cifar-100-small/train")
    if missing := [path for path in needed if not (folder / path).exists()]:
        pytest.skip(f"no {', '.join(missing)} in {folder}; set TACIT_DATA to a folder that has them")
    return folder


@pytest.fixture
def write_idx():
    """Writes an array of bytes in the IDX layout, gzipped if the name says so."""

    def write(path: Path, array: np.ndarray) -> Path:
        header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
        content = header + array.astype(np.uint8).tobytes()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
        return path

    return write


@pytest.fixture
def write_cifar():
    """Writes a CIFAR pickle as Python 3 writes it for Python 2: `seed` makes the images."""

    def write(path: Path, labels: dict[str, list[int]], seed: int = 0) -> np.ndarray:
        count = len(next(iter(labels.values())))
        images = np.random.default_rng(seed).integers(256, size=(count, 3072), dtype=np.uint8)
        batch = {b"data": images, **{name.encode(): values for name, values in labels.items()}}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps(batch, protocol=2))
        return images.reshape(-1, 3, 32, 32)

    return write
