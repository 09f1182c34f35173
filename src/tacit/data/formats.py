"""Readers for the official file layouts: IDX (MNIST and its kin) and CIFAR's Python pickles.

Files come from the internet and are not trusted: lengths are checked against headers, and pickles are read
by an interpreter that knows four names and runs no code.
"""

import gzip
import pickle
import zlib
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from tacit.errors import DataError

_GZIP = b"\x1f\x8b"
_UNSIGNED_BYTES = 0x08


def read_idx(path: Path, dimensions: int) -> UInt8[Tensor, "..."]:
    """Read an IDX file of bytes, gzipped or plain, that has this number of dimensions."""
    content = _content(path)
    header = 4 + 4 * dimensions
    if content[:4] != bytes([0, 0, _UNSIGNED_BYTES, dimensions]) or len(content) < header:
        raise DataError(
            f"{path} is not an IDX file of bytes with {dimensions} dimensions: it starts with "
            f"{content[:4].hex(' ') or 'nothing'}, not 00 00 08 {dimensions:02x} and {dimensions} sizes"
        )
    shape = tuple(int(size) for size in np.frombuffer(content, dtype=">u4", count=dimensions, offset=4))
    if len(content) - header != prod(shape):
        raise DataError(
            f"{path} is broken: its header says {' x '.join(map(str, shape))} = {prod(shape)} bytes, "
            f"but {len(content) - header} follow; download it again"
        )
    # A copy, because a tensor needs writable memory.
    return torch.from_numpy(np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape).copy())


def read_cifar(path: Path, labels: str) -> tuple[UInt8[Tensor, "records 3 32 32"], Int64[Tensor, "records"]]:
    """Read images and one kind of label ("labels", "fine_labels") from a CIFAR pickle."""
    batch = _unpickle(path)
    entries = {k.decode("latin1") if isinstance(k, bytes) else k: v for k, v in batch.items()}
    if missing := {"data", labels} - set(entries):
        raise DataError(f"{path} has no {' and no '.join(sorted(missing))}; it holds {sorted(map(str, entries))}")
    data, classes = entries["data"], entries[labels]
    images = data.value if isinstance(data, _Array) else None
    if images is None or images.ndim != 2 or images.shape[1] != 3 * 32 * 32:
        found = "no array" if images is None else f"an array of shape {images.shape}"
        raise DataError(f"data in {path} is {found}; CIFAR has one row of 3072 bytes for each image")
    if not isinstance(classes, list) or not all(type(c) is int for c in classes) or len(classes) != len(images):
        raise DataError(f"{labels} in {path} is not a list of {len(images)} whole numbers, one for each image")
    return torch.from_numpy(images.reshape(-1, 3, 32, 32)), torch.tensor(classes, dtype=torch.int64)


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content.startswith(_GZIP) else content
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot read {path}: {error}; download it again") from None


def _unpickle(path: Path) -> dict[Any, Any]:
    try:
        with path.open("rb") as file:
            # encoding="bytes": these files were written by Python 2, whose strings are bytes.
            batch = _Unpickler(file, encoding="bytes").load()
    except DataError as error:
        raise DataError(f"refused to read {path}: {error}") from None
    except Exception as error:  # a broken pickle can raise anything at all
        raise DataError(f"cannot read {path} as a pickle: {error or type(error).__name__}; download it again") from None
    if not isinstance(batch, dict):
        raise DataError(f"{path} holds an object of type {type(batch).__name__}, not CIFAR's dict")
    return batch


class _Unpickler(pickle.Unpickler):
    """Reads dicts, lists, numbers, strings and arrays of bytes; refuses everything else.

    No name in a file reaches the function it names: each gets a new stand-in of ours, so that a file can neither
    call code nor leave any state behind.
    """

    def find_class(self, module: str, name: str) -> Callable[..., object] | str:
        match module, name:
            case (("numpy.core.multiarray" | "numpy._core.multiarray"), "_reconstruct"):
                return lambda *_: _Array()
            case "numpy", "ndarray":
                return "the subtype, which _reconstruct ignores"
            case "numpy", "dtype":
                return lambda code, *_: _ByteType(code)
            case "_codecs", "encode":  # how Python 3 writes bytes for Python 2
                return lambda text, encoding: text.encode(_only_latin1(encoding))
            case _:
                raise DataError(f"it asks for {module}.{name}, but a CIFAR file needs only numpy arrays")


class _Array:
    """Stands in for an array while its pickle is read."""

    __slots__ = ("value",)
    value: UInt8[np.ndarray, "..."]

    def __setstate__(self, state: tuple[int, tuple[int, ...], object, bool, bytes]) -> None:
        _, shape, dtype, by_column, content = state
        if not isinstance(dtype, _ByteType):
            raise DataError("it holds an array without a proper dtype")
        flat = np.frombuffer(content, dtype=np.uint8).copy()
        self.value = flat.reshape(shape, order="F" if by_column else "C")


class _ByteType:
    """Stands in for the dtype of bytes, the only one that CIFAR has."""

    __slots__ = ()

    def __init__(self, code: str | bytes) -> None:
        if code not in ("u1", b"u1"):
            raise DataError(f"it holds an array of {code!r}, but CIFAR has bytes (u1)")

    def __setstate__(self, state: object) -> None:
        """Byte order and alignment say nothing about bytes."""


def _only_latin1(encoding: str) -> str:
    if encoding != "latin1":
        raise DataError(f"it encodes text as {encoding!r}, but CIFAR files use latin1")
    return encoding
