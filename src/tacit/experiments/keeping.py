"""The finished points of an experiment, kept in a journal."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tacit.errors import InvalidInput
from tacit.experiments.experiment import Point, Row
from tacit.io import journal
from tacit.io.files import finite

Facts = dict[str, Any]


class Played(NamedTuple):
    """What came of a point, and how long it took, if that is known."""

    rows: list[Row]
    seconds: float | None


Kept = dict[str, Played]
"""Finished points, by their keys."""


def read(file: Path, facts: Facts, points: Sequence[Point]) -> Kept:
    """Return the finished points of a file, which must be among these; the file stays as it is."""
    kept = dict(journal.read(file, facts, _parse, pieces="points", work="experiment"))
    if not set(kept) <= {point.key for point in points}:
        raise InvalidInput(
            f"{file} holds points that this experiment does not have now; choose another folder, or move it away"
        )
    return kept


def append(file: Path, facts: Facts, point: Point, played: Played) -> None:
    """Add a finished point to a file, and return when it is on the disk."""
    journal.append(file, facts, finite({"point": point.named, **played._asdict()}))


def _parse(line: dict[str, Any]) -> tuple[str, Played]:
    return json.dumps(line["point"], sort_keys=True), Played(list(line["rows"]), line.get("seconds"))
