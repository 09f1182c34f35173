"""A file of finished pieces of work: a line of facts, then a line for each piece, on disk before the next begins.

Reading changes nothing, so another process may read while one writes. An incomplete last line may be in the process of being
written; only the process that appends, which must hold the lock, treats it as left by a crash. Pieces of other work, whose
facts differ, are never mixed in.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tacit.errors import InvalidInput, StorageError

Line = dict[str, Any]
Piece = TypeVar("Piece")


def read(file: Path, facts: Line, parse: Callable[[Line], Piece], *, pieces: str, work: str) -> list[Piece]:
    """Return the pieces in complete lines of a file; none if there is no file.

    parse: makes a piece from a line. If it raises for a missing or wrong value, the file is damaged.
    pieces, work: the names of the pieces and of the work, for messages.
    """
    if not file.exists():
        return []
    content = file.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    found: list[Piece] = []
    if whole:
        try:
            first, *rest = (json.loads(line) for line in whole.decode(errors="replace").splitlines())
            kept = dict(first["facts"])
            found = [parse(line) for line in rest]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InvalidInput(
                f"{file} is not a file of {pieces}, or it is damaged; move it away to start again"
            ) from None
        facts = json.loads(json.dumps(facts))
        if changed := sorted(key for key in {*kept, *facts} if kept.get(key) != facts.get(key)):
            raise InvalidInput(
                f"{file} holds {pieces} of another {work} ({', '.join(changed)} differ); choose another folder, or move it "
                "away"
            )
    return found


def append(file: Path, facts: Line, line: Line) -> None:
    """Append a piece, after the facts if it is the first, and return when it is on disk.

    An incomplete last line is removed first. If this fails, all earlier pieces are still there.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file, "a+b") as stream:
            stream.seek(0)
            whole = stream.read().rfind(b"\n") + 1
            stream.truncate(whole)
            for each in (line,) if whole else ({"facts": facts}, line):
                stream.write(json.dumps(each, allow_nan=False).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise StorageError(f"{file}: cannot be written: {error.strerror or error}") from error
