"""The finished points of an experiment, kept in a journal."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tacit.errors import InvalidInput
from tacit.experiments.experiment import Point, ResultRow
from tacit.io import journal
from tacit.io.files import finite

Facts = dict[str, Any]


class PointResult(NamedTuple):
    """The rows of a finished point, and how long it took, if that is known."""

    rows: list[ResultRow]
    seconds: float | None


Finished = dict[str, PointResult]
"""Finished points, by their keys."""


def read(file: Path, facts: Facts, points: Sequence[Point]) -> Finished:
    """Read the finished points of a file, which must be among these; the file is not changed."""
    finished = dict(journal.read(file, facts, _parse, pieces="points", work="experiment"))
    if not set(finished) <= {point.key for point in points}:
        raise InvalidInput(
            f"{file} holds points that this experiment does not have now; choose another folder, or move it away"
        )
    return finished


def append(file: Path, facts: Facts, point: Point, result: PointResult) -> None:
    """Add a finished point to a file, and return when it is on the disk."""
    journal.append(file, facts, finite({"point": point.named, **result._asdict()}))


def _parse(line: dict[str, Any]) -> tuple[str, PointResult]:
    return json.dumps(line["point"], sort_keys=True), PointResult(list(line["rows"]), line.get("seconds"))
