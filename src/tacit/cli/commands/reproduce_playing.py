"""Plays experiments in their folders, shows how far they are, and prints what was found."""

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from tacit.cli.terminal.output import check_output, console, messages, plain_table, print_json, print_whole
from tacit.errors import InvalidInput, StorageError
from tacit.experiments import (
    EXPERIMENTS,
    PROFILES,
    Environment,
    Experiment,
    OnProgress,
    Point,
    Profile,
    Progress,
    Reproduction,
    find_missing,
    load_experiment,
    reproduce,
    restrict,
)
from tacit.experiments.runner import FINDING, POINTS
from tacit.io.lock import held
from tacit.io.stopping import Stopping
from tacit.report.wording import counted, duration

LOCK = "lock"
_WORTH_PROCESSES = 120.0  # seconds of work
_NOT_TIMED = "not timed"


@dataclass(frozen=True, kw_only=True)
class How:
    """How experiments are played and shown."""

    profile: Profile
    only: dict[str, str]
    resume: bool
    results: Path
    data_dir: Path | None
    device: str
    workers: int | None
    json: bool
    shown: bool

    @property
    def environment(self) -> Environment:
        """Where points run."""
        return Environment(data=self.data_dir, device=self.device, progress=self.shown)

    def workers_for(self, seconds: float) -> int:
        """Return how many processes play what takes so long on one core; each needs some seconds to begin."""
        if self.workers is not None or self.device != "cpu" or seconds < _WORTH_PROCESSES:
            return self.workers or 1
        return os.cpu_count() or 1


def print_experiments(*, as_json: bool) -> None:
    """List the experiments, with the rough time that each profile takes."""
    found = [load_experiment(name) for name in EXPERIMENTS]
    times = {each.name: {profile: each.total_seconds(each.points(profile)) for profile in PROFILES} for each in found}
    if as_json:
        print_json({each.name: {"title": each.title, "seconds": times[each.name]} for each in found})
        return
    table = plain_table("What can be reproduced, and roughly how long it takes")
    for column in ("name", *PROFILES, "what"):
        table.add_column(column, no_wrap=column != "what")
    for each in found:
        table.add_row(each.name, *(_rough(seconds) for seconds in times[each.name].values()), each.title)
    print_whole(table)
    whole, cores = sum(each["laptop"] or 0.0 for each in times.values()), os.cpu_count() or 1
    console().print(
        "\nTimes are for one core of a laptop, and long work uses all cores; paper is meant for a GPU machine. "
        f"What is {_NOT_TIMED} needs one, and was never timed there. "
        f"All of laptop takes roughly {_rough(whole / cores)} on the {counted(cores, 'core')} here: tacit reproduce all."
    )


def play_all(experiments: Sequence[Experiment], how: How, *, asked: str) -> None:
    """Play what is missing of each experiment, write its folder, and print what was found."""
    _check_device(how.device)
    chosen = [(each, restrict(each.points(how.profile), how.only)) for each in experiments]
    left = [_check_folder(each, wanted, how) for each, wanted in chosen]
    screen = messages()
    if how.resume and how.shown and not any((_folder(each, how) / POINTS).exists() for each in experiments):
        screen.print(
            f"nothing to resume in {how.results} with the profile {how.profile}: it begins anew", soft_wrap=True
        )
    if how.shown and any(left):
        seconds = [_seconds(each, points, how) for (each, _), points in zip(chosen, left, strict=True)]
        known = sum(each for each in seconds if each is not None)
        how_long = f"roughly {_rough(known)}" if None not in seconds else "how long is known after the first of them"
        screen.print(f"{counted(sum(map(len, left)), 'point')} to play: {how_long}", soft_wrap=True)
    done: dict[str, Reproduction] = {}
    for experiment, wanted in chosen:
        done[experiment.name] = _play(experiment, wanted, how, screen, asked)
        if not how.json:
            _print_found(experiment, done[experiment.name])
    if how.json:
        documents = {name: {**each.document, "folder": str(each.folder)} for name, each in done.items()}
        print_json(documents if len(experiments) > 1 else next(iter(documents.values())))


def _check_device(device: str) -> None:
    import torch

    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidInput(f"device is {device!r}, which cannot be used here: {reason}") from None


def _folder(experiment: Experiment, how: How) -> Path:
    return how.results / f"{experiment.name}-{how.profile}"


def _check_folder(experiment: Experiment, wanted: Sequence[Point], how: How) -> list[Point]:
    """Return what is to be played; refuse a folder that has some of it already unless that was meant."""
    folder = _folder(experiment, how)
    check_output(folder / FINDING)
    left, kept = find_missing(experiment, how.profile, wanted, folder)
    if left and kept and not how.resume:
        total = len(experiment.points(how.profile))
        raise InvalidInput(
            f"{folder} has {kept} of {total} points; add --resume to go on, or choose another folder with --results"
        )
    return left


def _play(experiment: Experiment, wanted: list[Point], how: How, screen: Console, asked: str) -> Reproduction:
    folder = _folder(experiment, how)
    folder.mkdir(parents=True, exist_ok=True)
    kept = 0

    def count(progress: Progress) -> None:
        nonlocal kept
        kept = progress.done
        told(progress)

    def how_to_go_on() -> str:
        words = f"{kept} of {len(wanted)} points are kept" if kept else "no point was done"
        return f"{words}. Resume with: {_command(how, asked)}"

    with held(folder / LOCK, folder), Stopping(screen.print) as stopping:
        try:
            with _showing(screen, experiment.name, len(wanted), shown=how.shown) as told:
                left, _ = find_missing(experiment, how.profile, wanted, folder)
                kept = len(wanted) - len(left)
                workers = how.workers_for(sum(map(experiment.seconds, left)))
                return reproduce(
                    experiment,
                    how.profile,
                    folder,
                    wanted=wanted,
                    environment=how.environment,
                    workers=workers,
                    on_progress=count,
                )
        except KeyboardInterrupt:
            screen.print(f"stopped; {how_to_go_on()}", soft_wrap=True)
            with suppress(KeyboardInterrupt):  # a second stop leaves the drawing to the next command
                _draw_so_far(experiment, how, screen)
            raise typer.Exit(stopping.exit_code) from None
        except StorageError as error:
            raise StorageError(f"{error}; {how_to_go_on()}") from error
        finally:
            if not (folder / POINTS).exists():  # nothing came of it
                (folder / LOCK).unlink(missing_ok=True)
                with suppress(OSError):  # something else is in it
                    folder.rmdir()


def _draw_so_far(experiment: Experiment, how: How, screen: Console) -> None:
    folder = _folder(experiment, how)
    _, finished = find_missing(experiment, how.profile, [], folder)
    if finished:
        reproduce(experiment, how.profile, folder, wanted=[])
        screen.print(f"what there is so far is drawn in {folder}", soft_wrap=True)


def _seconds(experiment: Experiment, left: Sequence[Point], how: How) -> float | None:
    """Return roughly how long so many points take with the processes that play them; None if they were never timed so."""
    seconds = experiment.total_seconds(left)
    if seconds is None or (left and how.device != "cpu"):
        return None
    return seconds / min(how.workers_for(seconds), max(1, len(left)))


def _command(how: How, asked: str) -> str:
    words = ["tacit", "reproduce", asked, "--profile", how.profile]
    for key, value in how.only.items():
        words += ["--only", f"{key}={value}"]
    words += ["--results", str(how.results)]
    if how.data_dir is not None:
        words += ["--data-dir", str(how.data_dir)]
    if how.device != "cpu":
        words += ["--device", how.device]
    if how.workers is not None:
        words += ["--workers", str(how.workers)]
    return shlex.join([*words, "--resume"])


def _print_found(experiment: Experiment, done: Reproduction) -> None:
    screen = console()
    screen.print(experiment.title, style="bold")
    screen.print(f"The paper: {experiment.claim}\n")
    screen.print(f"{done.finding}\n")
    screen.print(f"in {done.folder}: {', '.join(sorted(each.name for each in done.written))}\n", soft_wrap=True)


@contextmanager
def _showing(screen: Console, name: str, total: int, *, shown: bool) -> Iterator[OnProgress]:
    """Yield what to tell before the first point and after each: a bar on a terminal, lines elsewhere."""
    if not shown:
        yield lambda progress: None
    elif screen.is_terminal:
        columns = (TextColumn(f"{name}: points"), BarColumn(bar_width=24), MofNCompleteColumn())
        with Bar(*columns, TextColumn("{task.fields[left]}"), console=screen, transient=True) as bar:
            task = bar.add_task("", total=total, left="")
            yield lambda progress: bar.update(task, completed=progress.done, left=_left(progress))
    else:
        yield lambda progress: screen.print(_line(name, progress), soft_wrap=True)


def _line(name: str, progress: Progress) -> str:
    last = f" ({progress.last})" if progress.last else ""
    return f"{name}: {progress.done} of {progress.total} points{last}, {_left(progress)}"


def _left(progress: Progress) -> str:
    if progress.done == progress.total:
        return "done"
    if progress.seconds is None:
        return "time left not known yet"
    return f"{'about' if progress.timed else 'roughly'} {duration(progress.seconds)} left"


def _rough(seconds: float | None) -> str:
    """Write a rough time with one unit."""
    if seconds is None:
        return _NOT_TIMED
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{max(1, round(seconds))} s"
