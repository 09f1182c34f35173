"""`tacit list`: what was run, how far it is, and what came of it."""

import math
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from tacit.cli.output import Json, RunsFolder, complain, console, plain_table, print_json, print_whole, round_up
from tacit.errors import TacitError
from tacit.privacy import DurableLedger, Ledger
from tacit.privacy.guarantees import EXPOSED
from tacit.runs import RunFolder, list_runs
from tacit.runs.folder import LEDGER

_RIGHT = ("agents", "rounds", "accuracy", "ε")


def list_(runs: RunsFolder = Path("runs"), json: Json = False) -> None:
    """List all runs: how far they are and what came of them.

    Example: tacit list --runs runs
    """
    exposed = _exposed(runs)
    rows = [_row(folder) for folder in list_runs(runs)]
    for row in rows:
        row["exposed"] = row["run"] in exposed
    if json:
        print_json({"runs": rows})
        return
    table = plain_table()
    for column in ("run", "rule", "data", "agents", "rounds", "state", "accuracy", "ε", "release"):
        table.add_column(column, justify="right" if column in _RIGHT else "left", overflow="fold")
    for row in rows:
        table.add_row(*_cells(row))
    print_whole(table if rows else f"there are no runs in {runs}")
    if any(row["exposed"] and row["private"] for row in rows):
        named = ", ".join(row["run"] for row in rows if row["exposed"] and row["private"])
        console().print(f"Note: {EXPOSED} (the records of {named})", soft_wrap=True)


def _exposed(runs: Path) -> set[str]:
    """Return the runs on records that a run without privacy has read, too."""
    if not (runs / LEDGER).is_file():
        return set()
    try:
        with closing(DurableLedger(runs / LEDGER, read_only=True)) as ledger:
            read = Ledger.from_json(ledger.to_json())
    except TacitError as error:
        complain(str(error))
        return set()
    readers = read.readers_without_privacy(read.owners)
    return {entry.run for entry in read.entries() if readers[entry.owner]}


def _row(folder: RunFolder) -> dict[str, Any]:
    """Return what a run's files tell; of a folder that is broken, no more than that."""
    nothing = dict.fromkeys(
        ("algorithm", "dataset", "agents", "rounds", "of", "accuracy", "private", "epsilon", "release")
    )
    try:
        return {"run": folder.name, **nothing, **_facts(folder)}
    except (TacitError, LookupError, TypeError, ValueError, OSError) as error:  # files can hold anything
        why = str(error) if isinstance(error, TacitError) else f"{type(error).__name__}: {error}"
        complain(f"run {folder.name!r} is broken: {why}")
        return {"run": folder.name, **nothing, "state": "broken"}


def _facts(folder: RunFolder) -> dict[str, Any]:
    config, summary, events = folder.config(), folder.summary(), folder.events()
    scores = (events.snapshots[-1].accuracy if events.snapshots else None) or ()
    spent = (summary or {}).get("epsilon_per_agent")
    return {
        "algorithm": config.algorithm,
        "dataset": config.dataset,
        "agents": config.agents,
        "rounds": events.round,
        "of": config.rounds,
        "state": "finished" if summary else "running" if folder.is_running else "stopped",
        "accuracy": sum(scores) / len(scores) if scores and all(map(math.isfinite, scores)) else None,
        "private": config.private,
        "epsilon": max(spent) if spent else None,
        "release": None if events.plan is None else events.plan.release,
    }


def _cells(row: Mapping[str, Any]) -> list[str]:
    plain = [str(row[key] or "-") for key in ("run", "algorithm", "dataset", "agents")]
    rounds = "-" if row["of"] is None else f"{row['rounds']}/{row['of']}"
    accuracy = "-" if row["accuracy"] is None else f"{row['accuracy']:.1%}"
    spent = "none" if row["private"] is False else "-" if row["epsilon"] is None else round_up(row["epsilon"])
    release = "-" if row["release"] is None else "yes" if row["release"] else "no"
    return [*plain, rounds, row["state"], accuracy, spent, release]
