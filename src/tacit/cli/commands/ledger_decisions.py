"""The commands of `tacit ledger`: to show it, and decisions about it, which it keeps with who and why."""

import getpass
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.cli.commands import ledger
from tacit.cli.terminal.failing import Commands
from tacit.cli.terminal.output import Json, RunsFolder, console, print_json
from tacit.errors import choose
from tacit.privacy import DurableLedger
from tacit.runs.folder import ledger_in

SHOW = "show"
Why = Annotated[str, typer.Option("--reason", metavar="WHY", help="Why; it is kept in the ledger.")]
Who = Annotated[str | None, typer.Option("--who", metavar="NAME", help="Who decides; your login name unless given.")]


class Ledgers(Commands):
    """The decisions by name; `tacit ledger` with anything else, or nothing, shows the ledger."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read what was typed, with `show` put before what is no command."""
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = [SHOW, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=Ledgers, rich_markup_mode="rich")


@app.callback()
def _ledger() -> None:
    """What was spent, of whose data, by which run.

    tacit ledger [RUN]... is short for tacit ledger show. The other commands are decisions, which the ledger keeps with
    who made them and why.

    Example: tacit ledger --verify
    """


app.command(SHOW)(ledger.show)


@app.command("abandon")
def abandon(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's name in the ledger.")],
    reason: Why,
    who: Who = None,
    runs: RunsFolder = Path("runs"),
    json: Json = False,
) -> None:
    """Give up a run that was killed or stopped: it never asks again, and what it has not asked is free for other runs.

    What it asked stays charged, and its own ε stays that of its plan. An abandoned run cannot be resumed. A run on which a process
    is at work is refused.

    Example: tacit ledger abandon dsgt-digits-1 --reason "the machine is gone"
    """
    with closing(DurableLedger(ledger_in(runs))) as durable:
        names = [account.run for account in durable.accounts]
        name = choose("run", run if run in names else Path(run).name, names)
        before = durable.account(name)
        assert before is not None
        freed = max(before.to_free(line) for line in before.lines)
        decision = durable.abandon(name, reason=reason, who=who or getpass.getuser())
        account = durable.account(name)
        assert account is not None
    if json:
        print_json({"run": name, "made": account.spent, "freed": freed, "who": decision.who, "reason": decision.reason})
        return
    if freed:
        words = f"{freed} of its {account.allowed} queries are free for other runs; {account.spent} were made and stay charged"
    else:
        words = (
            f"nothing could be freed: it made {account.spent} of {account.allowed} queries, and where no budget's filter let a "
            "run in, all of its plan stays charged, because when it ended may depend on what it was answered"
        )
    console().print(f"abandoned {name}: {words}", soft_wrap=True)


@app.command("raise")
def raise_(
    epsilon: Annotated[float, typer.Argument(metavar="ε", help="What all runs together may spend from now on.")],
    reason: Why,
    who: Who = None,
    owner: Annotated[
        str | None, typer.Option(metavar="OWNER", help="Raise the budget that this owner has of its own.")
    ] = None,
    runs: RunsFolder = Path("runs"),
    json: Json = False,
) -> None:
    """Raise the budget that is stored in the ledger, at the same δ and adjacency.

    Whoever holds the records should decide this. What runs before and after it spend together is then promised only if none
    was planned by another's results.

    Example: tacit ledger raise 20 --reason "the owners agreed on 3 May" --who "data board"
    """
    with closing(DurableLedger(ledger_in(runs))) as durable:
        decision = durable.raise_budget(epsilon, reason=reason, who=who or getpass.getuser(), owner=owner)
    if json:
        print_json(asdict(decision))
    else:
        console().print(str(decision), soft_wrap=True)
