"""The summary of a finished run, and what all runs together have spent on the same data."""

import math
from contextlib import closing
from typing import Any

from tacit.cli.commands.ledger_spending import LedgerSnapshot
from tacit.cli.terminal.output import console, plain_table, print_sentence, round_up, working
from tacit.cli.terminal.progress import NO_PRIVACY
from tacit.privacy import DurableLedger, Guarantee
from tacit.privacy.guarantees import EXPOSED, per, terms
from tacit.privacy.observers import observers_to_state, short_name
from tacit.privacy.stated_epsilons import state_epsilon
from tacit.report.teachers import describe_labels
from tacit.report.wording import amount, drops_masks, explain_dropped
from tacit.report.wording import counted as count_of
from tacit.runs import Runner


def print_summary(runner: Runner, summary: dict[str, Any]) -> None:
    """Print the results of a finished run."""
    taken = f"{count_of(summary['rounds'], 'round')} in {summary['seconds']:.1f} s, scored in {summary['evaluation_seconds']:.1f} s"
    planned = runner.session.plan.observer
    observers = observers_to_state(planned)
    names = [f"{per(runner.protected)}, highest"]
    if len(observers) > 1:
        names = [f"{per(runner.protected)} against {short_name(each)}" for each in observers]
    accuracies = [summary[f"accuracy_{which}"] for which in ("mean", "min", "max")]
    scored = None not in accuracies
    columns = (*(">mean", ">worst", ">best") * scored, ">distance", ">sent", *(f">{name}" for name in names))
    table = plain_table(f"{runner.folder.name}: {taken}", *columns)
    spent, apart = summary["epsilon"], summary["consensus_distance"]
    against = summary["epsilon_against"] or {}
    table.add_row(
        *(f"{value:.1%}" for value in accuracies if scored),
        "-" if apart is None else f"{apart:.3g}",
        amount(summary["bytes_sent"]),
        *([NO_PRIVACY] if spent is None else [round_up(against[each.key]) for each in observers]),
    )
    screen = console()
    screen.print(table)
    ballot = runner.session.plan.ballot
    if ballot is not None and (labels := summary["labels_per_agent"]) is not None:
        screen.print(f"teachers labelled {describe_labels(labels, ballot)}")
    if spent is not None:
        kind = "a release" if summary["release"] else "not a release"
        stated = terms(summary["delta"], summary["adjacency"], summary["accountant"])
        if len(observers) > 1:
            said = state_epsilon(runner.protected, planned, against)
            screen.print(f"{said}, at {stated}; {kind}")
        else:
            screen.print(f"at {stated}; {kind}")
            screen.print(f"ε holds against {planned}")
        for words in explain_dropped([runner.folder.name] * drops_masks(runner.config, runner.session.plan.masks)):
            print_sentence(screen, f"Note: {words}")
        _print_all_runs(runner)
    else:
        screen.print(f"{EXPOSED}; the ledger says so from now on")
    screen.print(f"in {runner.folder.path}")


def _print_all_runs(runner: Runner) -> None:
    """Print what all runs together have spent on the owner with the highest ε, and its budget."""
    config, data = runner.config, runner.session.training.data
    owners = [line.owner for line in runner.account.lines]  # all agents', also those of other ranks
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
        screen.print(f"{runs} spent ε=∞")
    else:
        each = [_highest(*pair, named=len(found) > 1) for pair in found]
        words = f"{runs} spent {', and '.join(each)}"
        if kept.basis in ("plans", "filter"):
            words += ", if no run was planned after seeing another's results"
        screen.print(words)
    if budget is not None and counted is not None:
        full = ", so no further run fits" if counted > budget.epsilon else ""
        screen.print(f"the budget of {budget} counts {round_up(counted)} as used{full}; see tacit ledger")
    for words in notes:
        print_sentence(screen, f"Note: {words}")


def _highest(owner: str, kept: Guarantee, *, named: bool) -> str:
    against = f" against {kept.observer}" if named else ""
    return f"{per(kept.unit, round_up(kept.epsilon))}{against} (highest for {owner.rpartition('/')[2]})"
