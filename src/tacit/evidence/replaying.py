"""A run made again from its settings, seeds and public data: what was planned, every look at the models, and the models.

The plan is made again for every run whose parts are at hand, releases too. A seeded run is then played again. Where the fingerprint is
the same, everything must be the same to the bit; elsewhere within a stated tolerance, since rounding differs and training carries it on.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.algorithms import DSGD, DSGT, SGD, DiNNO, Local
from tacit.algorithms.averaged import rule_of
from tacit.errors import TacitError
from tacit.evidence.agreement import Told, short
from tacit.evidence.findings import Finding, found
from tacit.evidence.rescoring import Models
from tacit.evidence.shipped import Missing, Parts
from tacit.models.hashing import models_sha256
from tacit.privacy import Fast, Ledger, Seeded
from tacit.runs import events
from tacit.runs.checkpoint import Checkpoint
from tacit.runs.describe import links_of, plan_event, snapshot_event
from tacit.runs.machines import code_sha256, machine_of
from tacit.runs.parts import the_graph
from tacit.session import Session
from tacit.settings import Training

REPLAY_TOLERANCE = 1e-2
"""On another fingerprint: how far models may be from those that were kept, and looks from those that were told, relative to these."""
NOISE_TOLERANCE = 5e-3
"""How far σ, if it was calibrated, may be from what another version of the accountant gives, relative to it."""

_OF_THE_MACHINE = {"event", "time", "token", "engine", "compiled", "machine"}
_OF_A_CLOCK = ("event", "time", "seconds")
_STEADY = (SGD, Local, DSGD, DSGT, DiNNO)  # these ask and send the same in every round


def made_again(told: Told, theta: Models | None, parts: Parts, *, play: bool) -> Iterator[Finding]:
    """Make the plan again and, if it is to be played and has seeds, play it."""
    secret = told.config.private and told.config.source == "secret"
    unheard = "lots and noise were secret, so that nobody can play the run again"
    try:
        training = _again(parts.training(), told, compiled=told.plan.compiled and play)
        with Session(training) as session:
            exact = not differences(told, machine_of(session)) and training.compile == told.plan.compiled
            problems = [*plan_problems(told, session), *look_problems(told, session, exact)]
            yield found(
                "plan", problems, "made again from settings and data, it is the same, and looks are those that it plans"
            )
            if not play:
                yield Finding("replay", "not checked", "left out, as asked")
            elif secret:
                yield _secret(told, training, unheard)
            else:
                yield _played(told, theta, session)
    except Missing as error:
        yield Finding("plan", "not checked", f"it was not made again: {error}")
        yield Finding("replay", "not checked", unheard if secret else f"the run was not played again: {error}")
    except TacitError as error:
        yield Finding("plan", "fails", f"the settings could not be made into a run again: {error}")
    except Exception as error:  # whatever a compiler or a library says here is no fault of the run
        words = f"the run could not be made again here: {type(error).__name__}: {str(error)[:200]}"
        yield Finding("replay", "not checked", words)


def plan_problems(told: Told, session: Session) -> Iterator[str]:
    """Yield in what the plan differs from the one that settings and data give."""
    plan = told.plan
    kept = events.plain(plan)
    made = events.plain(plan_event(told.config, session, the_graph(session.training), plan.token))
    links = [links_of([(one, other) for one, other in each.pop("edges")], each.pop("weights")) for each in (kept, made)]
    if links[0] != links[1]:
        yield "who talks to whom in the plan is not what the graph of the settings gives"
    if plan.epsilon is not None and np.allclose(
        kept["noise_multipliers"], made["noise_multipliers"], rtol=NOISE_TOLERANCE, atol=0
    ):
        del kept["noise_multipliers"]
    for field, value in kept.items():
        if field not in _OF_THE_MACHINE and made[field] != value:
            yield f"{field} is {short(value)} in the plan, and {short(made[field])} follows from settings and data"


def look_problems(told: Told, session: Session, exact: bool) -> Iterator[str]:
    """Yield in what looks are not as they were planned: when, at how many records, after how many queries and bytes."""
    plan, looks, every = told.plan, told.events.snapshots, session.watch.looks.every
    rounds = plan.rounds if told.events.finish is not None else max((look.round for look in looks), default=0)
    planned = {0, *range(0, rounds + 1, every), *([rounds] if rounds == plan.rounds else [])}
    if (told_of := {look.round for look in looks}) != planned and looks:
        which = sorted(told_of ^ planned)[0]
        yield f"the plan looks at the models {'after' if which in planned else 'not after'} round {which}, and the events do otherwise"
    steady = isinstance(rule_of(session.training.algorithm), _STEADY) and not plan.changing
    records = session.training.data.data.validation
    for look in told.events:
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
    yield from _differing(told, {0: _Look.of(session)}, exact)


def _again(training: Training, told: Told, *, compiled: bool) -> Training:
    if str(training.device) != "cpu":
        raise Missing(f"it was played on {str(training.device)[:40]!r}, and here is a processor")
    return replace(training, name=told.name, ledger=Ledger(), compile=compiled, taps=())


@dataclass(frozen=True)
class _Look:
    """What the last look of a session saw, as an event has it, and how long the models are, on average."""

    seen: dict[str, Any]
    length: float

    @staticmethod
    def of(session: Session) -> "_Look":
        seen = events.plain(snapshot_event(session.watch.histories[0][-1], 0.0))
        return _Look(seen, float(torch.linalg.vector_norm(session.state.theta.double(), dim=1).mean()))


def _played(told: Told, theta: Models | None, session: Session) -> Finding:
    """Play a seeded run again, and hold every look, the checkpoint and the models against those that were kept."""
    plan, looks = told.plan, {0: _Look.of(session)}
    last = (
        plan.rounds
        if told.events.finish is not None
        else max((look.round for look in told.events.snapshots), default=0)
    )
    other = differences(told, machine_of(session))
    saved = None if told.checkpoint is None else Checkpoint.of(told.checkpoint, "the checkpoint")
    problems: list[str] = []
    while session.round < last:
        session.advance()
        if session.watch.histories[0][-1].round == session.round:
            looks[session.round] = _Look.of(session)
        if saved is not None and not other and int(saved.tensors["round"]) == session.round:
            problems += _state_problems(saved, session)
    problems += _differing(told, looks, exact=not other)
    count, bit = len(looks), "to the bit" if not other else f"within {REPLAY_TOLERANCE:g} of it"
    if theta is None or told.events.finish is None:
        words = f"played again from its seeds until round {last}, it gives the same {count} looks {bit}; there are no final models yet"
        return found("replay", problems, words)
    again = session.results()[0].theta.detach().cpu()
    if models_sha256(again) == models_sha256(theta):
        words = f"played again from its seeds, it gives the same models to the bit, and the same {count} looks {bit}"
    elif not other:
        problems.insert(0, "played again on the same fingerprint, it gives other models")
        words = ""
    else:
        apart = _apart(theta, again)
        words = f"played again, models are {apart:.2g} of their length apart, and all {count} looks {bit}; to the bit is not expected, since {other} differs"
        if not apart <= REPLAY_TOLERANCE:
            problems.insert(
                0,
                f"played again, models are {apart:.2g} of their length apart; to the bit is not expected, since {other} differs, but at most {REPLAY_TOLERANCE:g} is",
            )
    return found("replay", problems, words)


def _differing(told: Told, again: dict[int, _Look], exact: bool) -> Iterator[str]:
    """Yield in what looks that events tell of, any of them, differ from those that were made again."""
    for look in told.events:
        if isinstance(look, events.Snapshot) and look.round in again:
            kept, made = events.plain(look), again[look.round]
            for name, value in kept.items():
                if name not in _OF_A_CLOCK and not _agree(name, value, made, kept["scored"], exact):
                    yield (
                        f"{name.replace('_', ' ')} after round {look.round} is {short(value)} by the events, and "
                        f"{short(made.seen[name])} played again"
                    )


def _agree(name: str, value: Any, made: _Look, scored: list[int] | None, exact: bool) -> bool:
    again = made.seen[name]
    if exact or name not in ("accuracy", "loss", "consensus_distance") or value is None or again is None:
        return bool(value == again)
    absolute = {
        "accuracy": max(REPLAY_TOLERANCE, 1.5 / scored[0] if scored else 0.0),
        "loss": 1e-6,
        "consensus_distance": REPLAY_TOLERANCE * made.length,
    }[name]
    relative = REPLAY_TOLERANCE if name == "loss" else 0.0
    one, other = (np.array(each, dtype=float) for each in (value, again))
    return one.shape == other.shape and np.allclose(one, other, rtol=relative, atol=absolute, equal_nan=True)


def _state_problems(saved: Checkpoint, session: Session) -> Iterator[str]:
    clocks = ("seconds", "evaluation_seconds")
    now = session.state_dict()
    same = now.keys() == saved.tensors.keys() and all(
        torch.equal(tensor, saved.tensors[name]) or _are_nan(tensor, saved.tensors[name])
        for name, tensor in now.items()
        if name not in clocks
    )
    if not same:
        yield f"played again, the state after round {session.round} is not the one in the checkpoint"


def _are_nan(one: Tensor, other: Tensor) -> bool:
    """Say whether two tensors are equal where they are numbers, and otherwise in the same places none."""
    return one.shape == other.shape and bool(((one == other) | ((one != one) & (other != other))).all())


def _secret(told: Told, training: Training, unheard: str) -> Finding:
    """Try whether lots and noise of a release come from the run's public seed: then it is none."""
    later = next((look for look in told.events.snapshots if look.round), None)
    if later is None:
        return Finding("replay", "not checked", unheard)
    for source in (Seeded(told.config.seed), Fast(told.config.seed)):
        with Session(replace(training, sources=source, ledger=Ledger())) as session:
            start, other = _Look.of(session).seen, differences(told, machine_of(session))
            if other:
                return Finding(
                    "replay",
                    "not checked",
                    f"{unheard}; whether they come from a known seed was not tried, since {other} differs",
                )
            while session.round < later.round:
                session.advance()
            seen, kept = _Look.of(session).seen, events.plain(later)
        measures = ("loss", "consensus_distance")
        moved = any(seen[name] != start[name] for name in measures)
        if moved and all(seen[name] == kept[name] for name in measures):
            words = (
                f"with lots and noise of the public seed {told.config.seed}, the look after round {later.round} is the same to the bit: they were "
                "not secret, and this is no release"
            )
            return Finding("replay", "fails", words)
    return Finding("replay", "not checked", f"{unheard}; they do not come from the run's public seed")


def differences(told: Told, here: events.Machine) -> str:
    """Say in what the machines that a run was played on differ from this one; nothing where the fingerprint is the same."""
    played = [told.plan.machine, *(resume.machine for resume in told.events.resumes)]
    names = ("processor", "torch", "threads", "blocks", "device", "code")
    return ", ".join(name for name in names if any(getattr(each, name) != getattr(here, name) for each in played))


def _apart(theta: Tensor, again: Tensor) -> float:
    """Return the largest distance of an agent's two models, relative to the length of the one that was kept."""
    if theta.shape != again.shape:
        return math.inf
    lengths = torch.linalg.vector_norm(theta.double(), dim=1).clamp_min(1e-12)
    return float((torch.linalg.vector_norm(theta.double() - again.double(), dim=1) / lengths).max())


def code_finding(told: Told, files: dict[str, str], listed: str) -> Finding:
    """Say whether the code that played a run is the code that was listed, and the code that verifies."""
    played = {told.plan.machine.code, *(resume.machine.code for resume in told.events.resumes)}
    if played != {listed}:
        return Finding("code", "not checked", "the run was played by other code than the one that was exported with it")
    if listed == code_sha256():
        return Finding("code", "holds", f"the run was played by this very code ({len(files)} files)")
    return Finding(
        "code", "not checked", f"the run was played by other code than this; its {len(files)} files are listed by hash"
    )
