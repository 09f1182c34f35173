"""Files that grow by lines, each on the disk before the next is written."""

import os
from pathlib import Path

from tacit.errors import StorageError

_BLOCK = 2**16  # bytes, read at once from the end


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


def last_whole_line(path: Path) -> bytes | None:
    """Return the last line that was written to its end and is not blank, without its end; None if there is none."""
    if not path.exists():
        return None
    try:
        with path.open("rb") as file:
            place, found = file.seek(0, os.SEEK_END), b""
            while place:
                step = min(place, _BLOCK)
                place -= step
                file.seek(place)
                found = file.read(step) + found
                lines = [line for line in found.split(b"\n")[:-1] if line.strip()]
                if len(lines) > 1 or (lines and not place):
                    return lines[-1]
            return None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror or error}") from error


def _drop_cut_line(path: Path) -> None:
    """Remove a last line that a crash cut off, so that what follows stands on a line of its own."""
    if not path.exists() or path.stat().st_size == 0:
        return
    with path.open("rb+") as file:
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
