"""`tacit ledger`: what was spent on whose data by which run, and decisions about it, which the ledger keeps."""

import getpass
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.cli.commands.ledger_printing import budgets_as_json, describe_decision, print_ledger
from tacit.cli.commands.ledger_spending import LedgerSnapshot
from tacit.cli.terminal.command import Json, RunsFolder, option
from tacit.cli.terminal.errors import Commands
from tacit.cli.terminal.output import FOUND_FAULT, console, note, print_json, working
from tacit.errors import InvalidInput, TacitError, choose
from tacit.io.chains import is_hash
from tacit.privacy import DurableLedger
from tacit.report.wording import drops_masks, explain_dropped
from tacit.runs import list_runs
from tacit.runs.event_types import PlanEvent
from tacit.runs.folder import ledger_in

SHOW = "show"
_DELTA = 1e-5  # where no run has one

Why = Annotated[str, option("WHY", "Why; the ledger keeps it.", "--reason")]
Who = Annotated[str | None, option("NAME", "Who decides; default: your login name.", "--who")]


class LedgerCommands(Commands):
    """The decisions by name; `tacit ledger` with anything else, or nothing, shows the ledger."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `show` before a word that is not a command."""
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = [SHOW, *args]
        return super().parse_args(ctx, args)


command = typer.Typer(cls=LedgerCommands, rich_markup_mode="rich", subcommand_metavar="[RUN]... | COMMAND [ARGS]...")


@command.callback()
def _ledger() -> None:
    """What was spent on whose data, and by which run.

    tacit ledger [RUN]... is short for tacit ledger show, and takes its options, such as --verify, --all and --head: see
    tacit ledger show --help. The other commands are decisions, which the ledger keeps with who made them and why.

    Example: tacit ledger --verify
    """


@command.command(SHOW)
def show(
    only: Annotated[
        list[str] | None, typer.Argument(metavar="RUN", help="Show only these runs, without the total of all runs.")
    ] = None,
    runs: RunsFolder = Path("runs"),
    delta: Annotated[float | None, option("δ", "Derive ε at this δ; default: the smallest δ of these runs.")] = None,
    all_owners: Annotated[bool, option("", "List every owner, not only the one with the highest ε.", "--all")] = False,
    verify: Annotated[bool, option("", "Check that the record is complete; exit 1 if not.", "--verify")] = False,
    earlier: Annotated[str | None, option("HASH", "With --verify: an earlier head, which must be on record.")] = None,
    head: Annotated[bool, option("", "Show only the head of the ledger, to note or publish.", "--head")] = False,
    json: Json = False,
) -> None:
    """Derive what was spent, by run and in total, under both adjacencies, for the owner in each group with the highest ε.

    A run that is not finished is charged all queries of its plan. With --verify, the ε that finished runs state is compared
    with the ε that follows from the record.

    Example: tacit ledger --verify
    """
    path = ledger_in(runs)
    if head:
        _print_head(path, json)
        return
    if earlier is not None and (not verify or not is_hash(earlier)):
        raise InvalidInput("--earlier takes a head, 64 digits from 0 to f, and needs --verify")
    with closing(DurableLedger(path, read_only=True)) as durable, working("deriving ε"):
        plans, dropped = _plans(runs)
        snapshot = LedgerSnapshot(durable, {name: plan.planned_observer for name, plan in plans.items()})
        missing = sorted(plans.keys() - {account.run for account in snapshot.ledger.accounts})
        asked = [choose("run", Path(name).name, snapshot.runs) for name in only] if only else None
        named = snapshot.runs if asked is None else asked
        deltas = {plan.delta for name, plan in plans.items() if name in named and plan.delta is not None}
        chosen = delta if delta is not None else min(deltas, default=_DELTA)
        problems = list(_problems(snapshot, durable, runs, earlier)) if verify else []
        every = all_owners or json
        rows = list(snapshot.rows(chosen, asked, every=every))
    if json:
        print_json(
            {
                "ledger": str(path),
                "complete": not problems if verify else None,
                "problems": problems,
                "missing": missing,
                "exposed": snapshot.exposed(asked),
                "spent": [row.to_dict() for row in rows],
                "budgets": budgets_as_json(snapshot),
                "decisions": [asdict(decision) for decision in snapshot.ledger.decisions],
            }
        )
    else:
        why = ", the smallest of these runs' δ" if len(deltas) > 1 and delta is None else ""
        notes = [*snapshot.unknown_observers(asked), *explain_dropped(name for name in named if name in dropped)]
        print_ledger(snapshot, rows, asked, every=every, terms=f"δ={chosen:g}{why}", notes=notes)
        for problem in problems:
            console().print(f"DOES NOT HOLD: {problem}")
        if missing and not verify:
            note(
                f"not in this ledger, although their folders are here: {', '.join(missing)}. What they spent is missing above. Was the "
                f"ledger copied without {path.name}-wal? See tacit ledger --verify"
            )
        if verify and not problems:
            console().print(
                "\nthe record is complete: every query is there, none exceeds its allowance, every stated ε follows"
            )
    if problems:
        raise typer.Exit(FOUND_FAULT)


def _problems(snapshot: LedgerSnapshot, durable: DurableLedger, runs: Path, earlier: str | None) -> Iterator[str]:
    from tacit.cli.commands.ledger_verification import find_misstatements

    yield from durable.verify()
    if earlier is not None and earlier not in [kept for _, kept in durable.log]:
        yield f"the head {earlier[:16]}… is not on record: rows before it were changed or removed"
    yield from find_misstatements(snapshot.ledger, durable, runs)


def _print_head(path: Path, json: bool) -> None:
    with closing(DurableLedger(path, read_only=True)) as durable:
        found = durable.head
    if json:
        print_json({"ledger": str(path), "rows": found.number, "head": found.hash})
    else:
        console().print(f"{found.hash} after {found.number} rows")


def _plans(runs: Path) -> tuple[dict[str, PlanEvent], list[str]]:
    """Return the plans of all runs whose folders still exist, and the runs that dropped their masks."""
    found, dropped = {}, []
    for folder in list_runs(runs):
        with suppress(TacitError):
            plan = folder.events().plan
            if plan is not None:
                found[folder.name] = plan
                if drops_masks(folder.config(), plan.masks):
                    dropped.append(folder.name)
    return found, dropped


@command.command("abandon")
def abandon(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The name of the run in the ledger.")],
    reason: Why,
    who: Who = None,
    runs: RunsFolder = Path("runs"),
    json: Json = False,
) -> None:
    """Give up a run that was killed or stopped: it makes no more queries, and some budgets then have room for other runs.

    Queries that it made stay charged. The others become free if it made none at all, or if a budget was there before it began, admitted it
    by its Rényi filter and was not raised since. Otherwise all stay charged, since when the run ended may depend on its answers. Its own
    ε stays that of its plan. An abandoned run cannot be resumed. A run that a process is still working on is refused.

    Example: tacit ledger abandon dsgt-digits-1 --reason "the machine is gone"
    """
    with closing(DurableLedger(ledger_in(runs))) as durable:
        names = [account.run for account in durable.accounts]
        name = choose("run", run if run in names else Path(run).name, names)
        before = durable.account(name)
        assert before is not None
        freed = max(durable.to_free(before, line) for line in before.lines)
        raised = not freed and any(map(before.to_free, before.lines))
        decision = durable.abandon(name, reason=reason, who=who or getpass.getuser())
        account = durable.account(name)
        assert account is not None
    if json:
        print_json({"run": name, "made": account.spent, "freed": freed, "who": decision.who, "reason": decision.reason})
        return
    if freed:
        words = f"these stay charged, and {freed:,} are free for other runs"
    elif account.spent == account.allowed:
        words = "all stay charged"
    elif raised:
        words = f"all {account.allowed:,} stay charged, since the budget was set or raised after it began, maybe because of its results"
    else:
        words = f"all {account.allowed:,} stay charged, since no budget's filter admitted it, and when it ended may depend on its answers"
    console().print(f"abandoned {name} after {account.spent:,} of its {account.allowed:,} queries: {words}")


@command.command("raise")
def raise_budget(
    epsilon: Annotated[float, typer.Argument(metavar="ε", help="What all runs together may spend from now on.")],
    reason: Why,
    who: Who = None,
    owner: Annotated[str | None, option("OWNER", "Raise the budget of this owner alone.")] = None,
    runs: RunsFolder = Path("runs"),
    json: Json = False,
) -> None:
    """Raise the budget in the ledger, at the same δ and adjacency.

    The owners of the records should decide this. What runs before and after it spend together is then guaranteed only if no run
    was planned after seeing another's results.

    Example: tacit ledger raise 20 --reason "the owners agreed on 3 May" --who "data board"
    """
    with closing(DurableLedger(ledger_in(runs))) as durable:
        decision = durable.raise_budget(epsilon, reason=reason, who=who or getpass.getuser(), owner=owner)
        budgets = LedgerSnapshot(durable).budgets
    if json:
        print_json(asdict(decision))
    else:
        console().print(describe_decision(decision, budgets))
