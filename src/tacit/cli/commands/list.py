"""`tacit list`: what was run, how far it is, and what came of it."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tacit.cli.commands.memo import Memo
from tacit.cli.terminal.output import (
    Json,
    RunsFolder,
    complain,
    console,
    plain_table,
    print_json,
    print_whole,
    round_up,
)
from tacit.errors import TacitError
from tacit.privacy.accounting import ceil_digits
from tacit.privacy.guarantees import EXPOSED, per
from tacit.runs import RunFolder, list_runs
from tacit.runs.event_types import PlanEvent
from tacit.runs.folder import LEDGER
from tacit.runs.run_accounts import RunAccount, RunAccounts

_RIGHT = ("agents", "rounds", "accuracy", "ε")


def list_(runs: RunsFolder = Path("runs"), json: Json = False) -> None:
    """List all runs: how far they are and what came of them. A run that is not finished is charged its whole plan.

    Example: tacit list --runs runs
    """
    memo = Memo()
    records = _records(runs)
    rows = [_row(folder, records, memo) for folder in list_runs(runs)]
    memo.save()
    if json:
        print_json({"runs": rows})
        return
    units = {row["unit"] for row in rows if row["unit"] is not None}
    mixed = len(units) > 1
    table = plain_table()
    for column in ("run", "rule", "data", "agents", "rounds", "state", "accuracy", "ε", *["per"] * mixed, "release"):
        # On two lines, so that a list of the names that runs are given fits 80 columns.
        heading = per(min(units)).replace("per ", "per\n") if column == "ε" and len(units) == 1 else column
        table.add_column(heading, justify="right" if column in _RIGHT else "left", overflow="fold")
    for row in rows:
        table.add_row(*_cells(row, mixed))
    print_whole(table if rows else f"there are no runs in {runs}")
    if any(row["exposed"] and row["private"] for row in rows):
        named = ", ".join(row["run"] for row in rows if row["exposed"] and row["private"])
        console().print(f"Note: {EXPOSED} (the records of {named})", soft_wrap=True)


def _records(runs: Path) -> RunAccounts | None:
    """Return what the ledger holds of all runs; nothing where there is one that cannot be read."""
    try:
        return RunAccounts(runs / LEDGER)
    except TacitError as error:
        complain(str(error))
        return None


def _row(folder: RunFolder, records: RunAccounts | None, memo: Memo) -> dict[str, Any]:
    """Return what a run's files tell; of a folder that is broken, no more than that."""
    nothing = dict.fromkeys(
        ("algorithm", "dataset", "agents", "rounds", "of", "accuracy", "private", "epsilon", "unit", "release")
    ) | {"exposed": False}
    try:
        return {"run": folder.name, **nothing, **_facts(folder, records, memo)}
    except (TacitError, LookupError, TypeError, ValueError, OSError) as error:  # files can hold anything
        why = str(error) if isinstance(error, TacitError) else f"{type(error).__name__}: {error}"
        complain(f"run {folder.name!r} is broken: {why}")
        return {"run": folder.name, **nothing, "state": "broken"}


def _facts(folder: RunFolder, records: RunAccounts | None, memo: Memo) -> dict[str, Any]:
    config, summary, events = folder.config(), folder.summary(), folder.events()
    scores = (events.snapshots[-1].accuracy if events.snapshots else None) or ()
    plan, record = events.plan, None if records is None else records.of(folder.name, events)
    return {
        "algorithm": config.algorithm,
        "dataset": config.dataset,
        "agents": config.agents,
        "rounds": events.round,
        "of": config.rounds,
        "state": _state(folder, record, finished=bool(summary)),
        "accuracy": sum(scores) / len(scores) if scores and all(map(math.isfinite, scores)) else None,
        "private": config.private,
        "epsilon": None if record is None or plan is None else _epsilon(record, plan, memo),
        "unit": plan.protected if config.private and plan is not None else None,
        "release": None
        if record is None or plan is None or record.account is None
        else record.release and plan.release,
        "exposed": record is not None and record.exposed,
    }


def _state(folder: RunFolder, record: RunAccount | None, *, finished: bool) -> str:
    """Say how far a run is; one that was abandoned cannot be resumed."""
    if finished:
        return "finished"
    if folder.is_running:
        return "running"
    return "abandoned" if record is not None and record.abandoned else "stopped"


def _epsilon(record: RunAccount, plan: PlanEvent, memo: Memo) -> float | None:
    """Return the highest ε of any agent, as it is stated; None without privacy, and where the ledger does not tell."""
    if record.account is None or plan.delta is None or plan.adjacency is None or plan.accountant is None:
        return None
    return ceil_digits(
        memo.epsilon(record.account, delta=plan.delta, adjacency=plan.adjacency, accountant=plan.accountant)
    )


def _cells(row: Mapping[str, Any], mixed: bool) -> list[str]:
    """Return what a row shows; where runs protect different units, with whom this one does."""
    plain = [str(row[key] or "-") for key in ("run", "algorithm", "dataset", "agents")]
    rounds = "-" if row["of"] is None else f"{row['rounds']}/{row['of']}"
    accuracy = "-" if row["accuracy"] is None else f"{row['accuracy']:.1%}"
    spent = "none" if row["private"] is False else "-" if row["epsilon"] is None else round_up(row["epsilon"])
    release = "-" if row["release"] is None else "yes" if row["release"] else "no"
    return [*plain, rounds, row["state"], accuracy, spent, *[row["unit"] or "-"] * mixed, release]
