"""A ledger in words: what was spent, under which conditions, the budgets, and the decisions."""

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from rich.table import Table

from tacit.cli.commands.ledger_spending import LedgerSnapshot, OwnerSpending, group_of
from tacit.cli.terminal.output import PlainTable, console, plain_table, round_up
from tacit.privacy import Budget, Guarantee
from tacit.privacy.guarantees import per
from tacit.privacy.mechanisms import EVERYBODY
from tacit.privacy.observers import short_name

_IF_NOT_ADAPTIVE = "if no run was planned after seeing another's results"
_SPENT = "what all runs so far have spent"
_COUNTED = "what the budget's filter counts for these runs; a new run must fit into the rest"
_ABANDONED = "an abandoned run is charged its whole plan in what was spent, and with the queries that it made in what the budget counts"
_HOLDS = "the most that all runs can spend, even if they are planned after seeing others' results"
_LATE = (
    "no run is admitted past this; it was set or raised when there were runs already, so it proves nothing about runs that were "
    "planned after seeing others' results"
)


def print_ledger(
    snapshot: LedgerSnapshot, rows: Sequence[OwnerSpending], asked: Sequence[str] | None, *, every: bool, terms: str
) -> None:
    """Print what was spent, and what has to be known about it.

    every: whether the rows are those of every owner.
    """
    screen = console()
    if not rows:
        screen.print("nothing was spent")
    else:
        of = "each owner" if every else "the owner with the highest ε"
        masked = len({row.add_remove.observer for row in rows}) > 1
        against = f"those whom it was promised against, and against {EVERYBODY}" if masked else EVERYBODY
        screen.print(f"spent at {terms}, by the pld accountant, of {of},\nagainst {against}", soft_wrap=True)
    for table in _tables(rows, every):
        screen.print()
        screen.print(table)
    for words in [*_conditions(snapshot, rows), *snapshot.divided_again(asked), *snapshot.exposed(asked)]:
        screen.print(f"\nNote: {words}", soft_wrap=True)
    _print_budgets(snapshot)
    if snapshot.ledger.decisions:
        screen.print("\ndecided:")
    for decision in snapshot.ledger.decisions:
        screen.print(f"  {decision}", soft_wrap=True)


def budgets_as_json(snapshot: LedgerSnapshot) -> list[dict[str, Any]]:
    """Return the budgets as plain data; `owner` is None for the budget of all, and `most_used_by` has used most of it."""
    found = []
    for owner, budget in snapshot.budgets.items():
        worst, counted = snapshot.used(owner)
        used = {"most_used_by": worst if counted else None, "counted": counted}
        found.append({"owner": owner or None, **budget.to_json(), **used})
    return found


def _tables(rows: Sequence[OwnerSpending], every: bool) -> Iterator[Table]:
    """Yield one table for all owners whose names begin alike, up to the last slash."""
    for begin, group in groupby(rows, lambda row: group_of(row.owner)):
        names = ("owner", "run") if every else ("run", "owner")
        shown = list(group)
        masked = len({row.add_remove.observer for row in shown}) > 1
        numbers = (">queries", ">ε add-or-remove", ">ε replace-one")
        if masked:  # on two lines, which leaves room for one more column
            numbers = (">queries", ">ε add-or-\nremove", ">ε replace-\none")
        against = ["against"] * masked
        table = plain_table(f"{begin}/…" if begin else None, *names, *against, *numbers, "per", "release")
        last = None
        for row in shown:
            owner, run = row.owner.removeprefix(f"{begin}/"), row.run or "all runs"
            table.add_row(
                *(("" if owner == last else owner, run) if every else (run, owner)),
                *[short_name(row.add_remove.observer)] * masked,
                _queries(row),
                _epsilon(row.add_remove),
                _epsilon(row.replace_one),
                row.add_remove.unit if row.private else "-",
                "yes" if row.add_remove.release else "no",
            )
            last = owner
        yield table


def _queries(row: OwnerSpending) -> str:
    """Write how many queries are charged and, if they are those of a plan, how many were made."""
    if not row.charged:
        return "not counted"
    return f"{row.charged:,}" if row.charged == row.queries else f"{row.charged:,} ({row.queries:,} made)"


def _epsilon(guarantee: Guarantee) -> str:
    return "∞" if math.isinf(guarantee.epsilon) else round_up(guarantee.epsilon)


def _conditions(snapshot: LedgerSnapshot, rows: Sequence[OwnerSpending]) -> Iterator[str]:
    """Yield what has to be known about rows that are more than one finished run."""
    if any(row.run is not None and row.charged != row.queries for row in rows):
        yield "a run that is not finished is charged its whole plan: when to stop may depend on its answers"
    if any(row.run is None and row.add_remove.basis == "plans" for row in rows):
        raised = any(decision.kind == "raise" and decision.runs for decision in snapshot.ledger.decisions)
        why = (
            "the budget was raised after some of them, maybe because of their results, so it proves nothing more"
            if raised
            else "a budget set before the first run needs no such condition"
        )
        yield f"ε of all runs holds {_IF_NOT_ADAPTIVE}; {why}"


def _print_budgets(snapshot: LedgerSnapshot) -> None:
    """Print every budget and how much of it is used, for the owner who has used most."""
    screen = console()
    for owner, budget in snapshot.budgets.items():
        on = f"the records of {owner!r}" if owner else "each owner's records"
        screen.print(f"\nbudget: all runs together may spend {budget} on {on}", soft_wrap=True)
        worst, counted = snapshot.used(owner)
        if counted:
            spender, together = snapshot.highest(
                snapshot.owners_under(owner),
                delta=budget.delta,
                adjacency=budget.adjacency,
                accountant=budget.accountant,
                observer=budget.observer,
            )
            if not owner:
                highest = "" if spender == worst else f"; the highest ε is that of {spender}"
                screen.print(f"most of it is used for {worst}{highest}:", soft_wrap=True)
            screen.print()
            screen.print(_budget_table(budget, counted, together, late=_is_late(snapshot, owner, worst)))
            if any(account.state == "abandoned" and account.spent for account in snapshot.ledger.accounts):
                screen.print(f"\nNote: {_ABANDONED}", soft_wrap=True)


def _is_late(snapshot: LedgerSnapshot, owner: str, worst: str) -> bool:
    """Say whether a budget was set, or raised, after some runs had been admitted without it."""
    raised = any(each.kind == "raise" and each.subject == owner and each.runs for each in snapshot.ledger.decisions)
    lines = [line for account in snapshot.ledger.accounts if account.charged for line in account.lines]
    return raised or any(line.owner == worst and line.ground == "free" for line in lines)


def _budget_table(budget: Budget, counted: float, together: Guarantee, *, late: bool) -> PlainTable:
    planned_once = together.basis == "plan"
    table = plain_table()
    table.add_column("")
    table.add_column(per(together.unit), justify="right", no_wrap=True)
    table.add_column("what it is")
    table.add_row("spent", round_up(together.epsilon), _SPENT if planned_once else f"{_SPENT}, {_IF_NOT_ADAPTIVE}")
    table.add_row("counted", round_up(counted), _COUNTED)
    table.add_row("budget", f"{budget.epsilon:g}", _LATE if late else _HOLDS)
    return table
