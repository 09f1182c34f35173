"""The file of finished points: a line of facts, then a line for each point, on the disk before the next begins.

A torn last line, which a crash may leave, is dropped. Points of another experiment, profile or version are never mixed in.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tacit.errors import InvalidInput
from tacit.experiments.experiment import Point, Row
from tacit.files import finite

Facts = dict[str, Any]
Kept = dict[str, list[Row]]
"""The rows of finished points, by the points' keys."""


def read(file: Path, facts: Facts, points: Sequence[Point]) -> Kept:
    """Return the finished points of a file, which must be among these, and cut a torn last line off it."""
    if not file.exists():
        return {}
    content = file.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    lines = whole.decode(errors="replace").splitlines()
    if not lines:
        os.truncate(file, 0)
        return {}
    try:
        first, *rest = (json.loads(line) for line in lines)
        before = dict(first["facts"])
        kept = {json.dumps(each["point"], sort_keys=True): list(each["rows"]) for each in rest}
    except (ValueError, KeyError, TypeError):
        raise InvalidInput(f"{file} is not a file of points, or it is damaged; move it away to begin anew") from None
    _check_same(file, before, facts, kept, points)
    if len(whole) < len(content):
        os.truncate(file, len(whole))
    return kept


def _check_same(file: Path, before: Facts, facts: Facts, kept: Kept, points: Sequence[Point]) -> None:
    changed = sorted(key for key in {*before, *facts} if before.get(key) != facts.get(key))
    if changed:
        raise InvalidInput(
            f"{file} holds points of something else ({', '.join(changed)} differ); choose another folder, or move it away"
        )
    if not set(kept) <= {point.key for point in points}:
        raise InvalidInput(
            f"{file} holds points that this experiment does not have now; choose another folder, or move it away"
        )


def append(file: Path, facts: Facts, point: Point, rows: list[Row]) -> None:
    """Add a finished point to a file, after the facts where it is the first, and return when it is on the disk."""
    with open(file, "ab") as stream:
        contents = [{"facts": facts}] if stream.tell() == 0 else []
        for each in (*contents, {"point": point.named, "rows": rows}):
            stream.write(json.dumps(finite(each), allow_nan=False).encode() + b"\n")
        stream.flush()
        os.fsync(stream.fileno())
