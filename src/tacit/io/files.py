"""Writing files so that a crash leaves the old one or the new one, never half of one; and what JSON can hold."""

import math
import os
import tempfile
from pathlib import Path
from typing import Any

from tacit.errors import StorageError


def write_atomically(path: str | os.PathLike[str], content: bytes) -> Path:
    """Replace a file, synced to disk, and return its path; if anything fails, the old one stays."""
    path, temporary = Path(path), None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
        temporary = None
        sync_folder(path.parent)
        return path
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make sure that a file just created or moved survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def finite(value: Any) -> Any:
    """Return a document for JSON, with None for numbers that are not finite."""
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
