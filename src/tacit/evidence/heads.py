"""The current heads of a ledger and of a run, and the evidence in a run's folder."""

from contextlib import closing
from pathlib import Path

from tacit.errors import InvalidInput
from tacit.evidence.run_evidence import RunEvidence
from tacit.evidence.signatures import Statement
from tacit.evidence.sites import read_agreement
from tacit.privacy import DurableLedger
from tacit.runs import RunFolder
from tacit.runs.folder import ledger_in


def make_statement(runs: Path, folder: RunFolder | None) -> Statement:
    """Return the statement to sign now: the head of the ledger and, for a run, the head of its events and the hash of its models."""
    path = ledger_in(runs) if folder is None else folder.ledger_file
    with closing(DurableLedger(path, read_only=True)) as ledger:
        head = ledger.head
        if folder is not None and ledger.account(folder.name) is None:
            raise InvalidInput(f"run {folder.name!r} is not in the ledger {path}")
    if not head.number:
        raise InvalidInput(f"the ledger {path} is empty; there is nothing to sign")
    if folder is None:
        return Statement(ledger=head.hash, ledger_rows=head.number)
    events = folder.events()
    if not len(events):
        raise InvalidInput(f"run {folder.name!r} has no events yet; there is nothing to sign")
    return Statement(
        ledger=head.hash,
        ledger_rows=head.number,
        run=folder.name,
        events=events.head,
        events_lines=len(events),
        models_sha256=None if events.finish is None else events.finish.models_sha256,
    )


def read_evidence(folder: RunFolder, ledger: DurableLedger, rows: list[str]) -> RunEvidence | None:
    """Read the evidence of a run from its folder and the ledger beside it; None if it has no plan yet. `rows` are the log's hashes."""
    # In this order, a run that continues in the meantime can only be ahead of what was read before.
    running = folder.is_running
    anchors, events = ledger.anchors(folder.name), folder.events()
    if events.plan is None:
        return None
    account = ledger.account(folder.name)
    return RunEvidence(
        name=folder.name,
        config=folder.config(),
        events=events,
        plan=events.plan,
        ledger=ledger,
        account=account,
        token=None if account is None else account.token,
        anchors=anchors,
        rows=rows,
        summary=None if running else folder.summary(),
        checkpoint=folder.checkpoint_file.read_bytes() if folder.checkpoint_file.exists() else None,
        agreement=read_agreement(folder.agreement_file.read_bytes()) if folder.agreement_file.exists() else None,
        running=running,
    )
