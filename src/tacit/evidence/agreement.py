"""Whether a run's settings, plan, events, summary and account in the ledger agree in every field.

Each function yields a sentence for every disagreement. They serve `tacit ledger --verify`, which looks at folders, and
`tacit verify`, which looks at what an auditor was given.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tacit.privacy import Account, Guarantee, Ledger, Line, epsilon
from tacit.privacy.accounting import ceil_digits
from tacit.privacy.guarantees import format_epsilon
from tacit.privacy.mechanisms import EVERYBODY
from tacit.runs.checkpoint import Checkpoint
from tacit.runs.config import RunConfig
from tacit.runs.events import Check, CheckpointSaved, Events, Finish, Plan, Resume
from tacit.runs.naming import is_own
from tacit.runs.python_config import AnyConfig, PythonConfig

ROUNDING = 1e-6
# Held against something else, or of a clock: nobody can say that these are right.
_ALSO_IN_SUMMARIES = {
    "accuracy_mean",
    "accuracy_min",
    "accuracy_max",
    "epsilon",
    "epsilon_per_agent",
    "exposed",
    "heads",
    "evaluation_seconds",
    "samples_per_second",
}
_QUERIES_A_ROUND = {"sgd": 1, "local": 1, "dsgd": 1, "dsgt": 1}


@dataclass(frozen=True, kw_only=True, eq=False)
class RunEvidence:
    """All that a run's files and the ledger tell of it."""

    name: str
    config: AnyConfig
    events: Events
    plan: Plan
    ledger: Ledger
    account: Account | None
    token: str | None
    anchors: tuple[str, ...]
    """Heads of the run's events that the ledger has taken in, the oldest first."""
    rows: Sequence[str]
    """The hashes of all rows of the ledger."""
    summary: dict[str, Any] | None
    checkpoint: bytes | None
    running: bool = False
    """Whether a process is at work on it, so that files may be ahead of each other."""


def check_settings(run: RunEvidence) -> Iterator[str]:
    """Yield in what the plan differs from what follows from the settings."""
    config, plan = run.config, run.plan
    agents = 1 if config.algorithm == "sgd" else config.agents
    if plan.agents != agents:
        yield f"the settings are for {agents} agents and the plan for {plan.agents}"
        return
    expected: dict[str, Any] = {
        "fingerprint": config.fingerprint,
        "rounds": config.rounds,
        "private": config.private,
        "spare_queries": config.spare_queries if config.private or not isinstance(config, RunConfig) else 0,
        "delta": config.delta if config.private else None,
        "adjacency": config.adjacency if config.private else None,
        "accountant": config.accountant if config.private else None,
        "unit": config.unit if config.private else None,
        "epsilon": _spread(config.epsilon, agents) if config.private else None,
        "lot_sizes": _spread(config.lot_size, agents),
    }
    if config.source in ("secret", "seeded", "fast"):  # and not an object of the owner's
        expected["release"] = config.private and config.source == "secret" and not config.private_diagnostics
    if config.private:
        expected["clips"] = _spread(config.clip, agents)
    if config.private and config.noise_multiplier is not None:
        expected["noise_multipliers"] = _spread(config.noise_multiplier, agents)
    for field, value in expected.items():
        if getattr(plan, field) != value:
            yield f"{field} is {short(getattr(plan, field))} in the plan, and {short(value)} follows from the settings"
    known = not isinstance(config, RunConfig) or config.algorithm in (*_QUERIES_A_ROUND, "dinno")
    if known and plan.algorithm.lower() != config.algorithm.lower():  # a rule by name is called as its class is
        yield f"algorithm is {plan.algorithm!r} in the plan and {config.algorithm!r} in the settings"
    if known and isinstance(config, RunConfig):
        asked = config.rounds * _QUERIES_A_ROUND.get(config.algorithm, config.inner_steps)
        if plan.queries - plan.spare_queries != asked:
            yield f"the plan has {plan.queries - plan.spare_queries} queries beside spare ones, and the settings make {asked}"
    if isinstance(config, PythonConfig):
        for key in ("model", "loss", "lr", "graph"):
            if key in config.parts and config.parts[key].shown != getattr(config, key):
                yield f"{key} is {short(getattr(config, key))} in the settings, which keep {short(config.parts[key].shown)} of it"
    made_up = config.dataset.startswith("synthetic") and plan.dataset.startswith("synthetic")
    if not is_own(config.dataset) and plan.dataset != config.dataset and not made_up:
        yield f"dataset is {plan.dataset!r} in the plan and {config.dataset!r} in the settings"
    for agent, (rate, lot, size) in enumerate(zip(plan.sample_rates, plan.lot_sizes, plan.sizes, strict=True)):
        if not size or rate != lot / size:
            yield f"agent {agent} samples at {rate:g}, and its lot of {lot:g} out of {size} records is not that"


def check_record(run: RunEvidence) -> Iterator[str]:
    """Yield in what the ledger holds a run otherwise than it was planned."""
    plan, account, name = run.plan, run.account, run.name
    if account is None:
        yield f"run {name!r} is not on record"
        return
    expected = {(owner, mechanism, plan.release) for owner, mechanism in zip(plan.owners, plan.mechanisms, strict=True)}
    found = {(line.owner, line.mechanism, line.release) for line in account.lines}
    if found != expected:
        which = sorted({row[0] for row in found ^ expected})
        yield f"run {name!r} was planned with another mechanism than is on record, for {', '.join(which[:3])}"
    if plan.private and account.allowed != plan.queries:
        yield f"run {name!r} was planned for {plan.queries} queries and is allowed {account.allowed}"
    if run.token != plan.token:
        yield f"the ledger knows another run by the name {name!r}"
    if any(line.records != plan.dataset for line in account.lines):
        yield f"run {name!r} is on record for other records than {plan.dataset!r}"


def check_queries(run: RunEvidence) -> Iterator[str]:
    """Yield where files tell of more queries than are on record, or of an end that did not come."""
    plan, account, name = run.plan, run.account, run.name
    made = 0 if account is None else account.spent
    events = run.events
    answered = max((look.queries for look in events.snapshots), default=0)
    if run.checkpoint is not None:
        answered = max(answered, Checkpoint.of(run.checkpoint, f"the checkpoint of run {name!r}").answered)
    if not plan.private:
        if answered and not made:
            yield f"run {name!r} has read records without privacy, which is not on record"
        return
    lost = max((look.queries + events.lost_before[look.round] for look in events.snapshots), default=0)
    if made < max(answered, lost):
        yield f"run {name!r} was answered {max(answered, lost)} queries; {made} are on record"
    elif account is not None and account.state == "finished" and answered < plan.queries - plan.spare_queries:
        yield f"run {name!r} is finished by the record; its files tell of {answered} of {plan.queries} queries"
    elif account is not None and account.state == "finished" and events.finish is None:
        yield f"run {name!r} is finished by the record, and its events tell of no end"
    elif account is not None and account.state == "finished" and made != answered + events.lost_queries:
        yield f"run {name!r} has {made} queries on record; its files tell of {answered} and of {events.lost_queries} that were lost"
    elif account is not None and events.finish is not None and account.state != "finished" and run.summary is not None:
        yield f"run {name!r} is finished by its files and {account.state} by the record"


def check_epsilons(run: RunEvidence, kept: Sequence[Guarantee]) -> Iterator[str]:
    """Yield where a finished private run states another ε than `kept`, which follow from the record, owner by owner."""
    name, summary, plan = run.name, run.summary, run.plan
    if not plan.private:
        return
    if summary is not None:
        claimed = summary.get("epsilon_per_agent")
        if not isinstance(claimed, list) or len(kept) != len(claimed):
            yield f"run {name!r} does not state ε of all {len(kept)} owners that are on record"
            return
        most, told_most = max(guarantee.epsilon for guarantee in kept), summary.get("epsilon")
        follow = [ceil_digits(most * (1 + slack)) for slack in (-ROUNDING, 0.0, ROUNDING)]
        if told_most not in follow:
            yield f"run {name!r} states ε = {told_most}; {format_epsilon(most)} follows from the record"
        for owner, value, derived in zip(plan.owners, claimed, kept, strict=True):
            if not isinstance(value, int | float) or not math.isclose(value, derived.epsilon, rel_tol=ROUNDING):
                yield f"run {name!r} states ε = {short(value)} for {owner}; {format_epsilon(derived.epsilon)} follows from the record"
    if plan.epsilon is None or run.account is None:
        return
    for line, wanted, derived in zip(run.account.lines, plan.epsilon, kept, strict=True):
        # Of very many owners, most ε are bounds within some percent; one by itself is not.
        if derived.epsilon > wanted and (exact := _exact(run, line)) > wanted * (1 + ROUNDING):
            yield f"{line.owner} was promised ε = {wanted:g}; {format_epsilon(exact)} follows from the record"


def check_summary(run: RunEvidence) -> Iterator[str]:
    """Yield where a summary differs from the last of the events, or states a promise that the plan does not."""
    summary, plan, events = run.summary, run.plan, run.events
    if summary is None:
        return
    if events.finish is None or not events.snapshots:
        yield f"run {run.name!r} has a summary, and its events tell of no end"
        return
    last = events.snapshots[-1]
    scores = None if last.accuracy is None else [value if math.isfinite(value) else None for value in last.accuracy]
    expected: dict[str, Any] = {
        "accuracy_per_agent": scores,
        "rounds": last.round,
        "bytes_sent": sum(last.bytes_sent),
        "release": plan.release,
        "delta": plan.delta,
        "adjacency": plan.adjacency,
        "accountant": plan.accountant,
        "observer": str(EVERYBODY) if plan.private else None,
        "unit": plan.protected if plan.private else None,
        "algorithm": run.config.algorithm,
        "dataset": run.config.dataset,
        "consensus_distance": last.consensus_distance if math.isfinite(last.consensus_distance) else None,
        "models_sha256": events.finish.models_sha256,
        "seconds": events.finish.seconds,
    }
    if strange := sorted(set(summary) - set(expected) - _ALSO_IN_SUMMARIES):
        yield f"the summary has a field {short(strange[0])}, which summaries do not have"
    for field, value in expected.items():
        if summary.get(field) != value:
            yield f"{field} is {short(summary.get(field))} in the summary, and {short(value)} by the events"
    if last.accuracy and all(map(math.isfinite, last.accuracy)):
        mean, least, most = sum(last.accuracy) / len(last.accuracy), min(last.accuracy), max(last.accuracy)
        for field, value in (("accuracy_mean", mean), ("accuracy_min", least), ("accuracy_max", most)):
            claimed = summary.get(field)
            if not isinstance(claimed, int | float) or not math.isclose(claimed, value, abs_tol=1e-9):
                yield f"{field} is {short(claimed)} in the summary, and {value:.6g} by the events"
    speed = last.queries * sum(plan.lot_sizes) / events.finish.seconds if events.finish.seconds else math.nan
    if not _is_close(summary.get("samples_per_second"), speed):
        yield f"samples_per_second is {short(summary.get('samples_per_second'))} in the summary, and {speed:.6g} by the events"
    if plan.private and summary.get("exposed") is not True and (reader := _reader_before(run)) is not None:
        yield f"the summary does not say that run {reader!r} had read these records without privacy"


def _is_close(value: Any, expected: float) -> bool:
    if not math.isfinite(expected):
        return True
    return isinstance(value, int | float) and math.isclose(value, expected, rel_tol=ROUNDING)


def _reader_before(run: RunEvidence) -> str | None:
    """Return a run without privacy on the same records that was opened before this one, if there is one."""
    names = [account.run for account in run.ledger.accounts]
    if run.name not in names:
        return None
    before = set(names[: names.index(run.name)])
    found = run.ledger.readers_without_privacy(run.plan.owners).values()
    return next((run for readers in found for run in readers if run in before), None)


def check_heads(run: RunEvidence) -> Iterator[str]:
    """Yield where the ends of chains that were written down are not in the chains."""
    events, name = run.events, run.name
    known = set(events.hashes)
    if missing := [anchor for anchor in run.anchors if anchor not in known]:
        yield f"the ledger has a head {missing[0][:16]}… of the events of run {name!r} that they do not lead to"
    if events.finish is not None and events.played_head not in run.anchors and run.summary is not None:
        yield f"the ledger does not have the head of the finished events of run {name!r}"
    for line, (event, follows) in enumerate([] if run.running else _followed(events), 1):
        # A run that was killed in between goes on with a resume, and the last event may have no time for it.
        due = isinstance(event, Plan | CheckpointSaved | Finish) and follows is not None
        if due and not isinstance(follows, Resume) and events.hashes[line - 1] not in run.anchors:
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
        yield f"the head of the events that the summary of run {name!r} states is not theirs"


def _followed(events: Events) -> Iterator[tuple[Any, Any]]:
    """Yield every event with the one after it, checks of the settings aside: these may come at any time."""
    follows, pairs = None, []
    for event in reversed(list(events)):
        pairs.append((event, follows))
        follows = follows if isinstance(event, Check) else event
    return reversed(pairs)


def check_checkpoint(run: RunEvidence) -> Iterator[str]:
    """Yield where checkpoints were not saved when they were due, or the last is not the one of which the events tell."""
    saved, every, end = run.events.checkpoint, run.config.checkpoint_every, run.events.finish
    if run.running:
        return
    due = range(every, run.events.round, every) if end is None else {*range(every, end.round, every), end.round}
    if missing := sorted(set(due) - {event.round for event in run.events if isinstance(event, CheckpointSaved)}):
        yield f"run {run.name!r} saves a checkpoint after round {missing[0]}, and no event tells of it"
    if run.checkpoint is None:
        if saved is not None:
            yield f"run {run.name!r} has saved a checkpoint at round {saved.round}, which is gone"
        return
    held = Checkpoint.of(run.checkpoint, f"the checkpoint of run {run.name!r}")
    # Killed right after a checkpoint, a run has one of which no event tells yet.
    newer = int(held.tensors["round"]) > (-1 if saved is None else saved.round) and run.events.finish is None
    known = saved is not None and hashlib.sha256(run.checkpoint).hexdigest() == saved.sha256
    if not (known or newer) or (held.token, held.fingerprint) != (run.plan.token, run.plan.fingerprint):
        yield f"the checkpoint of run {run.name!r} is not the one that it saved"


def _exact(run: RunEvidence, line: Line) -> float:
    plan, account = run.plan, run.account
    assert account is not None
    assert plan.delta is not None
    assert plan.adjacency is not None
    assert plan.accountant is not None
    charged = [line.event(account.charged)]
    return epsilon(charged, delta=plan.delta, adjacency=plan.adjacency, accountant=plan.accountant)


def _spread(value: float | list[float] | None, agents: int) -> tuple[float, ...] | None:
    if value is None:
        return None
    return tuple(map(float, value)) if isinstance(value, list) else (float(value),) * agents


def short(value: Any) -> str:
    """Return a value as a text of at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
