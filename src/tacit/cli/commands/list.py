"""`tacit list`: all runs, their progress and their results."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tacit.cli.commands.epsilon_cache import EpsilonCache
from tacit.cli.terminal.command import Json, RunsFolder
from tacit.cli.terminal.output import (
    PlainTable,
    complain,
    console,
    plain_table,
    print_json,
    print_sentence,
    print_whole,
    round_up,
)
from tacit.errors import TacitError
from tacit.privacy.accounting import ceil_digits
from tacit.privacy.guarantees import EXPOSED, per
from tacit.privacy.observers import EVERYBODY, observers_to_state
from tacit.report.wording import drops_masks, explain_dropped
from tacit.runs import RunFolder, list_runs
from tacit.runs.event_types import PlanEvent
from tacit.runs.events import Events
from tacit.runs.folder import LEDGER
from tacit.runs.run_accounts import RunAccount, RunAccounts

_FACTS = (
    "algorithm",
    "dataset",
    "agents",
    "rounds",
    "of",
    "accuracy",
    "private",
    "epsilon",
    "unit",
    "observer",
    "epsilon_against",
    "masks",
    "release",
)
_NAMES = {EVERYBODY.key: "all", "0": "outsiders"}
"""Observers in a narrow column: all other agents together, those who see messages only, or any k agents."""


def command(runs: RunsFolder = Path("runs"), json: Json = False) -> None:
    """List all runs with their progress and results. A run that is not finished is charged its whole plan.

    Example: tacit list --runs runs
    """
    cache, records = EpsilonCache(), _records(runs)
    found = [_row(folder, records, cache) for folder in list_runs(runs)]
    cache.save()
    rows = [row for row, _ in found]
    if json:
        print_json({"runs": rows})
        return
    if not rows:
        console().print(f"there are no runs in {runs}")
        return
    print_whole(_table(found))
    if all(len(row["epsilon_against"] or ()) < 2 for row in rows) and any(row["epsilon_against"] for row in rows):
        console().print(f"Each ε holds against {EVERYBODY}.")
    notes = explain_dropped(row["run"] for row in rows if row["masks"] == "dropped")
    exposed = [row["run"] for row in rows if row["exposed"] and row["private"]]
    for words in [*notes, *[f"{EXPOSED} (the records of {', '.join(exposed)})"] * bool(exposed)]:
        print_sentence(console(), f"Note: {words}")


def _table(found: Sequence[tuple[dict[str, Any], str | None]]) -> PlainTable:
    """Return a table that fits 80 columns with default names: one line for each run, and one more for each further observer."""
    units = {row["unit"] for row, _ in found if row["unit"] is not None}
    mixed = len(units) > 1
    masked = any(len(row["epsilon_against"] or ()) > 1 for row, _ in found)
    epsilon = per(min(units)).replace("per ", "per\n") if len(units) == 1 else "ε"
    narrow = mixed or masked  # headings on two lines leave room for one more column
    accuracy, release = (">accu-\nracy", "re-\nlease") if narrow else (">accuracy", "release")
    columns = ("run", "rule", "data", ">agents", ">rounds", "state", accuracy, f">{epsilon}")
    table = plain_table(None, *columns, *["per"] * mixed, *["against"] * masked, release)
    table.padding = (0, 0, 0, 0)
    for row, rule in found:
        rounds = "-" if row["of"] is None else f"{row['rounds']:,}"
        if row["state"] != "finished" and row["of"] is not None:
            rounds += f"/{row['of']:,}"
        spent = "none" if row["private"] is False else "-" if row["epsilon"] is None else round_up(row["epsilon"])
        against = {
            _NAMES.get(key, f"any {key}"): round_up(value) for key, value in (row["epsilon_against"] or {}).items()
        }
        first, *others = against.items() or [("-", spent)]
        table.add_row(
            *(str(value or "-") for value in (row["run"], rule, row["dataset"], row["agents"])),
            rounds,
            row["state"],
            "-" if row["accuracy"] is None else f"{row['accuracy']:.1%}",
            spent,
            *[row["unit"] or "-"] * mixed,
            *[first[0]] * masked,
            "-" if row["release"] is None else "yes" if row["release"] else "no",
        )
        for observer, value in others:
            table.add_row(*[""] * 7, value, *[""] * mixed, observer, "")
    return table


def _records(runs: Path) -> RunAccounts | None:
    """Return what the ledger holds about all runs, or None if it cannot be read."""
    try:
        return RunAccounts(runs / LEDGER)
    except TacitError as error:
        complain(str(error))
        return None


def _row(folder: RunFolder, records: RunAccounts | None, cache: EpsilonCache) -> tuple[dict[str, Any], str | None]:
    """Return the facts in a run's files, and the name of its rule as it is printed; only the state if they are broken."""
    nothing = {"run": folder.name, **dict.fromkeys(_FACTS), "exposed": False}
    try:
        events = folder.events()
        facts = _facts(folder, events, records, cache)
        return nothing | facts, facts["algorithm"] if events.plan is None else events.plan.algorithm
    except (TacitError, LookupError, TypeError, ValueError, OSError) as error:  # files can hold anything
        why = str(error) if isinstance(error, TacitError) else f"{type(error).__name__}: {error}"
        complain(f"run {folder.name!r} is broken: {why}")
        return nothing | {"state": "broken"}, None


def _facts(folder: RunFolder, events: Events, records: RunAccounts | None, cache: EpsilonCache) -> dict[str, Any]:
    config, summary = folder.config(), folder.summary()
    scores = (events.snapshots[-1].accuracy if events.snapshots else None) or ()
    plan, record = events.plan, None if records is None else records.of(folder.name, events)
    release = None
    if record is not None and plan is not None and record.account is not None:
        release = record.release and plan.release
    planned = EVERYBODY if plan is None else plan.planned_observer
    against = {} if record is None or plan is None else _epsilons(record, plan, cache)
    shared = "shared" if plan is not None and plan.masks else None
    return {
        "algorithm": config.algorithm,
        "dataset": config.dataset,
        "agents": config.agents,
        "rounds": events.round,
        "of": config.total_rounds,
        "state": _state(folder, record, finished=bool(summary)),
        "accuracy": sum(scores) / len(scores) if scores and all(map(math.isfinite, scores)) else None,
        "private": config.private,
        "epsilon": against.get(planned.key),
        "unit": plan.protected if config.private and plan is not None else None,
        "observer": str(planned) if against else None,
        "epsilon_against": against or None,
        "masks": "dropped" if plan is not None and drops_masks(config, plan.masks) else shared,
        "release": release,
        "exposed": record is not None and record.exposed,
    }


def _state(folder: RunFolder, record: RunAccount | None, *, finished: bool) -> str:
    """Return the state of a run; one that was abandoned cannot be resumed."""
    if finished:
        return "finished"
    if folder.is_running:
        return "running"
    return "abandoned" if record is not None and record.abandoned else "stopped"


def _epsilons(record: RunAccount, plan: PlanEvent, cache: EpsilonCache) -> dict[str, float]:
    """Return the highest ε of any agent, as it is stated, against the planned observer and against everybody else together.

    Empty without privacy, or if the ledger does not have it.
    """
    if record.account is None or plan.delta is None or plan.adjacency is None or plan.accountant is None:
        return {}
    terms: dict[str, Any] = {"delta": plan.delta, "adjacency": plan.adjacency, "accountant": plan.accountant}
    return {
        observer.key: ceil_digits(cache.epsilon(record.account, **terms, observer=observer))
        for observer in observers_to_state(plan.planned_observer)
    }
