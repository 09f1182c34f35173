"""Looks at the models while a run was played, held against those that the plan has and those that were seen when it was made again."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tacit.algorithms import DSGD, DSGT, SGD, DiNNO, Local
from tacit.algorithms.averaged import rule_of
from tacit.evidence.agreement import Told, short
from tacit.runs import events
from tacit.runs.describe import snapshot_event
from tacit.runs.event_types import SnapshotEvent
from tacit.training.session import Session

REPLAY_TOLERANCE = 1e-2
"""On another fingerprint: how far models may be from those that were kept, and looks from those that were told, relative to these."""

_COUNTED, _MEASURED = ("queries", "bytes_sent", "scored"), ("accuracy", "loss", "consensus_distance")
_STEADY = (SGD, Local, DSGD, DSGT, DiNNO)  # these ask and send the same in every round


@dataclass(frozen=True)
class Look:
    """What the last look of a session saw, as an event has it, and how long the models are, on average."""

    seen: dict[str, Any]
    length: float

    @staticmethod
    def of(session: Session) -> "Look":
        """Return the last look of a session that is there now."""
        seen = events.plain(snapshot_event(session.monitor.histories[0][-1], 0.0))
        return Look(seen, float(torch.linalg.vector_norm(session.state.theta.double(), dim=1).mean()))


def look_problems(told: Told, session: Session, exact: bool) -> Iterator[str]:
    """Yield in what looks are not as they were planned: when, at how many records, after how many queries and bytes."""
    plan, looks, every = told.plan, told.events.snapshots, session.monitor.schedule.every
    last = plan.total_rounds
    rounds = last if told.events.finish is not None else max((look.round for look in looks), default=0)
    planned = {0, *range(0, rounds + 1, every), *([rounds] if rounds == last else [])}
    if (told_of := {look.round for look in looks}) != planned and looks:
        which = sorted(told_of ^ planned)[0]
        yield f"the plan looks at the models {'after' if which in planned else 'not after'} round {which}, and the events do otherwise"
    steady = isinstance(rule_of(session.training.algorithm), _STEADY)
    evenly = steady and not plan.changing and not plan.absences  # as many bytes in every round of the rule
    records = session.training.data.dataset.validation
    for look in told.events:
        if not isinstance(look, SnapshotEvent):
            continue
        at_an_end, sample = look.round in (0, last), session.monitor.schedule.sample
        share = min(1.0, look.round / plan.rounds)
        if (steady or at_an_end) and look.queries != round(session.cost.queries * share):
            yield f"after round {look.round} the rule has asked {round(session.cost.queries * share)} queries, and the events tell of {look.queries}"
        counted = at_an_end or (evenly and not plan.gossip_rounds)
        if counted and list(look.bytes_sent) != np.rint(session.cost.bytes_sent * share).astype(int).tolist():
            yield f"the bytes that were sent until round {look.round} are not those that the rule sends"
        if records is not None:
            scored = len(records) if look.round == last else min(sample, len(records))
            if look.scored != (scored, len(records)):
                yield f"after round {look.round} models are scored on {scored} of {len(records)} records, and the events tell of {look.scored}"
    start = {0: Look.of(session)}
    yield from counted_problems(told, start)
    yield from measured_problems(told, start, exact=exact)


def counted_problems(told: Told, again: Mapping[int, Look]) -> Iterator[str]:
    """Yield in what looks tell of other queries, bytes or numbers of records than were counted again; no machine differs in that."""
    for look, made in _pairs(told, again):
        for name in _COUNTED:
            if look[name] != made.seen[name]:
                yield _differs(name, look, made)


def measured_problems(told: Told, again: Mapping[int, Look], *, exact: bool) -> Iterator[str]:
    """Yield in what looks tell of other scores or distances than were measured again."""
    for look, made in _pairs(told, again):
        for name in _MEASURED:
            if look[name] != made.seen[name] and (exact or not _is_close(name, look, made)):
                yield _differs(name, look, made)


def _pairs(told: Told, again: Mapping[int, Look]) -> Iterator[tuple[dict[str, Any], Look]]:
    """Yield all looks that events tell of, also where a later one is of the same round, with those that were made again."""
    for event in told.events:
        if isinstance(event, SnapshotEvent) and event.round in again:
            yield events.plain(event), again[event.round]


def _differs(name: str, look: dict[str, Any], made: Look) -> str:
    value, again = short(look[name]), short(made.seen[name])
    return f"{name.replace('_', ' ')} after round {look['round']} is {value} by the events, and {again} made again"


def _is_close(name: str, look: dict[str, Any], made: Look) -> bool:
    kept, again = (np.array(each, dtype=float) for each in (look[name], made.seen[name]))
    absolute = {
        "accuracy": max(REPLAY_TOLERANCE, 1.5 / look["scored"][0] if look["scored"] else 0.0),
        "loss": 1e-6,
        "consensus_distance": REPLAY_TOLERANCE * made.length,
    }[name]
    relative = REPLAY_TOLERANCE if name == "loss" else 0.0
    return kept.shape == again.shape and np.allclose(kept, again, rtol=relative, atol=absolute, equal_nan=True)
