"""The summary of a finished run, and what all runs together have spent on the same data."""

import math
from contextlib import closing
from typing import Any

from tacit.cli.commands.ledger_spending import LedgerSnapshot
from tacit.cli.terminal.output import console, plain_table, round_up, working
from tacit.cli.terminal.progress import NO_PRIVACY
from tacit.privacy import DurableLedger, Guarantee
from tacit.privacy.guarantees import EXPOSED, per, terms
from tacit.privacy.observers import observers_to_state, short_name, state_epsilon
from tacit.runs import Runner


def print_summary(runner: Runner, summary: dict[str, Any]) -> None:
    """Print the results of a finished run."""
    taken = f"{summary['rounds']} rounds in {summary['seconds']:.1f} s, scored in {summary['evaluation_seconds']:.1f} s"
    promised = runner.session.plan.observer
    observers = observers_to_state(promised)
    names = [f"{per(runner.protected)}, highest"]
    if len(observers) > 1:
        names = [f"{per(runner.protected)} against {short_name(each)}" for each in observers]
    columns = (">mean", ">worst", ">best", ">distance", ">MB sent", *(f">{name}" for name in names))
    table = plain_table(f"{runner.folder.name}: {taken}", *columns)
    spent, apart = summary["epsilon"], summary["consensus_distance"]
    against = summary["epsilon_against"] or {}
    accuracies = [summary[f"accuracy_{which}"] for which in ("mean", "min", "max")]
    table.add_row(
        *("-" if value is None else f"{value:.1%}" for value in accuracies),
        "-" if apart is None else f"{apart:.3g}",
        f"{summary['bytes_sent'] / 1e6:.1f}",
        *([NO_PRIVACY] if spent is None else [round_up(against[each.key]) for each in observers]),
    )
    screen = console()
    screen.print(table)
    if spent is not None:
        kind = "a release" if summary["release"] else "not a release"
        stated = terms(summary["delta"], summary["adjacency"], summary["accountant"])
        if len(observers) > 1:
            said = state_epsilon(runner.protected, promised, against)
            screen.print(f"{said}, at {stated}; {kind}", soft_wrap=True)
        else:
            screen.print(f"at {stated}; {kind}")
            screen.print(f"ε holds against {promised}")
        _print_all_runs(runner)
    else:
        screen.print(f"{EXPOSED}; the ledger says so from now on", soft_wrap=True)
    screen.print(f"in {runner.folder.path}", soft_wrap=True)


def _print_all_runs(runner: Runner) -> None:
    """Print what all runs together have spent on the owner with the highest ε, and its budget."""
    config, data = runner.config, runner.session.training.data
    owners = data.owners
    observers = observers_to_state(runner.session.plan.observer)
    with working("adding up all runs"), closing(DurableLedger(runner.folder.ledger_file, read_only=True)) as ledger:
        record = LedgerSnapshot(ledger)
        stated = {"delta": config.delta, "adjacency": config.adjacency, "accountant": config.accountant}
        found = [record.highest(owners, **stated, observer=observer) for observer in observers]
        count = len(record.runs_on(owners))
        notes = [*record.divided_again(only=data.dataset.name), *record.exposed([runner.folder.name])]
        owner, kept = found[-1]
        budget = record.budget_of(owner)
        counted = None if budget is None else record.ledger.filtered(owner)
    runs = "the only run on this data has" if count == 1 else f"all {count} runs on this data together have"
    screen = console()
    if math.isinf(kept.epsilon):
        screen.print(f"{runs} spent ε=∞", soft_wrap=True)
    else:
        each = [_highest(*pair, named=len(found) > 1) for pair in found]
        words = f"{runs} spent {', and '.join(each)}"
        if kept.basis in ("plans", "filter"):
            words += ", if no run was planned after seeing another's results"
        screen.print(words, soft_wrap=True)
    if counted is not None:
        screen.print(f"the budget of {budget} counts {round_up(counted)} as used; see tacit ledger", soft_wrap=True)
    for words in notes:
        screen.print(f"Note: {words}", soft_wrap=True)


def _highest(owner: str, kept: Guarantee, *, named: bool) -> str:
    against = f" against {kept.observer}" if named else ""
    return f"{per(kept.unit, round_up(kept.epsilon))}{against} (highest for {owner.rpartition('/')[2]})"
