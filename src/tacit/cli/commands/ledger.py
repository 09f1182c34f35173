"""`tacit ledger`: what was spent, of whose data, by which run. Decisions about the ledger are in `ledger_decisions`."""

import math
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tacit.cli.commands.ledger_budgets import budgets_as_json, print_budgets
from tacit.cli.commands.spending import Record, Spent, group_of
from tacit.cli.terminal.output import Json, RunsFolder, console, plain_table, print_json, round_up, working
from tacit.errors import InvalidInput, TacitError, choose
from tacit.io.chains import is_hash
from tacit.privacy import Decision, DurableLedger, Guarantee
from tacit.runs import list_runs
from tacit.runs.folder import ledger_in

BROKEN = 1
_DELTA = 1e-5  # where no run says otherwise


def show(
    only: Annotated[
        list[str] | None, typer.Argument(metavar="RUN", help="Show these runs only, and not all together.")
    ] = None,
    runs: RunsFolder = Path("runs"),
    delta: Annotated[
        float | None, typer.Option(metavar="δ", help="Derive ε at this δ; else at the smallest δ of these runs.")
    ] = None,
    all_owners: Annotated[
        bool, typer.Option("--all", metavar="", help="List every owner, not the one with the highest ε.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", metavar="", help="Check that the record is whole; exit 1 if not.")
    ] = False,
    earlier: Annotated[
        str | None, typer.Option(metavar="HASH", help="With --verify: a head that was noted earlier must be on record.")
    ] = None,
    head: Annotated[
        bool,
        typer.Option("--head", metavar="", help="Show the head of the ledger, to note or publish, and nothing else."),
    ] = False,
    json: Json = False,
) -> None:
    """Derive what was spent, by run and in all, under both adjacencies, for the owner in each group with the highest ε.

    A run that is not finished is charged all queries of its plan. With --verify, the ε that finished runs state is held
    against the ε that follows from the record.

    Example: tacit ledger --verify
    """
    path = ledger_in(runs)
    if head:
        _print_head(path, json)
        return
    if earlier is not None and (not verify or not is_hash(earlier)):
        raise InvalidInput("--earlier takes a head, 64 digits from 0 to f, and goes with --verify")
    with closing(DurableLedger(path, read_only=True)) as durable, working("deriving ε"):
        record = Record(durable)
        asked = [choose("run", Path(name).name, record.runs) for name in only] if only else None
        deltas = _deltas(runs, record.runs if asked is None else asked)
        chosen = delta if delta is not None else min(deltas, default=_DELTA)
        problems = list(_problems(record, durable, runs, earlier)) if verify else []
        every = all_owners or json
        rows = list((record.of_every_owner if every else record.of_highest)(chosen, asked))
    if json:
        whole = not problems if verify else None
        spent = [row.to_dict() for row in rows]
        exposed = record.exposed(asked)
        document = {"ledger": str(path), "whole": whole, "problems": problems, "exposed": exposed, "spent": spent}
        document["budgets"] = budgets_as_json(record)
        print_json(document | {"decisions": [asdict(decision) for decision in record.ledger.decisions]})
    else:
        _print(rows, chosen, len(deltas) > 1 and delta is None, every)
        for words in [
            *_conditions(rows, record.ledger.decisions),
            *record.dealt_out_anew(asked),
            *record.exposed(asked),
        ]:
            console().print(f"\nNote: {words}", soft_wrap=True)
        print_budgets(record)
        _print_decisions(record.ledger.decisions)
        _print_problems(problems, verify)
    if problems:
        raise typer.Exit(BROKEN)


def _problems(record: Record, durable: DurableLedger, runs: Path, earlier: str | None) -> Iterator[str]:
    from tacit.cli.commands.verifying import misstated

    yield from durable.verify()
    if earlier is not None and earlier not in [kept for _, kept in durable.log]:
        yield f"the head {earlier[:16]}… is not on record: rows that were there when it was noted are changed or gone"
    yield from misstated(record.ledger, durable, runs)


def _print_head(path: Path, json: bool) -> None:
    with closing(DurableLedger(path, read_only=True)) as durable:
        found = durable.head
    if json:
        print_json({"ledger": str(path), "rows": found.number, "head": found.hash})
    else:
        console().print(f"{found.hash} after {found.number} rows", soft_wrap=True)


def _deltas(runs: Path, names: Sequence[str]) -> set[float]:
    """Return the δ of all private runs of these names that are still there to say it."""
    found = set()
    for folder in list_runs(runs):
        try:
            config = folder.config()
        except TacitError:
            continue
        if config.private and config.delta is not None and folder.name in names:
            found.add(config.delta)
    return found


def _print(rows: Sequence[Spent], delta: float, smallest: bool, every: bool) -> None:
    screen = console()
    if not rows:
        screen.print("nothing was spent")
        return
    why = ", the smallest of these runs' δ" if smallest else ""
    of = "each owner" if every else "the owner with the highest ε"
    screen.print(f"spent at δ={delta:g}{why}, by the pld accountant, of {of}")
    for table in _tables(rows, every):
        screen.print()
        screen.print(table)


def _tables(rows: Sequence[Spent], every: bool) -> Iterator[Table]:
    """Yield one table for all owners whose names begin alike, up to the last slash."""
    for begin, group in groupby(rows, lambda row: row.group):
        table = plain_table(f"{begin}/…" if begin else None)
        names = ("owner", "run") if every else ("run", "owner")
        for column in names:
            table.add_column(column, overflow="fold")
        for column in ("queries", "ε add-or-remove", "ε replace-one"):
            table.add_column(column, justify="right")
        table.add_column("per", overflow="fold")
        table.add_column("release")
        last = None
        for row in group:
            owner, run = row.owner.removeprefix(f"{group_of(row.owner)}/"), row.run or "all runs"
            table.add_row(
                *(("" if owner == last else owner, run) if every else (run, owner)),
                _queries(row),
                _epsilon(row.add_remove),
                _epsilon(row.replace_one),
                row.unit if row.private else "-",
                "yes" if row.release else "no",
            )
            last = owner
        yield table


def _queries(row: Spent) -> str:
    """Write how many queries count and, where those of a plan do, how many were made."""
    if not row.charged:
        return "not counted"
    return f"{row.charged:,}" if row.charged == row.queries else f"{row.charged:,} ({row.queries:,} made)"


def _epsilon(kept: Guarantee) -> str:
    return "∞" if math.isinf(kept.epsilon) else round_up(kept.epsilon)


def _conditions(rows: Sequence[Spent], decisions: Sequence[Decision]) -> Iterator[str]:
    """Yield what has to be known of rows that are more than one finished run."""
    if any(row.run is not None and row.charged != row.queries for row in rows):
        yield "a run that is not finished is charged its whole plan: when to stop may depend on what it gave"
    together = [row.add_remove for row in rows if row.run is None]
    if any(kept.basis == "plans" for kept in together):
        raised = any(decision.kind == "raise" and decision.runs for decision in decisions)
        why = (
            "the budget was raised after some of them, maybe because of their results, so it proves nothing more"
            if raised
            else "a budget set before the first run needs no such condition"
        )
        yield f"ε of all runs holds if no run was planned after seeing another's results; {why}"


def _print_decisions(decisions: Sequence[Decision]) -> None:
    if decisions:
        console().print("\ndecided:")
    for decision in decisions:
        console().print(f"  {decision}", soft_wrap=True)


def _print_problems(problems: Sequence[str], verified: bool) -> None:
    screen = console()
    for problem in problems:
        screen.print(f"NOT WHOLE: {problem}")
    if verified and not problems:
        screen.print("\nthe record is whole: every query is there, none is past its allowance, every stated ε follows")
