"""Snapshots of the models as the events record them, compared with the plan and with those of a replay."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tacit.algorithms.averaged import line_of
from tacit.evidence.run_evidence import RunEvidence, short
from tacit.runs import events
from tacit.runs.describe import snapshot_event
from tacit.runs.event_types import SnapshotEvent
from tacit.training.session import Session

REPLAY_TOLERANCE = 1e-2
"""How far models and snapshots of a replay may differ from the recorded ones in another environment, relative to these."""

_COUNTED, _MEASURED = ("queries", "bytes_sent", "scored"), ("accuracy", "loss", "consensus_distance", "labels")


@dataclass(frozen=True)
class ReplayedSnapshot:
    """The last snapshot of a session, in the form of an event, and the average length of the models."""

    seen: dict[str, Any]
    length: float

    @staticmethod
    def of(session: Session) -> "ReplayedSnapshot":
        """Return the last snapshot of a session that is there now."""
        seen = events.plain(snapshot_event(session.monitor.histories[0][-1], 0.0))
        return ReplayedSnapshot(seen, float(torch.linalg.vector_norm(session.state.theta.double(), dim=1).mean()))


def check_planned_snapshots(run: RunEvidence, session: Session, exact: bool) -> Iterator[str]:
    """Yield where snapshots are not as planned: their rounds, and their numbers of records, queries and bytes."""
    plan, snapshots, every = run.plan, run.events.snapshots, session.monitor.schedule.every
    last = plan.total_rounds
    rounds = last if run.events.finish is not None else max((snapshot.round for snapshot in snapshots), default=0)
    planned = {0, *range(0, rounds + 1, every), *([rounds] if rounds == last else [])}
    if (recorded := {snapshot.round for snapshot in snapshots}) != planned and snapshots:
        which = sorted(recorded ^ planned)[0]
        yield (
            f"the plan has a snapshot after round {which}, but the events have none"
            if which in planned
            else f"the events have a snapshot after round {which}, but the plan has none"
        )
    line = line_of(session.training.algorithm)
    steady = line is not None and line.queries is not None  # as many queries in every round
    alike = line is not None and steady and line.even and not plan.changing
    evenly = alike and not plan.absences  # as many bytes in every round of the rule
    records = session.training.data.dataset.validation
    for snapshot in run.events:
        if not isinstance(snapshot, SnapshotEvent):
            continue
        at_an_end, sample = snapshot.round in (0, last), session.monitor.schedule.sample
        share = min(1.0, snapshot.round / plan.rounds)
        if (steady or at_an_end) and snapshot.queries != round(session.cost.queries * share):
            yield f"after round {snapshot.round} the rule has asked {round(session.cost.queries * share)} queries, but the events say {snapshot.queries}"
        counted = at_an_end or (evenly and not plan.gossip_rounds)
        if counted and list(snapshot.bytes_sent) != np.rint(session.cost.bytes_sent * share).astype(int).tolist():
            yield f"the bytes that were sent until round {snapshot.round} are not those that the rule sends"
        if records is not None:
            scored = len(records) if snapshot.round == last else min(sample, len(records))
            if snapshot.scored != (scored, len(records)):
                yield f"after round {snapshot.round} models are scored on {scored} of {len(records)} records, but the events say {snapshot.scored}"
    start = {0: ReplayedSnapshot.of(session)}
    yield from compare_counts(run, start)
    yield from compare_measurements(run, start, exact=exact)


def compare_counts(run: RunEvidence, again: Mapping[int, ReplayedSnapshot]) -> Iterator[str]:
    """Yield where queries, bytes or numbers of records differ from those of the replay. These are the same on every machine."""
    for snapshot, made in _pairs(run, again):
        for name in _COUNTED:
            if snapshot[name] != made.seen[name]:
                yield _differs(name, snapshot, made)


def compare_measurements(run: RunEvidence, again: Mapping[int, ReplayedSnapshot], *, exact: bool) -> Iterator[str]:
    """Yield where scores or distances differ from those of the replay."""
    for snapshot, made in _pairs(run, again):
        for name in _MEASURED:
            if snapshot[name] != made.seen[name] and (exact or not _is_close(name, snapshot, made)):
                yield _differs(name, snapshot, made)


def _pairs(
    run: RunEvidence, again: Mapping[int, ReplayedSnapshot]
) -> Iterator[tuple[dict[str, Any], ReplayedSnapshot]]:
    """Yield all snapshots in the events, including earlier ones of the same round, with those of the replay."""
    for event in run.events:
        if isinstance(event, SnapshotEvent) and event.round in again:
            yield events.plain(event), again[event.round]


def _differs(name: str, snapshot: dict[str, Any], made: ReplayedSnapshot) -> str:
    value, again = short(snapshot[name]), short(made.seen[name])
    return (
        f"{name.replace('_', ' ')} after round {snapshot['round']} is {value} in the events, but {again} in the replay"
    )


def _is_close(name: str, snapshot: dict[str, Any], made: ReplayedSnapshot) -> bool:
    kept, again = (np.array(each, dtype=float) for each in (snapshot[name], made.seen[name]))
    absolute = {
        "accuracy": max(REPLAY_TOLERANCE, 1.5 / snapshot["scored"][0] if snapshot["scored"] else 0.0),
        "loss": 1e-6,
        "consensus_distance": REPLAY_TOLERANCE * made.length,
        "labels": 1.0,  # rounding may move one vote across the threshold
    }[name]
    relative = REPLAY_TOLERANCE if name == "loss" else 0.0
    return kept.shape == again.shape and np.allclose(kept, again, rtol=relative, atol=absolute, equal_nan=True)
