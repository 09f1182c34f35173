"""Plays the points of experiments in their folders, shows the progress, and prints what was found.

Imported when an experiment is asked for: it loads everything that computes.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import typer
from rich.console import Console

from tacit.cli.commands.reproduce import Reproduce
from tacit.cli.terminal.output import check_output, console, messages, plain_table, print_json, print_whole
from tacit.cli.terminal.progress import count_progress
from tacit.errors import InvalidInput, StorageError
from tacit.experiments import (
    EXPERIMENTS,
    PROFILES,
    Environment,
    Experiment,
    Point,
    Progress,
    Reproduction,
    find_missing,
    load_experiment,
    parse_only,
    reproduce,
    restrict,
)
from tacit.experiments.runner import FINDING, POINTS
from tacit.io.lock import held
from tacit.io.stopping import Stopping
from tacit.report.wording import counted, duration

LOCK = "lock"
_NOT_TIMED = "not timed"


def print_experiments(*, as_json: bool) -> None:
    """List the experiments, with the rough time that each profile takes."""
    found = [load_experiment(name) for name in EXPERIMENTS]
    times = {each.name: {profile: each.total_seconds(each.points(profile)) for profile in PROFILES} for each in found}
    if as_json:
        print_json({each.name: {"title": each.title, "seconds": times[each.name]} for each in found})
        return
    table = plain_table("What can be reproduced, and roughly how long it takes", "name", *PROFILES, no_wrap=True)
    table.add_column("what")
    for each in found:
        table.add_row(each.name, *(_rough(seconds) for seconds in times[each.name].values()), each.title)
    print_whole(table)
    whole, cores = sum(each["laptop"] or 0.0 for each in times.values()), os.cpu_count() or 1
    console().print(
        "\nTimes are for one core of a laptop, and long work uses all cores; paper is meant for a GPU machine. "
        f"What is {_NOT_TIMED} needs one, and was never timed there. "
        f"All of laptop takes roughly {_rough(whole / cores)} on the {counted(cores, 'core')} here: tacit reproduce all."
    )


def play_all(experiments: Sequence[Experiment], options: Reproduce) -> None:
    """Run the missing points of each experiment, write its folder, and print what was found."""
    _check_device(options.device)
    only = parse_only(options.only or ())
    chosen = [(each, restrict(each.points(options.profile), only)) for each in experiments]
    left = [_check_folder(each, wanted, options) for each, wanted in chosen]
    screen = messages()
    if options.resume and options.shown and not any((_folder(each, options) / POINTS).exists() for each in experiments):
        screen.print(
            f"nothing to resume in {options.results} with the profile {options.profile}; starting from the beginning"
        )
    if options.shown and any(left):
        seconds = [_seconds(each, points, options) for (each, _), points in zip(chosen, left, strict=True)]
        known = sum(each for each in seconds if each is not None)
        how_long = f"roughly {_rough(known)}" if None not in seconds else "the time is known after the first of them"
        screen.print(f"{counted(sum(map(len, left)), 'point')} to play: {how_long}")
    done: dict[str, Reproduction] = {}
    for experiment, wanted in chosen:
        done[experiment.name] = _play(experiment, wanted, options, screen)
        if not options.json:
            _print_found(experiment, done[experiment.name])
    if options.json:
        documents = {name: {**each.document, "folder": str(each.folder)} for name, each in done.items()}
        print_json(documents if len(experiments) > 1 else next(iter(documents.values())))


def _check_device(device: str) -> None:
    import torch

    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidInput(f"device is {device!r}, which cannot be used here: {reason}") from None


def _folder(experiment: Experiment, options: Reproduce) -> Path:
    return options.results / f"{experiment.name}-{options.profile}"


def _check_folder(experiment: Experiment, wanted: Sequence[Point], options: Reproduce) -> list[Point]:
    """Return the points to play; refuse a folder that has some of them already without --resume."""
    folder = _folder(experiment, options)
    check_output(folder / FINDING)
    left, kept = find_missing(experiment, options.profile, wanted, folder)
    if left and kept and not options.resume:
        total = len(experiment.points(options.profile))
        raise InvalidInput(
            f"{folder} has {kept} of {total} points; add --resume to continue, or choose another folder with --results"
        )
    return left


def _play(experiment: Experiment, wanted: list[Point], options: Reproduce, screen: Console) -> Reproduction:
    folder = _folder(experiment, options)
    folder.mkdir(parents=True, exist_ok=True)
    kept, where = 0, Environment(data=options.data_dir, device=options.device, progress=options.shown)

    def count(progress: Progress) -> None:
        nonlocal kept
        kept = progress.done
        update(progress.done, _left(progress), _line(experiment.name, progress))

    def remedy() -> str:
        points = f"{kept} of {len(wanted)} points are kept" if kept else "no point was finished"
        return f"{points}. Resume with: {replace(options, resume=True).command_line('tacit', 'reproduce')}"

    with held(folder / LOCK, folder), Stopping(screen.print) as stopping:
        try:
            what = f"{experiment.name}: points"
            with count_progress(screen, what, len(wanted), shown=options.shown) as update:
                left, _ = find_missing(experiment, options.profile, wanted, folder)
                kept = len(wanted) - len(left)
                workers = options.workers_for(sum(map(experiment.seconds, left)))
                return reproduce(
                    experiment,
                    options.profile,
                    folder,
                    wanted=wanted,
                    environment=where,
                    workers=workers,
                    on_progress=count,
                )
        except KeyboardInterrupt:
            screen.print(f"stopped; {remedy()}")
            with suppress(KeyboardInterrupt):  # after a second stop, the next command draws
                _draw_so_far(experiment, options, screen)
            raise typer.Exit(stopping.exit_code) from None
        except StorageError as error:
            raise StorageError(f"{error}; {remedy()}") from error
        finally:
            if not (folder / POINTS).exists():  # no point was finished
                (folder / LOCK).unlink(missing_ok=True)
                with suppress(OSError):  # it has other files
                    folder.rmdir()


def _draw_so_far(experiment: Experiment, options: Reproduce, screen: Console) -> None:
    folder = _folder(experiment, options)
    _, finished = find_missing(experiment, options.profile, [], folder)
    if finished:
        reproduce(experiment, options.profile, folder, wanted=[])
        screen.print(f"the finished points are drawn in {folder}")


def _seconds(experiment: Experiment, left: Sequence[Point], options: Reproduce) -> float | None:
    """Return roughly how long these points take with the processes that play them; None if that was never timed."""
    seconds = experiment.total_seconds(left)
    if seconds is None or (left and options.device != "cpu"):
        return None
    return seconds / min(options.workers_for(seconds), max(1, len(left)))


def _print_found(experiment: Experiment, done: Reproduction) -> None:
    screen = console()
    screen.print(experiment.title, style="bold")
    screen.print(f"The paper: {experiment.claim}\n")
    screen.print(f"{done.finding}\n")
    screen.print(f"in {done.folder}: {', '.join(sorted(each.name for each in done.written))}\n")


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
