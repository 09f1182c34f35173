"""Files that are there whole or not at all."""

import os
from pathlib import Path

from tacit.errors import InvalidInput


def write(path: Path | str, content: bytes) -> Path:
    """Write beside the target, then put in its place in one step; what was there stays if anything fails."""
    path = Path(path)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with draft.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror}") from error
    return path
