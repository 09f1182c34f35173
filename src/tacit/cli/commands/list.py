"""`tacit list`: all runs, their progress and their results."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tacit.cli.commands.epsilon_cache import EpsilonCache
from tacit.cli.terminal.command import Json, RunsFolder
from tacit.cli.terminal.output import complain, console, plain_table, print_json, print_whole, round_up
from tacit.errors import TacitError
from tacit.privacy.accounting import ceil_digits
from tacit.privacy.guarantees import EXPOSED, per
from tacit.privacy.mechanisms import EVERYBODY, Observer
from tacit.privacy.observers import observers_to_state, short_name
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
    "release",
)


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
    units = {row["unit"] for row in rows if row["unit"] is not None}
    mixed = len(units) > 1
    # On two lines, so that a list of runs with default names fits 80 columns.
    epsilon = per(min(units)).replace("per ", "per\n") if len(units) == 1 else "ε"
    masked = any(len(row["epsilon_against"] or ()) > 1 for row in rows)
    columns = (
        "run",
        "rule",
        "data",
        ">agents",
        ">rounds",
        "state",
        ">accuracy",
        f">{epsilon}",
        *["per"] * mixed,
        *["against", ">ε against\neverybody"] * masked,
        "release",
    )
    table = plain_table(None, *columns)
    for row, rule in found:
        table.add_row(*_cells(row | {"algorithm": rule}, units=mixed, observers=masked))
    print_whole(table if rows else f"there are no runs in {runs}")
    if not masked and any(row["epsilon_against"] for row in rows):
        console().print(f"Each ε holds against {EVERYBODY}.")
    exposed = [row["run"] for row in rows if row["exposed"] and row["private"]]
    if exposed:
        console().print(f"Note: {EXPOSED} (the records of {', '.join(exposed)})", soft_wrap=True)


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
    promised = EVERYBODY if plan is None else plan.promised_against
    against = {} if record is None or plan is None else _epsilons(record, plan, cache)
    return {
        "algorithm": config.algorithm,
        "dataset": config.dataset,
        "agents": config.agents,
        "rounds": events.round,
        "of": config.total_rounds,
        "state": _state(folder, record, finished=bool(summary)),
        "accuracy": sum(scores) / len(scores) if scores and all(map(math.isfinite, scores)) else None,
        "private": config.private,
        "epsilon": against.get(promised.key),
        "unit": plan.protected if config.private and plan is not None else None,
        "observer": str(promised) if against else None,
        "epsilon_against": against or None,
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
    """Return the highest ε of any agent, as it is stated, against whom it was promised and against everybody else together.

    Empty without privacy, or if the ledger does not have it.
    """
    if record.account is None or plan.delta is None or plan.adjacency is None or plan.accountant is None:
        return {}
    terms: dict[str, Any] = {"delta": plan.delta, "adjacency": plan.adjacency, "accountant": plan.accountant}
    return {
        observer.key: ceil_digits(cache.epsilon(record.account, **terms, observer=observer))
        for observer in observers_to_state(plan.promised_against)
    }


def _cells(row: Mapping[str, Any], *, units: bool, observers: bool) -> list[str]:
    """Return the cells of a row: where runs protect different units, with that of this one, and with whom ε holds against."""
    plain = [str(row[key] or "-") for key in ("run", "algorithm", "dataset", "agents")]
    rounds = "-" if row["of"] is None else f"{row['rounds']}/{row['of']}"
    accuracy = "-" if row["accuracy"] is None else f"{row['accuracy']:.1%}"
    spent = "none" if row["private"] is False else "-" if row["epsilon"] is None else round_up(row["epsilon"])
    release = "-" if row["release"] is None else "yes" if row["release"] else "no"
    against = row["epsilon_against"]
    promised = ["-", "-"]
    if against:
        weakest = Observer.of_key(next(iter(against)))
        promised = [short_name(weakest), round_up(against[EVERYBODY.key])]
    return [
        *plain,
        rounds,
        row["state"],
        accuracy,
        spent,
        *[row["unit"] or "-"] * units,
        *promised * observers,
        release,
    ]
