"""What runs state about themselves, compared with what the ledger has on record."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tacit.errors import TacitError
from tacit.evidence.charge_checks import check_epsilons, check_queries, check_record
from tacit.evidence.file_checks import check_checkpoint, check_heads, check_summary
from tacit.evidence.heads import read_evidence
from tacit.evidence.plan_checks import check_settings
from tacit.evidence.run_evidence import RunEvidence
from tacit.evidence.sites import check_site
from tacit.privacy import DurableLedger, Ledger
from tacit.privacy.charges import charges_file, charges_of
from tacit.runs import RunFolder, list_runs
from tacit.runs.config import RunConfig


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
                yield from _missing_charges(folder, stored)
        except (TacitError, OSError, LookupError, TypeError) as error:
            yield f"run {folder.name!r} cannot be read: {error}"


def _missing_charges(folder: RunFolder, stored: DurableLedger) -> Iterator[str]:
    """Yield the other processes of a run that have charged nothing, or less than a finished run asks of every agent."""
    config, account, events = folder.config(), stored.account(folder.name), folder.events()
    workers = (isinstance(config, RunConfig) and config.workers) or 1
    if account is None or events.plan is None or not events.plan.private or not account.spent:
        return
    found = charges_of(stored.path, account.token)
    needed = account.spent - events.lost_queries if account.state == "finished" else 0
    for rank in range(1, workers):
        if rank not in found:
            yield f"run {folder.name!r}: the charges of rank {rank} are missing, {charges_file(stored.path, account.token, rank)}"
        elif found[rank].queries < needed:
            yield f"run {folder.name!r}: rank {rank} has charged {found[rank].queries} queries of {needed} that every agent answered"


def _misstatements(run: RunEvidence, record: Ledger) -> Iterator[str]:
    for problem in (*check_settings(run), *check_site(run)):
        yield f"run {run.name!r}: {problem}"
    wrong = list(check_record(run))
    yield from wrong
    yield from check_queries(run)
    yield from check_heads(run)
    yield from check_checkpoint(run)
    for problem in check_summary(run):
        yield f"run {run.name!r}: {problem}"
    plan, account = run.plan, run.account
    if wrong or account is None or not account.charged or plan.delta is None:
        return
    terms: dict[str, Any] = {"delta": plan.delta, "adjacency": plan.adjacency, "accountant": plan.accountant}
    planned = plan.planned_observer
    yield from check_epsilons(run, record.guarantees(plan.owners, run=run.name, **terms, observer=planned))
