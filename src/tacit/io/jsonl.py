"""Files of JSON lines, each on the disk before the next is written. The one place that appends to such files or splits them."""

import os
from pathlib import Path

from tacit.errors import StorageError

_BLOCK = 2**16  # bytes read at once from the end


def append_line(path: Path, line: bytes, *, shared: bool = False, new_folder: bool = False) -> None:
    """Append a line with its line break, or several at once, and wait until they are on disk.

    shared: other processes may append at the same time, so an unfinished last line may be theirs and is left alone.
    new_folder: make the folder of the file if it is not there.
    """
    try:
        if new_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        if not shared:
            _drop_cut_line(path)
        with path.open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror or error}") from error


def whole_lines(path: Path) -> list[tuple[int, bytes]]:
    """Return the complete lines of a file with their numbers; none if there is no file.

    Blank lines are left out, and so is a last line without a line break: a crash cut it off, and the next append removes it.
    """
    if not path.exists():
        return []
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror or error}") from error
    lines, _ = split_lines(content)
    return [(number, line) for number, line in enumerate(lines, 1) if line.strip()]


def split_lines(content: bytes) -> tuple[list[bytes], bytes]:
    """Return the complete lines, without their line breaks, and what stands after the last line break."""
    *lines, rest = content.split(b"\n")
    return lines, rest


def last_whole_line(path: Path) -> bytes | None:
    """Return the last complete line that is not blank, without its line break; None if there is none."""
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
                lines = [line for line in split_lines(found)[0] if line.strip()]
                if len(lines) > 1 or (lines and not place):
                    return lines[-1]
            return None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror or error}") from error


def _drop_cut_line(path: Path) -> None:
    """Remove a last line that a crash cut off, so that the next one starts on a line of its own."""
    if not path.exists() or path.stat().st_size == 0:
        return
    with path.open("rb+") as file:
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
