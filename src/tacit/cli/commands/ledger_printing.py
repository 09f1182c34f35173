"""A ledger in words: what was spent, under which conditions, the budgets, and the decisions."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.table import Table

from tacit.cli.commands.ledger_spending import LedgerSnapshot, OwnerSpending, group_of
from tacit.cli.terminal.output import PlainTable, console, plain_table, print_sentence, round_up
from tacit.privacy import Budget, Guarantee
from tacit.privacy.decisions import Decision
from tacit.privacy.guarantees import per
from tacit.privacy.observers import EVERYBODY, short_name

_IF_NOT_ADAPTIVE = "if no run was planned after seeing another's results"
_ONE_AGENT_EACH = (
    "counts each party as one agent in every run: whoever had two agents in a run counts as two curious agents"
)
_SPENT = "what all runs so far have spent"
_COUNTED = "what the budget's filter counts for these runs; a new run must fit into the rest"
_FULL = "what the budget's filter counts for these runs: more than the budget, so no further run fits"
_FIRST = "; a first run is admitted by its own ε, which is tighter"
_ABANDONED = "an abandoned run is charged its whole plan in what was spent, and with the queries that it made in what the budget counts"
_HOLDS = "the most that all runs can spend, even if they are planned after seeing others' results"
_LATE = (
    "no run is admitted past this; it was set or raised when there were runs already, so it proves nothing about runs that were "
    "planned after seeing others' results"
)


def print_ledger(
    snapshot: LedgerSnapshot,
    rows: Sequence[OwnerSpending],
    asked: Sequence[str] | None,
    *,
    every: bool,
    terms: str,
    notes: Sequence[str] = (),
) -> None:
    """Print what was spent, and what has to be known about it.

    every: whether the rows are those of every owner. `notes` are about runs, from their folders.
    """
    screen = console()
    if not rows:
        screen.print("nothing was spent")
    else:
        of = "each owner" if every else "the owner with the highest ε"
        masked = len({row.add_remove.observer for row in rows}) > 1
        against = f"the planned observer, and against {EVERYBODY}" if masked else EVERYBODY
        screen.print(f"spent at {terms}, by {_accountants(rows)}, of {of},\nagainst {against}")
    for table in _tables(rows, every):
        screen.print()
        screen.print(table)
    for words in [*_conditions(snapshot, rows), *notes, *snapshot.divided_again(asked), *snapshot.exposed(asked)]:
        print_sentence(screen, f"\nNote: {words}")
    _print_budgets(snapshot)
    if snapshot.ledger.decisions:
        screen.print("\ndecided:")
    for decision in snapshot.ledger.decisions:
        screen.print(f"  {describe_decision(decision, snapshot.budgets)}")


def describe_decision(decision: Decision, budgets: Mapping[str, Budget]) -> str:
    """Describe a decision and, if a budget was raised, against whom that limits ε."""
    budget = budgets.get(decision.subject) if decision.kind == "raise" else None
    return str(decision) if budget is None else f"{decision} (against {budget.observer})"


def budgets_as_json(snapshot: LedgerSnapshot) -> list[dict[str, Any]]:
    """Return the budgets as plain data; `owner` is None for the budget of all, and `most_used_by` has used most of it."""
    found = []
    for owner, budget in snapshot.budgets.items():
        worst, counted = snapshot.used(owner)
        used = {"most_used_by": worst if counted else None, "counted": counted}
        found.append({"owner": owner or None, **budget.to_json(), **used})
    return found


def _accountants(rows: Sequence[OwnerSpending]) -> str:
    """Name the accountant of all rows or, where there are two, the rows for which pld has no bound."""
    used = {kept.accountant for row in rows for kept in (row.add_remove, row.replace_one)}
    if used == {"rdp"}:
        return "the rdp accountant, as pld has no bound"
    by_rdp = [row for row in rows if "rdp" in (row.add_remove.accountant, row.replace_one.accountant)]
    if not by_rdp:
        return "the pld accountant"
    named = ", ".join(dict.fromkeys(row.run or "all runs" for row in by_rdp))
    return f"the pld accountant, or rdp where pld has no bound ({named})"


def _tables(rows: Sequence[OwnerSpending], every: bool) -> Iterator[Table]:
    """Yield one table for all owners whose names begin alike, up to the last slash."""
    for begin, group in groupby(rows, lambda row: group_of(row.owner)):
        names = ("owner", "run") if every else ("run", "owner")
        shown = list(group)
        masked = len({row.add_remove.observer for row in shown}) > 1
        numbers = (">queries", ">ε add-or-remove", ">ε replace-one")
        if masked or any(row.charged != row.queries for row in shown):  # two lines leave room for more beside them
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
    if any(row.run is None and row.add_remove.observer.curious and row.add_remove.basis != "plan" for row in rows):
        yield f"ε of all runs against any k agents {_ONE_AGENT_EACH}"


def _print_budgets(snapshot: LedgerSnapshot) -> None:
    """Print every budget and how much of it is used, for the owner who has used most."""
    screen = console()
    for owner, budget in snapshot.budgets.items():
        on = f"the records of {owner!r}" if owner else "each owner's records"
        print_sentence(screen, f"\nbudget: all runs together may spend {budget} on {on}")
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
                print_sentence(screen, f"most of it is used for {worst}{highest}:")
            screen.print()
            screen.print(_budget_table(budget, counted, together, late=_is_late(snapshot, owner, worst)))
            if budget.observer.curious and together.basis != "plan":
                print_sentence(screen, f"\nNote: this {_ONE_AGENT_EACH}")
            if any(account.state == "abandoned" and account.spent for account in snapshot.ledger.accounts):
                print_sentence(screen, f"\nNote: {_ABANDONED}")


def _is_late(snapshot: LedgerSnapshot, owner: str, worst: str) -> bool:
    """Say whether a budget was set, or raised, after some runs had been admitted without it."""
    raised = any(each.kind == "raise" and each.subject == owner and each.runs for each in snapshot.ledger.decisions)
    lines = [line for account in snapshot.ledger.accounts if account.charged for line in account.lines]
    return raised or any(line.owner == worst and line.ground == "free" for line in lines)


def _budget_table(budget: Budget, counted: float, together: Guarantee, *, late: bool) -> PlainTable:
    planned_once = together.basis == "plan"
    full = _FULL if late else _FULL + _FIRST
    rows = [
        ("spent", round_up(together.epsilon), _SPENT if planned_once else f"{_SPENT}, {_IF_NOT_ADAPTIVE}"),
        ("counted", round_up(counted), full if counted > budget.epsilon else _COUNTED),
        ("budget", f"{budget.epsilon:g}", _LATE if late else _HOLDS),
    ]
    return plain_table(None, "", f">{per(together.unit)}", "what it is", rows=rows)
