"""Looks at the models while a run was played, held against those that the plan has and those that were seen when it was made again."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tacit.algorithms import DSGD, DSGT, SGD, DiNNO, Local
from tacit.algorithms.averaged import rule_of
from tacit.evidence.agreement import RunEvidence, short
from tacit.runs import events
from tacit.runs.describe import snapshot_event
from tacit.training.session import Session

REPLAY_TOLERANCE = 1e-2
"""On another fingerprint: how far models may be from those that were kept, and looks from those that were told, relative to these."""

_COUNTED, _MEASURED = ("queries", "bytes_sent", "scored"), ("accuracy", "loss", "consensus_distance")
_STEADY = (SGD, Local, DSGD, DSGT, DiNNO)  # these ask and send the same in every round


@dataclass(frozen=True)
class ReplayedSnapshot:
    """What the last look of a session saw, as an event has it, and how long the models are, on average."""

    seen: dict[str, Any]
    length: float

    @staticmethod
    def of(session: Session) -> "ReplayedSnapshot":
        """Return the last look of a session that is there now."""
        seen = events.plain(snapshot_event(session.watch.histories[0][-1], 0.0))
        return ReplayedSnapshot(seen, float(torch.linalg.vector_norm(session.state.theta.double(), dim=1).mean()))


def check_planned_snapshots(run: RunEvidence, session: Session, exact: bool) -> Iterator[str]:
    """Yield in what looks are not as they were planned: when, at how many records, after how many queries and bytes."""
    plan, looks, every = run.plan, run.events.snapshots, session.watch.looks.every
    rounds = plan.rounds if run.events.finish is not None else max((look.round for look in looks), default=0)
    planned = {0, *range(0, rounds + 1, every), *([rounds] if rounds == plan.rounds else [])}
    if (told_of := {look.round for look in looks}) != planned and looks:
        which = sorted(told_of ^ planned)[0]
        yield f"the plan looks at the models {'after' if which in planned else 'not after'} round {which}, and the events do otherwise"
    steady = isinstance(rule_of(session.training.algorithm), _STEADY) and not plan.changing
    records = session.training.data.data.validation
    for look in run.events:
        if not isinstance(look, events.Snapshot) or not (steady or look.round in (0, plan.rounds)):
            continue
        share, sample = look.round / plan.rounds, session.watch.looks.sample
        if look.queries != round(session.cost.queries * share):
            yield f"after round {look.round} the rule has asked {round(session.cost.queries * share)} queries, and the events tell of {look.queries}"
        if list(look.bytes_sent) != np.rint(session.cost.bytes_sent * share).astype(int).tolist():
            yield f"the bytes that were sent until round {look.round} are not those that the rule sends"
        if records is not None:
            scored = len(records) if look.round == plan.rounds else min(sample, len(records))
            if look.scored != (scored, len(records)):
                yield f"after round {look.round} models are scored on {scored} of {len(records)} records, and the events tell of {look.scored}"
    start = {0: ReplayedSnapshot.of(session)}
    yield from compare_counts(run, start)
    yield from compare_measurements(run, start, exact=exact)


def compare_counts(run: RunEvidence, again: Mapping[int, ReplayedSnapshot]) -> Iterator[str]:
    """Yield in what looks tell of other queries, bytes or numbers of records than were counted again; no machine differs in that."""
    for look, made in _pairs(run, again):
        for name in _COUNTED:
            if look[name] != made.seen[name]:
                yield _differs(name, look, made)


def compare_measurements(run: RunEvidence, again: Mapping[int, ReplayedSnapshot], *, exact: bool) -> Iterator[str]:
    """Yield in what looks tell of other scores or distances than were measured again."""
    for look, made in _pairs(run, again):
        for name in _MEASURED:
            if look[name] != made.seen[name] and (exact or not _is_close(name, look, made)):
                yield _differs(name, look, made)


def _pairs(
    run: RunEvidence, again: Mapping[int, ReplayedSnapshot]
) -> Iterator[tuple[dict[str, Any], ReplayedSnapshot]]:
    """Yield all looks that events tell of, also where a later one is of the same round, with those that were made again."""
    for event in run.events:
        if isinstance(event, events.Snapshot) and event.round in again:
            yield events.plain(event), again[event.round]


def _differs(name: str, look: dict[str, Any], made: ReplayedSnapshot) -> str:
    value, again = short(look[name]), short(made.seen[name])
    return f"{name.replace('_', ' ')} after round {look['round']} is {value} by the events, and {again} made again"


def _is_close(name: str, look: dict[str, Any], made: ReplayedSnapshot) -> bool:
    kept, again = (np.array(each, dtype=float) for each in (look[name], made.seen[name]))
    absolute = {
        "accuracy": max(REPLAY_TOLERANCE, 1.5 / look["scored"][0] if look["scored"] else 0.0),
        "loss": 1e-6,
        "consensus_distance": REPLAY_TOLERANCE * made.length,
    }[name]
    relative = REPLAY_TOLERANCE if name == "loss" else 0.0
    return kept.shape == again.shape and np.allclose(kept, again, rtol=relative, atol=absolute, equal_nan=True)
