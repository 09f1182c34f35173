"""Locks in files. A lock ends with the process that holds it, however that ends."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tacit.errors import InvalidInput, StorageError

_PATIENCE = 0.5  # seconds: `is_held` shares the lock for a moment


def hold(path: Path) -> int | None:
    """Take the lock in the file `path` and return the descriptor that holds it until it is closed; None if it is taken."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StorageError(f"{path} cannot be locked: {error.strerror}") from error
    if _take(descriptor):
        return descriptor
    os.close(descriptor)
    return None


@contextmanager
def held(path: Path, what: Path) -> Iterator[None]:
    """Hold the lock in the file `path`, which keeps every other process off `what`."""
    descriptor = hold(path)
    if descriptor is None:
        raise InvalidInput(f"another process is working on {what}; two must not work on one run")
    try:
        yield
    finally:
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Return whether a process holds the lock. This shares the lock for a moment, which `hold` waits out."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)


def _take(descriptor: int) -> bool:
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(0.02)
