"""A file of finished pieces of work: a line of facts, then a line for each piece, on disk before the next begins.

Reading changes nothing, so another process may read while one writes. An incomplete last line may be in the process of being
written; only the process that appends, which must hold the lock, treats it as left by a crash. Pieces of other work, whose
facts differ, are never mixed in.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tacit.errors import InvalidInput
from tacit.io.files import finite
from tacit.io.jsonl import append_line, last_whole_line, whole_lines

JsonObject = dict[str, Any]
Piece = TypeVar("Piece")


def read(file: Path, facts: JsonObject, parse: Callable[[JsonObject], Piece], *, pieces: str, work: str) -> list[Piece]:
    """Return the pieces in complete lines of a file; none if there is no file.

    parse: makes a piece from a line. If it raises for a missing or wrong value, the file is damaged.
    pieces, work: the names of the pieces and of the work, for messages.
    """
    found: list[Piece] = []
    if lines := [line for _, line in whole_lines(file)]:
        try:
            first, *rest = (json.loads(line.decode(errors="replace")) for line in lines)
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


def append(file: Path, facts: JsonObject, line: JsonObject) -> None:
    """Append a piece, after the facts if it is the first, and return when it is on disk; a number that is not finite is null.

    An incomplete last line is removed first. If this fails, all earlier pieces are still there.
    """
    new = (line,) if last_whole_line(file) else ({"facts": facts}, line)
    lines = b"".join(json.dumps(finite(each), allow_nan=False).encode() + b"\n" for each in new)
    append_line(file, lines, new_folder=True)
