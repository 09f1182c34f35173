"""Runs the missing points of an experiment in its folder, and writes its results, figure and finding.

A folder has `points.jsonl`, which grows point by point. Everything else is made from it: `results.csv` and `results.json`,
`figure.png` and `figure.pdf`, and `finding.md`.
"""

import csv
import io
import json
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import tacit
from tacit.errors import InvalidInput
from tacit.experiments.experiment import Environment, Experiment, Point, Profile, ResultRow
from tacit.io import journal
from tacit.io.files import write_atomically
from tacit.io.processes import spread
from tacit.report.wording import duration

POINTS, TABLE, DOCUMENT, FINDING = "points.jsonl", "results.csv", "results.json", "finding.md"
FIGURES = ("figure.png", "figure.pdf")
_SMOKE = (
    "The smoke profile only shows that everything runs. Its data set is small and its runs are short and few, so the numbers "
    "below show no trend and say nothing about the claim."
)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How many of the wanted points are finished, and roughly how long the rest takes.

    seconds: estimated from the cost of the points and from how long the finished ones took; None while it is unknown.
    timed: whether any point was timed in this run.
    """

    done: int
    total: int
    seconds: float | None
    timed: bool
    last: str


OnProgress = Callable[[Progress], None]


class PointResult(NamedTuple):
    """The rows of a finished point, and how long it took, if that is known."""

    rows: list[ResultRow]
    seconds: float | None


Finished = dict[str, PointResult]
"""Finished points, by their keys."""


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """What a folder holds in the end."""

    folder: Path
    rows: list[ResultRow]
    finding: str
    document: dict[str, Any]
    written: tuple[Path, ...]


def find_missing(
    experiment: Experiment, profile: Profile, wanted: Sequence[Point], folder: Path
) -> tuple[list[Point], int]:
    """Return the wanted points that a folder lacks, and how many points it has; nothing is written."""
    finished = _read(folder / POINTS, experiment, profile)
    return [point for point in wanted if point.key not in finished], len(finished)


def reproduce(
    experiment: Experiment,
    profile: Profile,
    folder: Path,
    *,
    wanted: Sequence[Point] | None = None,
    environment: Environment | None = None,
    workers: int = 1,
    on_progress: OnProgress = lambda progress: None,
) -> Reproduction:
    """Run the wanted points, all by default, that the folder lacks, and write the results of all points it has.

    workers: how many processes run points side by side, each on one thread; with one, this process runs them.
    """
    if workers < 1:
        raise InvalidInput(f"workers is {workers}; it must be at least 1")
    points = experiment.points(profile)
    wanted = points if wanted is None else wanted
    file = folder / POINTS
    if not file.exists() and folder.is_dir() and any((folder / name).exists() for name in (DOCUMENT, FINDING)):
        raise InvalidInput(f"{folder} holds other results; choose another folder")
    finished = _read(file, experiment, profile)
    left = [point for point in wanted if point.key not in finished]
    if left:
        file.parent.mkdir(parents=True, exist_ok=True)
        workers, environment = min(workers, len(left)), environment or Environment()
        known = environment.device == "cpu" and experiment.total_seconds(left) is not None
        costs, expected, taken = {point.key: experiment.seconds(point) for point in left}, 0.0, 0.0

        def report(last: str = "") -> None:
            pace = taken / max(expected, 1e-9) if last else 1.0
            seconds = pace * sum(costs.values()) / workers if last or known else None
            done = len(wanted) - len(costs)
            on_progress(Progress(done=done, total=len(wanted), seconds=seconds, timed=bool(last), last=last))

        report()
        run = partial(_run, experiment.run, replace(environment, progress=environment.progress and workers == 1))
        with closing(spread(run, left, workers)) as results:
            for point, result in results:
                journal.append(file, _facts(experiment, profile), {"point": point.named, **result._asdict()})
                expected, taken = expected + costs.pop(point.key), taken + (result.seconds or 0.0)
                report(point.describe(experiment.varies))
        finished = _read(file, experiment, profile)  # as a later command will see it
    rows = [{**point.named, **row} for point in points if point.key in finished for row in finished[point.key].rows]
    return _write(experiment, profile, folder, rows, finished, of=len(points))


def _run(run: Callable[[Point, Environment], list[ResultRow]], environment: Environment, point: Point) -> PointResult:
    started = time.monotonic()
    rows = run(point, environment)
    return PointResult(rows, round(time.monotonic() - started, 1))


def _read(file: Path, experiment: Experiment, profile: Profile) -> Finished:
    """Read the finished points of a file, which must be among those of the profile; the file is not changed."""

    def parse(line: dict[str, Any]) -> tuple[str, PointResult]:
        return json.dumps(line["point"], sort_keys=True), PointResult(list(line["rows"]), line.get("seconds"))

    finished = dict(journal.read(file, _facts(experiment, profile), parse, pieces="points", work="experiment"))
    if not set(finished) <= {point.key for point in experiment.points(profile)}:
        raise InvalidInput(
            f"{file} holds points that this experiment does not have now; choose another folder, or move it away"
        )
    return finished


def _facts(experiment: Experiment, profile: Profile) -> dict[str, Any]:
    return {"experiment": experiment.name, "profile": profile, "tacit": tacit.__version__}


def _write(
    experiment: Experiment, profile: Profile, folder: Path, rows: list[ResultRow], finished: Finished, *, of: int
) -> Reproduction:
    taken = [each.seconds for each in finished.values()]
    finding = experiment.finding(rows)
    if profile == "smoke" and profile in experiment.reduced:
        finding = f"{_SMOKE}\n\n{finding}"
    if len(finished) < of:
        finding = f"Points finished so far: {len(finished)} of {of}.\n\n{finding}"
    document: dict[str, Any] = {
        **_facts(experiment, profile),
        "title": experiment.title,
        "claim": experiment.claim,
        "finding": finding,
        "points": len(finished),
        "of": of,
        "seconds": round(sum(each or 0.0 for each in taken), 1) if all(each is not None for each in taken) else None,
    }
    write_atomically(folder / TABLE, _table(rows))
    whole = json.dumps({**document, "rows": rows}, indent=1, allow_nan=False)
    write_atomically(folder / DOCUMENT, whole.encode() + b"\n")
    from tacit.report import save_figure  # matplotlib is slow to import

    figure = experiment.draw(rows)
    for name in FIGURES:
        save_figure(figure, folder / name)
    page = (
        f"# {experiment.title}\n\n**The paper.** {experiment.claim}\n\n"
        f"**Here**, profile `{profile}`. {finding}\n\n![{experiment.title}]({FIGURES[0]})\n\n"
        f"`tacit reproduce {experiment.name} --profile {profile}` runs all of it: {_time_taken(taken, of)}.\n"
    )
    write_atomically(folder / FINDING, page.encode())
    files = tuple(folder / each for each in (TABLE, DOCUMENT, *FIGURES, FINDING))
    return Reproduction(folder=folder, rows=rows, finding=finding, document=document, written=files)


def _time_taken(taken: Sequence[float | None], of: int) -> str:
    """Say how many points there are, and how long they took as far as that is known: older ones were not timed."""
    timed = [each for each in taken if each is not None]
    points, total = f"{len(taken)} of {of} points are here", f"took {duration(sum(timed))} in total"
    if not timed:
        return f"{points}; none was timed"
    return (
        f"{points} and {total}" if len(timed) == len(taken) else f"{points}; the {len(timed)} that were timed {total}"
    )


def _table(rows: list[ResultRow]) -> bytes:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()
