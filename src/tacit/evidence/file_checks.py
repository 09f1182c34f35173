"""Whether the summary, the heads and the checkpoint of a run agree with its events. Each function yields a sentence for every disagreement."""

import hashlib
import math
from collections.abc import Iterator
from typing import Any

from tacit.evidence.run_evidence import ROUNDING, RunEvidence, short
from tacit.runs.checkpoint import Checkpoint
from tacit.runs.event_types import CheckEvent, CheckpointEvent, FinishEvent, PlanEvent, ResumeEvent
from tacit.runs.events import Events

# Compared elsewhere, or measured by a clock, which nobody can check.
_ALSO_IN_SUMMARIES = {
    "accuracy_mean",
    "accuracy_min",
    "accuracy_max",
    "epsilon",
    "epsilon_per_agent",
    "epsilon_against",
    "exposed",
    "heads",
    "evaluation_seconds",
    "samples_per_second",
}


def check_summary(run: RunEvidence) -> Iterator[str]:
    """Yield where a summary differs from the last of the events, or states a guarantee that the plan does not."""
    summary, plan, events = run.summary, run.plan, run.events
    if summary is None:
        return
    if events.finish is None or not events.snapshots:
        yield f"run {run.name!r} has a summary, but its events have no end"
        return
    last = events.snapshots[-1]
    scores = None if last.accuracy is None else [value if math.isfinite(value) else None for value in last.accuracy]
    expected: dict[str, Any] = {
        "accuracy_per_agent": scores,
        "labels_per_agent": None if last.labels is None else list(last.labels),
        "rounds": last.round,
        "bytes_sent": sum(last.bytes_sent),
        "release": plan.release,
        "delta": plan.delta,
        "adjacency": plan.adjacency,
        "accountant": plan.accountant,
        "observer": str(plan.planned_observer) if plan.private else None,
        "unit": plan.protected if plan.private else None,
        "algorithm": run.config.algorithm,
        "dataset": run.config.dataset,
        "consensus_distance": last.consensus_distance if math.isfinite(last.consensus_distance) else None,
        "models_sha256": events.finish.models_sha256,
        "seconds": events.finish.seconds,
    }
    if not plan.private:
        expected |= dict.fromkeys(("epsilon", "epsilon_per_agent", "epsilon_against"))
    if plan.site is not None:
        expected |= events.links_used
    if strange := sorted(set(summary) - set(expected) - _ALSO_IN_SUMMARIES):
        yield f"the summary has a field {short(strange[0])}, which summaries do not have"
    for field, value in expected.items():
        if summary.get(field) != value:
            yield f"{field} is {short(summary.get(field))} in the summary, but {short(value)} in the events"
    if last.accuracy and all(map(math.isfinite, last.accuracy)):
        mean, least, most = sum(last.accuracy) / len(last.accuracy), min(last.accuracy), max(last.accuracy)
        for field, value in (("accuracy_mean", mean), ("accuracy_min", least), ("accuracy_max", most)):
            claimed = summary.get(field)
            if not isinstance(claimed, int | float) or not math.isclose(claimed, value, abs_tol=1e-9):
                yield f"{field} is {short(claimed)} in the summary, but {value:.6g} in the events"
    speed = last.queries * sum(plan.lot_sizes) / events.finish.seconds if events.finish.seconds else math.nan
    if not _is_close(summary.get("samples_per_second"), speed):
        yield f"samples_per_second is {short(summary.get('samples_per_second'))} in the summary, but {speed:.6g} follows from the events"
    if plan.private and summary.get("exposed") is not True and (reader := _reader_before(run)) is not None:
        yield f"the summary does not say that run {reader!r} had read these records without privacy"


def _is_close(value: Any, expected: float) -> bool:
    if not math.isfinite(expected):
        return True
    return isinstance(value, int | float) and math.isclose(value, expected, rel_tol=ROUNDING)


def _reader_before(run: RunEvidence) -> str | None:
    """Return the name of an earlier run without privacy on the same records, if there is one."""
    names = [account.run for account in run.ledger.accounts]
    if run.name not in names:
        return None
    before = set(names[: names.index(run.name)])
    found = run.ledger.readers_without_privacy(run.plan.owners).values()
    return next((run for readers in found for run in readers if run in before), None)


def check_heads(run: RunEvidence) -> Iterator[str]:
    """Yield where heads that were written down are not in the chains."""
    events, name = run.events, run.name
    known = set(events.hashes)
    if missing := [anchor for anchor in run.anchors if anchor not in known]:
        yield f"the ledger has a head {missing[0][:16]}… that is not in the events of run {name!r}"
    if events.finish is not None and events.played_head not in run.anchors and run.summary is not None:
        yield f"the ledger does not have the head of the finished events of run {name!r}"
    for line, (event, follows) in enumerate([] if run.running else _followed(events), 1):
        # A run that was killed in between continues with a resume, and after the last event there may have been no time.
        due = isinstance(event, PlanEvent | CheckpointEvent | FinishEvent) and follows is not None
        if due and not isinstance(follows, ResumeEvent) and events.hashes[line - 1] not in run.anchors:
            yield f"the ledger does not have the head of the events of run {name!r} at line {line}, a {event.event}"
    if run.summary is None:
        return
    heads = run.summary.get("heads")
    if not isinstance(heads, dict) or set(heads) != {"ledger", "ledger_rows", "events"}:
        yield f"the summary of run {name!r} does not state the heads of ledger and events"
        return
    rows = heads["ledger_rows"]
    if type(rows) is not int or not 1 <= rows <= len(run.rows) or run.rows[rows - 1] != heads["ledger"]:
        yield f"the head of the ledger that the summary of run {name!r} states is not in the ledger"
    if heads["events"] != events.played_head:
        yield f"the head of the events that the summary of run {name!r} states is not their head"


def _followed(events: Events) -> Iterator[tuple[Any, Any]]:
    """Yield every event with the next one that is not a check of the settings: checks may come at any time."""
    follows, pairs = None, []
    for event in reversed(list(events)):
        pairs.append((event, follows))
        follows = follows if isinstance(event, CheckEvent) else event
    return reversed(pairs)


def check_checkpoint(run: RunEvidence) -> Iterator[str]:
    """Yield where checkpoints were not saved when due, or the last is not the one in the events."""
    saved, every, end = run.events.checkpoint, run.config.checkpoint_every, run.events.finish
    if run.running:
        return
    if run.plan.site is not None:  # it keeps a journal instead
        if saved is not None or run.checkpoint is not None:
            yield f"run {run.name!r} is that of a site among peers, which saves no checkpoints, but it has one"
        return
    due = range(every, run.events.round, every) if end is None else {*range(every, end.round, every), end.round}
    if missing := sorted(set(due) - {event.round for event in run.events if isinstance(event, CheckpointEvent)}):
        yield f"run {run.name!r} should have saved a checkpoint after round {missing[0]}, but no event records one"
    if run.checkpoint is None:
        if saved is not None:
            yield f"run {run.name!r} saved a checkpoint at round {saved.round}, which is missing"
        return
    held = Checkpoint.of(run.checkpoint, f"the checkpoint of run {run.name!r}")
    # A run that was killed right after a checkpoint has no event of it yet.
    newer = int(held.tensors["round"]) > (-1 if saved is None else saved.round) and run.events.finish is None
    known = saved is not None and hashlib.sha256(run.checkpoint).hexdigest() == saved.sha256
    if not (known or newer) or (held.token, held.fingerprint) != (run.plan.token, run.plan.fingerprint):
        yield f"the checkpoint of run {run.name!r} is not the one that it saved"
