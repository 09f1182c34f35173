"""`tacit list` and `tacit ledger`: what was run, and what was spent."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from tacit.cli.output import console, plain_table, print_json, round_up, working
from tacit.errors import InvalidInput
from tacit.privacy import DurableLedger
from tacit.runs import list_runs
from tacit.runs.folder import LEDGER

Runs = Annotated[Path, typer.Option(help="Folder of all runs, with their ledger.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, and nothing else.")]
BROKEN = 1
_ROUNDING = 1e-6


def list_(runs: Runs = Path("runs"), json: Json = False) -> None:
    """List all runs: how far they are and what came of them.

    Example: tacit list --runs runs
    """
    rows: list[dict[str, Any]] = []
    for folder in list_runs(runs):
        summary, events = folder.summary(), folder.events()
        rounds = [event["round"] for event in events if "round" in event]
        config = folder.config()
        rows.append(
            {
                "run": folder.name,
                "algorithm": config.algorithm,
                "dataset": config.dataset,
                "agents": config.agents,
                "rounds": max(rounds, default=0),
                "of": config.rounds,
                "state": "finished" if summary else "stopped",
                "accuracy": summary["accuracy_mean"] if summary else None,
            }
        )
    if json:
        print_json({"runs": rows})
        return
    table = plain_table()
    for column in ("run", "algorithm", "dataset", "agents", "rounds", "state", "accuracy"):
        table.add_column(column, justify="right" if column in ("agents", "rounds", "accuracy") else "left")
    for row in rows:
        accuracy = "-" if row["accuracy"] is None else f"{row['accuracy']:.1%}"
        cells = (
            row["run"],
            row["algorithm"],
            row["dataset"],
            row["agents"],
            f"{row['rounds']}/{row['of']}",
            row["state"],
        )
        table.add_row(*map(str, cells), accuracy)
    console().print(table if rows else f"there are no runs in {runs}")


def ledger(
    runs: Runs = Path("runs"),
    delta: Annotated[float, typer.Option(help="The δ at which ε is derived.")] = 1e-5,
    verify: Annotated[bool, typer.Option("--verify", help="Check that the record is whole; exit 1 if not.")] = False,
    json: Json = False,
) -> None:
    """Derive what was spent, for every data owner, by run and in all, under both adjacencies.

    With --verify, the ε that finished runs state is held against the ε that follows from the record.

    Example: tacit ledger --delta 1e-5 --verify
    """
    path = runs / LEDGER
    if not path.is_file():
        raise InvalidInput(f"there is no ledger {path}; `tacit train` makes one")
    record = DurableLedger(path)
    with working("deriving ε"):
        problems = [*record.verify(), *_misstated(record, runs)] if verify else []
        rows = _spent(record, delta)
    if json:
        whole = not problems if verify else None
        print_json({"ledger": str(path), "whole": whole, "problems": problems, "spent": rows})
    else:
        screen = console()
        screen.print(f"spent, at δ={delta:g}, by the pld accountant" if rows else "nothing was spent")
        for table in _tables(rows):
            screen.print(table)
        for problem in problems:
            screen.print(f"NOT WHOLE: {problem}")
        if verify and not problems:
            screen.print(
                "the record is whole: every query is there, none is past its allowance, every stated ε follows"
            )
    if problems:
        raise typer.Exit(BROKEN)


def _spent(record: DurableLedger, delta: float) -> list[dict[str, Any]]:
    """Return a row for every owner and run, and one for every owner and all runs together."""
    rows: list[dict[str, Any]] = []
    for owner in record.owners:
        names = list(dict.fromkeys(entry.run for entry in record.entries(owner)))
        for run in [*names, None]:
            both = {
                adjacency: record.guarantee(owner, delta=delta, run=run, adjacency=adjacency)
                for adjacency in ("add_remove", "replace_one")
            }
            rows.append(
                {
                    "owner": owner,
                    "run": run,
                    "queries": sum(entry.event.count for entry in record.entries(owner, run)),
                    "epsilon": {adjacency: guarantee.epsilon for adjacency, guarantee in both.items()},
                    "delta": delta,
                    "release": both["add_remove"].release,
                }
            )
    return rows


def _tables(rows: list[dict[str, Any]]) -> Iterator[Table]:
    """Yield one table for all owners whose names begin alike, up to the last slash."""
    for begin, group in groupby(rows, lambda row: row["owner"].rpartition("/")[0]):
        table = plain_table(f"\n{begin}/…" if begin else "")
        table.add_column("owner", overflow="fold")
        table.add_column("run", overflow="fold")
        for column in ("queries", "ε add-or-remove", "ε replace-one", "release"):
            table.add_column(column, justify="right")
        shown = None
        for row in group:
            name = row["owner"].rpartition("/")[2]
            table.add_row(
                "" if name == shown else name,
                row["run"] or "all together",
                f"{row['queries']:,}",
                round_up(row["epsilon"]["add_remove"]),
                round_up(row["epsilon"]["replace_one"]),
                "yes" if row["release"] else "no",
            )
            shown = name
        yield table


def _misstated(record: DurableLedger, runs: Path) -> Iterator[str]:
    """Yield a sentence for every run whose files tell of more queries, or of less ε, than the record."""
    for folder in list_runs(runs):
        if not folder.config().private:
            continue
        entries = record.entries(run=folder.name)
        charged = min((entry.event.count for entry in entries), default=0)
        answered = max((event["queries"] for event in folder.events() if event["event"] == "snapshot"), default=0)
        if charged < answered:
            yield f"run {folder.name!r} was answered {answered} queries; {charged} are on record"
            continue
        summary = folder.summary()
        if summary is None:
            continue
        owners = list(dict.fromkeys(entry.owner for entry in entries))
        stated = summary["epsilon_per_agent"]
        if len(owners) != len(stated):
            yield f"run {folder.name!r} states ε of {len(stated)} owners; {len(owners)} are on record"
            continue
        terms = {key: summary[key] for key in ("delta", "adjacency", "accountant")}
        for owner, value in zip(owners, stated, strict=True):
            derived = record.guarantee(owner, run=folder.name, **terms).epsilon
            if value < derived * (1 - _ROUNDING):
                yield f"run {folder.name!r} states ε = {value:g} for {owner}; {round_up(derived)} follows from the record"
