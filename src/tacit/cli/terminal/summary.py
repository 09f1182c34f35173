"""The summary of a finished run, and what all runs together have spent on the same data."""

import math
from contextlib import closing
from typing import Any

from tacit.cli.commands.ledger_spending import LedgerSnapshot
from tacit.cli.terminal.output import console, plain_table, round_up, working
from tacit.cli.terminal.progress import NO_PRIVACY
from tacit.privacy import DurableLedger
from tacit.privacy.guarantees import EXPOSED, per, terms
from tacit.runs import Runner


def print_summary(runner: Runner, summary: dict[str, Any]) -> None:
    """Print the results of a finished run."""
    taken = f"{summary['rounds']} rounds in {summary['seconds']:.1f} s, scored in {summary['evaluation_seconds']:.1f} s"
    columns = (">mean", ">worst", ">best", ">distance", ">MB sent", f">{per(runner.protected)}, highest")
    table = plain_table(f"{runner.folder.name}: {taken}", *columns)
    spent, apart = summary["epsilon"], summary["consensus_distance"]
    accuracies = [summary[f"accuracy_{which}"] for which in ("mean", "min", "max")]
    table.add_row(
        *("-" if value is None else f"{value:.1%}" for value in accuracies),
        "-" if apart is None else f"{apart:.3g}",
        f"{summary['bytes_sent'] / 1e6:.1f}",
        NO_PRIVACY if spent is None else round_up(spent),
    )
    screen = console()
    screen.print(table)
    if spent is not None:
        kind = "a release" if summary["release"] else "not a release"
        screen.print(f"at {terms(summary['delta'], summary['adjacency'], summary['accountant'])}; {kind}")
        _print_all_runs(runner)
    else:
        screen.print(f"{EXPOSED}; the ledger says so from now on", soft_wrap=True)
    screen.print(f"in {runner.folder.path}", soft_wrap=True)


def _print_all_runs(runner: Runner) -> None:
    """Print what all runs together have spent on the owner with the highest ε, and its budget."""
    config, data = runner.config, runner.session.training.data
    owners = data.owners
    with working("adding up all runs"), closing(DurableLedger(runner.folder.ledger_file, read_only=True)) as ledger:
        record = LedgerSnapshot(ledger)
        stated = {"delta": config.delta, "adjacency": config.adjacency, "accountant": config.accountant}
        owner, kept = record.highest(owners, **stated)
        count = len(record.runs_on(owners))
        notes = [*record.divided_again(only=data.dataset.name), *record.exposed([runner.folder.name])]
        budget = record.budget_of(owner)
        counted = None if budget is None else record.ledger.filtered(owner)
    runs = "the only run on this data has" if count == 1 else f"all {count} runs on this data together have"
    screen, whose = console(), owner.rpartition("/")[2]
    if math.isinf(kept.epsilon):
        screen.print(f"{runs} spent ε=∞", soft_wrap=True)
    else:
        words = f"{runs} spent {per(kept.unit, round_up(kept.epsilon))} (highest for {whose})"
        if kept.basis in ("plans", "filter"):
            words += ", if no run was planned after seeing another's results"
        screen.print(words, soft_wrap=True)
    if counted is not None:
        screen.print(f"the budget of {budget} counts {round_up(counted)} as used; see tacit ledger", soft_wrap=True)
    for words in notes:
        screen.print(f"Note: {words}", soft_wrap=True)
