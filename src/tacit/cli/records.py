"""`tacit list` and `tacit ledger`: what was run, and what was spent."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.cli.output import console, plain_table, print_json, round_up
from tacit.errors import InvalidInput
from tacit.privacy import DurableLedger
from tacit.runs import list_runs
from tacit.runs.folder import LEDGER

Runs = Annotated[Path, typer.Option(help="Folder of all runs, with their ledger.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, and nothing else.")]
BROKEN = 1


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

    Example: tacit ledger --delta 1e-5 --verify
    """
    path = runs / LEDGER
    if not path.is_file():
        raise InvalidInput(f"there is no ledger {path}; `tacit train` makes one")
    record = DurableLedger(path)
    problems = record.verify() if verify else []
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
    if json:
        print_json(
            {"ledger": str(path), "whole": None if not verify else not problems, "problems": problems, "spent": rows}
        )
    else:
        screen = console()
        table = plain_table(f"spent, at δ={delta:g}, by the pld accountant")
        table.add_column("owner", overflow="fold")
        table.add_column("run", overflow="fold")
        for column in ("queries", "ε add-or-remove", "ε replace-one", "release"):
            table.add_column(column, justify="right")
        for row in rows:
            values = row["epsilon"]
            table.add_row(
                row["owner"] if row["run"] is None or row is rows[0] else "",
                row["run"] or "all together",
                f"{row['queries']:,}",
                round_up(values["add_remove"]),
                round_up(values["replace_one"]),
                "yes" if row["release"] else "no",
            )
        screen.print(table if rows else "nothing was spent")
        for problem in problems:
            screen.print(f"NOT WHOLE: {problem}")
        if verify and not problems:
            screen.print("the record is whole: every query is there, and none is past its allowance")
    if problems:
        raise typer.Exit(BROKEN)
