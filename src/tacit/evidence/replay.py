"""The replay of a run from its settings, seeds and public data: its plan, every snapshot, and the models.

The plan is rebuilt for every run whose parts are available, including releases. A seeded run is then replayed. In the same
environment everything must agree to the bit; elsewhere within a stated tolerance, since rounding differs and training amplifies it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.errors import TacitError
from tacit.evidence.outcomes import Verification, conclude
from tacit.evidence.rebuild import Missing, Parts
from tacit.evidence.run_evidence import RunEvidence, short
from tacit.evidence.scores import Models, same_numbers
from tacit.evidence.snapshots import (
    REPLAY_TOLERANCE,
    ReplayedSnapshot,
    check_planned_snapshots,
    compare_counts,
    compare_measurements,
)
from tacit.models.hashing import models_sha256
from tacit.privacy import Fast, Ledger, Seeded
from tacit.runs import events
from tacit.runs.checkpoint import Checkpoint
from tacit.runs.describe import links_of, plan_event
from tacit.runs.environment import code_sha256, machine_of
from tacit.runs.event_types import Machine
from tacit.runs.recorded_parts import the_graph
from tacit.training.session import Session
from tacit.training.settings import Training

NOISE_TOLERANCE = 5e-3
"""How far a calibrated σ may differ, relatively, from that of another version of the accountant."""

_SECRET = "lots and noise were secret, so nobody can replay the run"
_ANEW = "the run was resumed, which restarted the bands of its noise; a replay without a stop cannot repeat that"
_NUDGES = (1e-4, 1e-3)
_MOST_NUMBERS = 5 * 10**8  # in all agents' models
_OF_THE_MACHINE = {"event", "time", "token", "engine", "compiled", "machine"}


def replay_run(run: RunEvidence, theta: Models | None, parts: Parts, *, play: bool) -> list[Verification]:
    """Rebuild the plan of a run and, if `play` and it has seeds, replay it."""
    findings: list[Verification] = []
    try:
        training = _prepare(parts.training(), run, compiled=run.plan.compiled and play)
        with Session(training) as session:
            exact = not differences(run, machine_of(session)) and training.compile == run.plan.compiled
            problems = [*check_plan(run, session), *check_planned_snapshots(run, session, exact)]
            words = "rebuilt from settings and data, it is the same, and has the same snapshots"
            findings.append(conclude("plan", problems, words))
            if not play:
                findings.append(Verification("replay", "not checked", "left out, as requested"))
            elif run.plan.bands and run.events.resumes and not _is_secret(run):
                findings.append(Verification("replay", "not checked", _ANEW))
            elif _is_secret(run):
                findings.append(_try_public_seed(run, training))
            else:
                findings.append(_replay(run, theta, training, session))
    except Missing as error:
        findings += _explain_missing(run, findings, str(error))
    except TacitError as error:
        findings.append(Verification("plan", "fails", f"the run could not be rebuilt from its settings: {error}"))
        findings += _explain_missing(run, findings, "it could not be rebuilt from its settings")
    except Exception as error:  # an error of a compiler or a library here is not the fault of the run
        findings += _explain_missing(run, findings, f"{type(error).__name__}: {str(error)[:200]}")
    return findings


def _explain_missing(run: RunEvidence, before: Sequence[Verification], why: str) -> Iterator[Verification]:
    if not before:
        yield Verification("plan", "not checked", f"it was not rebuilt: {why}")
    yield Verification("replay", "not checked", _SECRET if _is_secret(run) else f"the run was not replayed: {why}")


def _is_secret(run: RunEvidence) -> bool:
    return run.config.private and run.config.source == "secret"


def check_plan(run: RunEvidence, session: Session) -> Iterator[str]:
    """Yield where the plan differs from the one that settings and data give."""
    plan = run.plan
    kept = events.plain(plan)
    made = events.plain(plan_event(run.config, session, the_graph(session.training), plan.token))
    links = [links_of([(one, other) for one, other in each.pop("edges")], each.pop("weights")) for each in (kept, made)]
    if links[0] != links[1]:
        yield "the links in the plan are not those of the graph in the settings"
    calibrated = plan.epsilon is not None or plan.masks is not None
    if calibrated and _are_near(kept["noise_multipliers"], made["noise_multipliers"]):
        del kept["noise_multipliers"]
    if calibrated and _are_near_masks(kept["masks"], made["masks"]):
        del kept["masks"]
    if _are_near(kept["bands"], made["bands"]):
        del kept["bands"]
    for field, value in kept.items():
        if field not in _OF_THE_MACHINE and made[field] != value:
            yield f"{field} is {short(value)} in the plan, but {short(made[field])} follows from settings and data"


def _are_near(one: Sequence[float], other: Sequence[float]) -> bool:
    return len(one) == len(other) and np.allclose(one, other, rtol=NOISE_TOLERANCE, atol=0)


def _are_near_masks(one: dict[str, Any] | None, other: dict[str, Any] | None) -> bool:
    """Say whether masks are shared by the same pairs and are, like own noise, nearly of the same size."""
    if one is None or other is None:
        return one is other
    same = all(one[name] == other[name] for name in ("agents", "keys", "lost"))
    return same and _are_near([*one["own"], one["size"]], [*other["own"], other["size"]])


def _prepare(training: Training, run: RunEvidence, *, compiled: bool) -> Training:
    if str(training.device) != "cpu":
        raise Missing(f"it ran on {str(training.device)[:40]!r}, but replays run on the CPU")
    if run.plan.agents * run.plan.params > _MOST_NUMBERS:
        raise Missing(f"{run.plan.agents} models of {run.plan.params} parameters are too large to replay")
    return replace(training, name=run.name, ledger=Ledger(), compile=compiled, taps=())


def _replay(run: RunEvidence, theta: Models | None, training: Training, session: Session) -> Verification:
    """Play a seeded run again, and hold every snapshot, the checkpoint and the models against those that were kept."""
    other, finished = differences(run, machine_of(session)), run.events.finish is not None
    last = run.plan.total_rounds if finished else max((snapshot.round for snapshot in run.events.snapshots), default=0)
    saved = None if run.checkpoint is None or other else Checkpoint.of(run.checkpoint, "the checkpoint")
    problems: list[str] = []
    snapshots = {0: ReplayedSnapshot.of(session)}
    while session.round < last:
        session.advance()
        if session.monitor.histories[0][-1].round == session.round:
            snapshots[session.round] = ReplayedSnapshot.of(session)
        if saved is not None and int(saved.tensors["round"]) == session.round:
            problems += _compare_state(saved, session)
    problems += compare_counts(run, snapshots)
    again = session.results()[0].theta.detach().cpu()
    moved = [*_compare_models(theta, again, other), *compare_measurements(run, snapshots, exact=not other)]
    if other and moved and not problems and (apart := _measure_drift(training, last, again)) is not None:
        words = f"in the replay, {moved[0]}. This is inconclusive, since {other} differs and this run amplifies rounding: from a start "
        return Verification(
            "replay", "not checked", f"{words}that is slightly different, models end {apart:.2g} of their length apart"
        )
    what = f"{'the same models and ' if theta is not None else ''}the same {len(snapshots)} snapshots"
    how = "to the bit" if not other else f"within {REPLAY_TOLERANCE:g} but not to the bit, since {other} differs"
    until = "" if finished else f" up to round {last}"
    failed = (
        [f"{'in the replay' if other else 'replayed in the same environment'}, {moved[0]}", *moved[1:]] if moved else []
    )
    return conclude("replay", [*problems, *failed], f"replayed from its seeds{until}, it gives {what} {how}")


def _compare_models(theta: Models | None, again: Tensor, other: str) -> Iterator[str]:
    if theta is None or models_sha256(again) == models_sha256(theta):
        return
    apart = _apart(theta, again)
    if not other:
        yield "the models are different"
    elif not apart <= REPLAY_TOLERANCE:
        yield f"models are {apart:.2g} of their length from the recorded ones, but at most {REPLAY_TOLERANCE:g} is expected"


def _measure_drift(training: Training, rounds: int, again: Tensor) -> float | None:
    """Return how far from `again` a run ends that starts slightly differently, if that is far: then rounding decides where it ends."""
    for nudge in _NUDGES:
        with Session(replace(training, ledger=Ledger())) as session:
            state = session.state_dict()
            for name, tensor in state.items():
                if name.startswith("state") and tensor.is_floating_point():
                    state[name] = tensor * (1 + nudge)
            session.load_state_dict(state)
            while session.round < rounds:
                session.advance()
            apart = _apart(again, session.results()[0].theta.detach().cpu())
        if not apart <= REPLAY_TOLERANCE / 2:
            return apart
    return None


def _compare_state(saved: Checkpoint, session: Session) -> Iterator[str]:
    clocks, now = ("seconds", "evaluation_seconds"), session.state_dict()
    same = now.keys() == saved.tensors.keys() and all(
        same_numbers(tensor, saved.tensors[name]) for name, tensor in now.items() if name not in clocks
    )
    if not same:
        yield f"in the replay, the state after round {session.round} is not the one in the checkpoint"


def _try_public_seed(run: RunEvidence, training: Training) -> Verification:
    """Test whether lots and noise of a release come from the run's public seed, in which case it is not a release."""
    later = next((snapshot for snapshot in run.events.snapshots if snapshot.round), None)
    if later is None:
        return Verification("replay", "not checked", _SECRET)
    for source in (Seeded(run.config.seed), Fast(run.config.seed)):
        with Session(replace(training, sources=source, ledger=Ledger())) as session:
            start, other = ReplayedSnapshot.of(session).seen, differences(run, machine_of(session))
            if other:
                return Verification(
                    "replay",
                    "not checked",
                    f"{_SECRET}; whether they come from the public seed was not tested, since {other} differs",
                )
            while session.round < later.round:
                session.advance()
            seen, kept = ReplayedSnapshot.of(session).seen, events.plain(later)
        measures = ("loss", "consensus_distance")
        moved = any(seen[name] != start[name] for name in measures)
        if moved and all(seen[name] == kept[name] for name in measures):
            words = (
                f"with lots and noise of the public seed {run.config.seed}, the snapshot after round {later.round} is the same to the bit: they were "
                "not secret, and this is not a release"
            )
            return Verification("replay", "fails", words)
    return Verification("replay", "not checked", f"{_SECRET}; they do not come from the run's public seed")


def differences(run: RunEvidence, here: Machine) -> str:
    """Say how the machines that a run was played on differ from this one; empty if the environment is the same."""
    played = [run.plan.machine, *(resume.machine for resume in run.events.resumes)]
    names = ("processor", "torch", "threads", "blocks", "device", "code")
    return ", ".join(name for name in names if any(getattr(each, name) != getattr(here, name) for each in played))


def _apart(theta: Tensor, again: Tensor) -> float:
    """Return the largest distance between an agent's two models, relative to the length of the recorded one."""
    if theta.shape != again.shape:
        return math.inf
    lengths = torch.linalg.vector_norm(theta.double(), dim=1).clamp_min(1e-12)
    return float((torch.linalg.vector_norm(theta.double() - again.double(), dim=1) / lengths).max())


def check_code(run: RunEvidence, files: dict[str, str], listed: str) -> Verification:
    """Check whether the code that ran is the code that was listed, and the code that verifies."""
    played = {run.plan.machine.code, *(resume.machine.code for resume in run.events.resumes)}
    if played != {listed}:
        return Verification("code", "not checked", "the run used different code than is listed in the archive")
    if listed == code_sha256():
        return Verification("code", "holds", f"the run used the same code as this verification ({len(files)} files)")
    return Verification(
        "code",
        "not checked",
        f"the run used different code than this verification; its {len(files)} files are listed by hash",
    )
