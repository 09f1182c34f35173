"""What runs state about themselves, compared with what the ledger has on record."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tacit.errors import TacitError
from tacit.evidence import agreement
from tacit.evidence.agreement import RunEvidence
from tacit.evidence.heads import read_evidence
from tacit.privacy import DurableLedger, Ledger
from tacit.runs import list_runs


def find_misstatements(record: Ledger, stored: DurableLedger, runs: Path) -> Iterator[str]:
    """Yield a sentence for every run whose files disagree with each other or with the record."""
    rows = [kept for _, kept in stored.log]
    for folder in list_runs(runs):
        try:
            run = read_evidence(folder, stored, rows)
            if run is None:
                yield f"run {folder.name!r} has no plan in {folder.events_file}"
            else:
                yield from _misstatements(run, record)
        except (TacitError, OSError, LookupError, TypeError) as error:
            yield f"run {folder.name!r} cannot be read: {error}"


def _misstatements(run: RunEvidence, record: Ledger) -> Iterator[str]:
    for problem in agreement.check_settings(run):
        yield f"run {run.name!r}: {problem}"
    wrong = list(agreement.check_record(run))
    yield from wrong
    yield from agreement.check_queries(run)
    yield from agreement.check_heads(run)
    yield from agreement.check_checkpoint(run)
    for problem in agreement.check_summary(run):
        yield f"run {run.name!r}: {problem}"
    plan, account = run.plan, run.account
    if wrong or account is None or not account.charged or plan.delta is None:
        return
    terms: dict[str, Any] = {"delta": plan.delta, "adjacency": plan.adjacency, "accountant": plan.accountant}
    promised = plan.promised_against
    yield from agreement.check_epsilons(run, record.guarantees(plan.owners, run=run.name, **terms, observer=promised))
