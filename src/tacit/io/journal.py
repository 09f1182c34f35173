"""A file of finished pieces of work: a line of facts, then a line for each piece, on the disk before the next begins.

Whoever reads changes nothing, so another process may look while one writes. What looks like a torn last line may be one that
is being written; only the one process that appends, which must hold the lock of the work, takes it for what a crash left.
Pieces of other work, whose facts differ, are never mixed in.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tacit.errors import InvalidInput
from tacit.io.jsonl import append_line, last_whole_line, whole_lines

Line = dict[str, Any]
Piece = TypeVar("Piece")


def read(file: Path, facts: Line, parse: Callable[[Line], Piece], *, pieces: str, work: str) -> list[Piece]:
    """Return the pieces that a file has in whole lines; none if there is no file.

    parse: makes a piece of a line. Whatever it raises for what is not there or not so means that the file is damaged.
    pieces, work: what the pieces are called, and what they are of.
    """
    found: list[Piece] = []
    if lines := [line for _, line in whole_lines(file)]:
        try:
            first, *rest = (json.loads(line.decode(errors="replace")) for line in lines)
            kept = dict(first["facts"])
            found = [parse(line) for line in rest]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InvalidInput(
                f"{file} is not a file of {pieces}, or it is damaged; move it away to begin anew"
            ) from None
        facts = json.loads(json.dumps(facts))
        if changed := sorted(key for key in {*kept, *facts} if kept.get(key) != facts.get(key)):
            raise InvalidInput(
                f"{file} holds {pieces} of another {work} ({', '.join(changed)} differ); choose another folder, or move it "
                "away"
            )
    return found


def append(file: Path, facts: Line, line: Line) -> None:
    """Add a piece, after the facts where it is the first, and return when it is on the disk.

    A torn last line is cut off before. If this fails, all pieces that were there still are.
    """
    new = (line,) if last_whole_line(file) else ({"facts": facts}, line)
    lines = b"".join(json.dumps(each, allow_nan=False).encode() + b"\n" for each in new)
    append_line(file, lines, new_folder=True)
