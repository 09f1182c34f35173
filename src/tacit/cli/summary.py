"""What came of a run, and what all runs together have spent of the same data."""

import math
from contextlib import closing
from typing import Any

from tacit.cli.output import console, plain_table, round_up, working
from tacit.cli.progress import NO_PRIVACY
from tacit.cli.spending import Record
from tacit.privacy import Budget, DurableLedger
from tacit.privacy.guarantees import EXPOSED
from tacit.runs import Runner


def print_summary(runner: Runner, summary: dict[str, Any]) -> None:
    """Print what came of a run that is finished."""
    taken = f"{summary['rounds']} rounds in {summary['seconds']:.1f} s, scored in {summary['evaluation_seconds']:.1f} s"
    table = plain_table(f"{runner.folder.name}: {taken}")
    for column in ("mean", "worst", "best", "distance", "MB sent", "ε, largest"):
        table.add_column(column, justify="right")
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
        screen.print(f"δ={summary['delta']:g}, {summary['adjacency']}, {summary['accountant']}; {kind}")
        _print_all_runs(runner)
    else:
        screen.print(f"{EXPOSED}; the ledger says so from now on", soft_wrap=True)
    screen.print(f"in {runner.folder.path}", soft_wrap=True)


def _print_all_runs(runner: Runner) -> None:
    """Print one line on what all runs together have spent, of the owner who lost most."""
    config, owners = runner.config, runner.session.training.data.owners
    with working("adding up all runs"), closing(DurableLedger(runner.folder.ledger_file, read_only=True)) as ledger:
        record, budget = Record(ledger), ledger.budget
        terms: dict[str, Any] = {
            "delta": config.delta,
            "adjacency": config.adjacency,
            "accountant": config.accountant,
        }
        owner, lost = record.foremost(owners, **terms)
        count = len(record.runs_on(owners))
        anew = record.dealt_out_anew()
    runs = "the only run on this data has" if count == 1 else f"all {count} runs on this data together have"
    whose = owner.rpartition("/")[2]
    screen = console()
    if math.isinf(lost.epsilon):
        screen.print(f"{runs} spent ε=∞", soft_wrap=True)
    else:
        only_if = f", {lost.condition}" if lost.condition else ""
        words = f"{runs} spent ε={round_up(lost.epsilon)}{_of(budget, terms)} ({whose} lost most){only_if}"
        screen.print(words, soft_wrap=True)
    for words in [*anew, *record.exposed([runner.folder.name])]:
        screen.print(f"Note: {words}", soft_wrap=True)


def _of(budget: Budget | None, terms: dict[str, Any]) -> str:
    """Say what may be spent, where that is in the same terms."""
    if budget is None or any(getattr(budget, name) != value for name, value in terms.items()):
        return ""
    return f" of a budget of {budget.epsilon:g}"
