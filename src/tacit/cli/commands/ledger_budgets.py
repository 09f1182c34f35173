"""The budgets of a ledger in words: what was spent, what the budget counts of it, and what it allows."""

from dataclasses import asdict
from typing import Any

from tacit.cli.commands.spending import Record
from tacit.cli.terminal.output import PlainTable, console, plain_table, round_up
from tacit.privacy import Budget, Guarantee
from tacit.privacy.guarantees import per

_IF_NOT_ADAPTIVE = "if no run was planned after seeing another's results"
_SPENT = "what all runs so far have spent"
_COUNTED = "what the stricter count of the budget gives for these runs; a new run must fit into the rest"
_HOLDS = "the most that all runs can spend, even if they are planned after seeing others' results"
_LATE = (
    "no run is let in past this; set or raised when there were runs already, it proves nothing about runs that were planned "
    "after seeing others' results"
)


def print_budgets(record: Record) -> None:
    """Show every budget and, for the owner who has used most of it, how much that is."""
    screen = console()
    for owner, budget in record.budgets.items():
        on = f"the records of {owner!r}" if owner else "each owner's records"
        screen.print(f"\nbudget: all runs together may spend {budget} on {on}", soft_wrap=True)
        worst, counted = record.used(owner)
        if counted:
            if not owner:
                screen.print(f"most of it is used for {worst}:", soft_wrap=True)
            screen.print()
            late = _is_late(record, owner, worst)
            screen.print(_table(budget, counted, _together(record, worst, budget), late=late))


def budgets_as_json(record: Record) -> list[dict[str, Any]]:
    """Return the same as plain data; `owner` is None for the budget of all, and `most_used_by` has used most of it."""
    found = []
    for owner, budget in record.budgets.items():
        worst, counted = record.used(owner)
        used = {"most_used_by": worst if counted else None, "counted": counted}
        found.append({"owner": owner or None, **asdict(budget), **used})
    return found


def _together(record: Record, owner: str, budget: Budget) -> Guarantee:
    terms: dict[str, Any] = {"delta": budget.delta, "adjacency": budget.adjacency, "accountant": budget.accountant}
    return record.ledger.guarantee(owner, **terms)


def _is_late(record: Record, owner: str, worst: str) -> bool:
    """Say whether a budget was set, or raised, when some runs had been let in without it."""
    raised = any(each.kind == "raise" and each.subject == owner and each.runs for each in record.ledger.decisions)
    lines = [line for account in record.ledger.accounts if account.charged for line in account.lines]
    return raised or any(line.owner == worst and line.ground == "free" for line in lines)


def _table(budget: Budget, counted: float, together: Guarantee, *, late: bool) -> PlainTable:
    planned_once = together.basis == "plan"
    rows = (
        ("spent", round_up(together.epsilon), _SPENT if planned_once else f"{_SPENT}, {_IF_NOT_ADAPTIVE}"),
        ("counted", round_up(counted), _COUNTED),
        ("budget", f"{budget.epsilon:g}", _LATE if late else _HOLDS),
    )
    table = plain_table()
    table.add_column("")
    table.add_column(per(together.unit), justify="right", no_wrap=True)
    table.add_column("what it is")
    for row in rows:
        table.add_row(*row)
    return table
