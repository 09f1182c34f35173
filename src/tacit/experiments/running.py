"""Plays what is missing of an experiment in its folder, and writes its results, figure and finding.

A folder has `points.jsonl`, which grows point by point. Everything else is made from it: `results.csv` and `results.json`,
`figure.png` and `figure.pdf`, and `finding.md`.
"""

import csv
import io
import json
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tacit.errors import InvalidInput
from tacit.experiments import keeping
from tacit.experiments.experiment import Experiment, Place, Point, Profile, Row
from tacit.io.files import finite, write_atomically
from tacit.io.processes import spread
from tacit.report.wording import duration

POINTS, TABLE, DOCUMENT, FINDING = "points.jsonl", "results.csv", "results.json", "finding.md"
FIGURES = ("figure.png", "figure.pdf")
_SMOKE = (
    "The smoke profile shows that the machinery works, and no trend: its data set is small, its runs are short and "
    "few, so the numbers below say nothing about the claim."
)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far an experiment is: finished points of those that were asked for, and roughly how long the rest takes.

    seconds: by the cost of the points, corrected by how long those of this run really took; None as long as nobody knows.
    timed: whether any were, in this run.
    """

    done: int
    total: int
    seconds: float | None
    timed: bool
    last: str


Told = Callable[[Progress], None]


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """What a folder holds in the end."""

    folder: Path
    rows: list[Row]
    finding: str
    document: dict[str, Any]
    written: tuple[Path, ...]


def missing(experiment: Experiment, profile: Profile, wanted: Sequence[Point], folder: Path) -> tuple[list[Point], int]:
    """Return the wanted points that a folder lacks, and how many points it has; nothing is written."""
    kept = keeping.read(folder / POINTS, _facts(experiment, profile), experiment.points(profile))
    return [point for point in wanted if point.key not in kept], len(kept)


def reproduce(
    experiment: Experiment,
    profile: Profile,
    folder: Path,
    *,
    wanted: Sequence[Point] | None = None,
    place: Place | None = None,
    workers: int = 1,
    told: Told | None = None,
) -> Reproduction:
    """Play the wanted points, all unless given, that the folder lacks, and write what came of all that it has.

    workers: how many processes play points side by side, each on one thread; with one, this process plays them.
    """
    if workers < 1:
        raise InvalidInput(f"workers is {workers}; it must be at least 1")
    points = experiment.points(profile)
    wanted = points if wanted is None else wanted
    facts, file = _facts(experiment, profile), folder / POINTS
    if not file.exists() and folder.is_dir() and any((folder / name).exists() for name in (DOCUMENT, FINDING)):
        raise InvalidInput(f"{folder} holds other results; choose another folder")
    kept = keeping.read(file, facts, points)
    left = [point for point in wanted if point.key not in kept]
    if left:
        file.parent.mkdir(parents=True, exist_ok=True)
        workers = min(workers, len(left))
        place = place or Place()
        ahead = _Ahead(experiment, left, len(wanted), workers, told or (lambda progress: None), device=place.device)
        with closing(_play(experiment, left, place, workers)) as playing:
            for point, played in playing:
                keeping.append(file, facts, point, played)
                kept[point.key] = played
                ahead.tell(point, played)
    rows = [{**point.named, **row} for point in points if point.key in kept for row in kept[point.key].rows]
    return _write(experiment, profile, folder, rows, kept, of=len(points))


class _Ahead:
    """Tells how far an experiment is: at once, and after each point."""

    def __init__(
        self, experiment: Experiment, left: Sequence[Point], total: int, workers: int, told: Told, *, device: str
    ) -> None:
        self._varies, self._told, self._total, self._workers = experiment.varies, told, total, workers
        self._known = device == "cpu" and experiment.total_seconds(left) is not None
        self._costs = {point.key: experiment.seconds(point) for point in left}
        self._expected = self._taken = 0.0
        self._say(1.0, "")

    def tell(self, point: Point, played: keeping.Played) -> None:
        """Say that a point is done."""
        self._expected += self._costs.pop(point.key)
        self._taken += played.seconds or 0.0
        self._say(self._taken / max(self._expected, 1e-9), point.described(self._varies))

    def _say(self, pace: float, last: str) -> None:
        seconds = pace * sum(self._costs.values()) / self._workers
        done, timed = self._total - len(self._costs), bool(last)
        told = seconds if timed or self._known else None
        self._told(Progress(done=done, total=self._total, seconds=told, timed=timed, last=last))


def _play(
    experiment: Experiment, points: Sequence[Point], place: Place, workers: int
) -> Generator[tuple[Point, keeping.Played], None, None]:
    """Yield each point with what came of it, in the order in which they finish."""
    if workers > 1:
        yield from spread(partial(_play_one, experiment.play, replace(place, progress=False)), points, workers)
        return
    for point in points:
        yield point, _play_one(experiment.play, place, point)


def _play_one(play: Callable[[Point, Place], list[Row]], place: Place, point: Point) -> keeping.Played:
    started = time.monotonic()
    rows = play(point, place)
    return keeping.Played(json.loads(json.dumps(finite(rows))), round(time.monotonic() - started, 1))


def _facts(experiment: Experiment, profile: Profile) -> keeping.Facts:
    from tacit import __version__

    return {"experiment": experiment.name, "profile": profile, "tacit": __version__}


def _write(
    experiment: Experiment, profile: Profile, folder: Path, rows: list[Row], kept: keeping.Kept, *, of: int
) -> Reproduction:
    from tacit.experiments.drawing import save

    finished, taken = len(kept), [each.seconds for each in kept.values()]
    said = experiment.finding(rows)
    if profile == "smoke" and profile in experiment.reduced:
        said = f"{_SMOKE}\n\n{said}"
    if finished < of:
        said = f"Points that are played so far: {finished} of {of}.\n\n{said}"
    document: dict[str, Any] = {
        **_facts(experiment, profile),
        "title": experiment.title,
        "claim": experiment.claim,
        "finding": said,
        "points": finished,
        "of": of,
        "seconds": round(sum(each or 0.0 for each in taken), 1) if all(each is not None for each in taken) else None,
    }
    write_atomically(folder / TABLE, _table(rows))
    written = {**document, "rows": rows}
    write_atomically(folder / DOCUMENT, json.dumps(written, indent=1, allow_nan=False).encode() + b"\n")
    figure = experiment.draw(rows)
    for name in FIGURES:
        save(figure, folder / name)
    page = (
        f"# {experiment.title}\n\n**The paper.** {experiment.claim}\n\n"
        f"**Here**, profile `{profile}`. {said}\n\n![{experiment.title}]({FIGURES[0]})\n\n"
        f"`tacit reproduce {experiment.name} --profile {profile}` plays all of it: {_played(taken, of)}.\n"
    )
    write_atomically(folder / FINDING, page.encode())
    files = tuple(folder / each for each in (TABLE, DOCUMENT, *FIGURES, FINDING))
    return Reproduction(folder=folder, rows=rows, finding=said, document=document, written=files)


def _played(taken: Sequence[float | None], of: int) -> str:
    """Say how many points there are, and how long they took as far as that is known: older ones were not timed."""
    timed = [each for each in taken if each is not None]
    points, added = f"{len(taken)} of {of} points are here", f"took {duration(sum(timed))}, added up"
    if not timed:
        return f"{points}; none was timed"
    return (
        f"{points} and {added}" if len(timed) == len(taken) else f"{points}; the {len(timed)} that were timed {added}"
    )


def _table(rows: list[Row]) -> bytes:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()
