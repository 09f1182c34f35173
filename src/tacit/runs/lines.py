"""Files that grow by lines, each on the disk before the next is written."""

import os
from pathlib import Path

from tacit.errors import StorageError


def append_line(path: Path, line: bytes) -> None:
    """Append one line, which has its end, and wait until it is on disk."""
    try:
        _drop_cut_line(path)
        with path.open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror or error}") from error


def whole_lines(path: Path) -> list[tuple[int, bytes]]:
    """Return the lines of a file that were written to their end, with their numbers; none if there is no file.

    Blank lines are left out, and so is a last line without an end: a crash cut it off, and whoever appends removes it.
    """
    if not path.exists():
        return []
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror or error}") from error
    lines = content.split(b"\n")[:-1]
    return [(number, line) for number, line in enumerate(lines, 1) if line.strip()]


def _drop_cut_line(path: Path) -> None:
    """Remove a last line that a crash cut off, so that what follows stands on a line of its own."""
    if not path.exists() or path.stat().st_size == 0:
        return
    with path.open("rb+") as file:
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
