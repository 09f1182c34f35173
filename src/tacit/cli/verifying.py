"""What runs state of themselves, held against what the ledger has on record."""

import math
from collections.abc import Iterator
from pathlib import Path

from tacit.cli.output import round_up
from tacit.cli.spending import Record
from tacit.errors import TacitError
from tacit.privacy import Account, DurableLedger
from tacit.privacy.guarantees import stated as rounded_up
from tacit.runs import RunFolder, list_runs
from tacit.runs.checkpoint import Checkpoint
from tacit.runs.events import Plan

_ROUNDING = 1e-6


def misstated(record: Record, stored: DurableLedger, runs: Path) -> Iterator[str]:
    """Yield a sentence for every run whose files tell of more queries, or of less ε, than the record."""
    for folder in list_runs(runs):
        try:
            yield from _misstated(record, stored, folder)
        except (TacitError, KeyError, TypeError) as error:
            yield f"run {folder.name!r} cannot be read: {error}"


def _misstated(record: Record, stored: DurableLedger, folder: RunFolder) -> Iterator[str]:
    events = folder.events()
    plan = events.plan
    if plan is None:
        yield f"run {folder.name!r} has no plan in {folder.events_file}"
        return
    account = stored.account(folder.name)
    yield from _changed(account, folder, plan)
    made = 0 if account is None else account.spent
    answered = max((snapshot.queries for snapshot in events.snapshots), default=0)
    if folder.checkpoint_file.exists():
        answered = max(answered, Checkpoint.load(folder.checkpoint_file).answered)
    if not folder.config().private:
        if answered and not made:
            yield f"run {folder.name!r} has read records without privacy, which is not on record"
        return
    if made < answered:
        yield f"run {folder.name!r} was answered {answered} queries; {made} are on record"
        return
    if account is not None and account.state == "finished" and answered < plan.queries - plan.spare_queries:
        yield f"run {folder.name!r} is finished by the record; its files tell of {answered} of {plan.queries} queries"
        return
    entries = record.ledger.entries(run=folder.name)
    summary = folder.summary()
    if summary is None:
        return
    owners = list(dict.fromkeys(entry.owner for entry in entries))
    stated = summary.get("epsilon_per_agent")
    if not isinstance(stated, list) or len(owners) != len(stated):
        yield f"run {folder.name!r} does not state ε of all {len(owners)} owners that are on record"
        return
    terms = {key: getattr(plan, key) for key in ("delta", "adjacency", "accountant")}
    kept = record.ledger.guarantees(owners, run=folder.name, **terms)
    most, told = max(guarantee.epsilon for guarantee in kept), summary.get("epsilon")
    if told not in {rounded_up(most * (1 + slack)) for slack in (-_ROUNDING, 0.0, _ROUNDING)}:
        yield f"run {folder.name!r} states ε = {told}; {round_up(most)} follows from the record"
    for owner, value, derived in zip(owners, stated, kept, strict=True):
        if not math.isclose(value, derived.epsilon, rel_tol=_ROUNDING):
            yield (
                f"run {folder.name!r} states ε = {value:g} for {owner}; {round_up(derived.epsilon)} follows from the "
                "record"
            )


def _changed(account: Account | None, folder: RunFolder, plan: Plan) -> Iterator[str]:
    """Yield what the ledger holds of a run otherwise than it was planned."""
    expected = {(owner, mechanism, plan.release) for owner, mechanism in zip(plan.owners, plan.mechanisms, strict=True)}
    lines = () if account is None else account.lines
    found = {(line.owner, line.mechanism, line.release) for line in lines}
    if found != expected:
        which = sorted({row[0] for row in found ^ expected})
        yield f"run {folder.name!r} was planned with another mechanism than is on record, for {', '.join(which[:3])}"
    if account is not None and plan.private and account.allowed != plan.queries:
        yield f"run {folder.name!r} was planned for {plan.queries} queries and is allowed {account.allowed}"
