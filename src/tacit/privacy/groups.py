"""Groups of records that take turns: a lot of a query is drawn from one of them.

A record's group follows from that record, or the number of its unit, and a public key alone, so that one record more moves no other.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int
from torch import Tensor

from tacit.data.inputs import Inputs, parts


def group_key(seed: int) -> bytes:
    """Return the key of a run's groups. It is public, and the same after a restart."""
    return hashlib.blake2b(f"tacit groups {seed}".encode(), digest_size=32).digest()


def group_records(
    inputs: Inputs, targets: Tensor, rows: Int[np.ndarray, " records"], groups: int, key: bytes
) -> Int[np.ndarray, " records"]:
    """Return the group of each of these rows, by a keyed hash of everything that the record is."""
    tables = [table.detach().cpu().contiguous() for table in (*parts(inputs), targets)]
    return _groups([b"".join(table[row].numpy().tobytes() for table in tables) for row in rows.tolist()], groups, key)


def group_units(numbers: Int[np.ndarray, " units"], groups: int, key: bytes) -> Int[np.ndarray, " units"]:
    """Return the group of each unit, by a keyed hash of its number."""
    return _groups([int(number).to_bytes(16, "little", signed=True) for number in numbers], groups, key)


def _groups(names: Sequence[bytes], groups: int, key: bytes) -> Int[np.ndarray, " names"]:
    digests = (hashlib.blake2b(name, digest_size=16, key=key).digest() for name in names)
    return np.array([int.from_bytes(digest, "little") % groups for digest in digests], dtype=np.int64)
