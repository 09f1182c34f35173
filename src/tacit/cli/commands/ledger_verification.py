"""What runs state about themselves, compared with what the ledger has on record."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tacit.errors import TacitError
from tacit.evidence import agreement
from tacit.evidence.agreement import Told
from tacit.evidence.heads import told_by
from tacit.privacy import DurableLedger, Ledger
from tacit.runs import list_runs


def find_misstatements(record: Ledger, stored: DurableLedger, runs: Path) -> Iterator[str]:
    """Yield a sentence for every run whose files disagree with each other or with the record."""
    rows = [kept for _, kept in stored.log]
    for folder in list_runs(runs):
        try:
            told = told_by(folder, stored, rows)
            if told is None:
                yield f"run {folder.name!r} has no plan in {folder.events_file}"
            else:
                yield from _misstatements(told, record)
        except (TacitError, OSError, LookupError, TypeError) as error:
            yield f"run {folder.name!r} cannot be read: {error}"


def _misstatements(told: Told, record: Ledger) -> Iterator[str]:
    for problem in agreement.settings_problems(told):
        yield f"run {told.name!r}: {problem}"
    wrong = list(agreement.record_problems(told))
    yield from wrong
    yield from agreement.query_problems(told)
    yield from agreement.head_problems(told)
    yield from agreement.checkpoint_problems(told)
    for problem in agreement.summary_problems(told):
        yield f"run {told.name!r}: {problem}"
    plan, account = told.plan, told.account
    if wrong or account is None or not account.charged or plan.delta is None:
        return
    terms: dict[str, Any] = {"delta": plan.delta, "adjacency": plan.adjacency, "accountant": plan.accountant}
    yield from agreement.epsilon_problems(told, record.guarantees(plan.owners, run=told.name, **terms))
