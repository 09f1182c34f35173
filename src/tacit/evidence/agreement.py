"""Whether a run's settings, plan, events, summary and account in the ledger agree in every field.

Each function yields a sentence for every disagreement. `tacit ledger --verify` uses them on folders, and `tacit verify` on
archives.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

from tacit.algorithms.averaged import rule_of
from tacit.privacy import Account, Guarantee, Ledger, Line, epsilon
from tacit.privacy.accounting import ceil_digits
from tacit.privacy.guarantees import format_epsilon
from tacit.privacy.mechanisms import Masks, Observer
from tacit.privacy.observers import epsilons_against
from tacit.privacy.votes import Ballot
from tacit.registry import rule_line
from tacit.runs.checkpoint import Checkpoint
from tacit.runs.config import RunConfig
from tacit.runs.event_types import CheckEvent, CheckpointEvent, FinishEvent, LinksEvent, PlanEvent, ResumeEvent
from tacit.runs.events import Events
from tacit.runs.python_config import AnyConfig, PythonConfig
from tacit.runs.user_code import is_user_code

ROUNDING = 1e-6
_OF_VOTES = {"steps": "teacher_steps", "lr": "teacher_lr"}  # what a rule calls them
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


@dataclass(frozen=True, kw_only=True, eq=False)
class RunEvidence:
    """Everything that a run's files and the ledger say about it."""

    name: str
    config: AnyConfig
    events: Events
    plan: PlanEvent
    ledger: Ledger
    account: Account | None
    token: str | None
    anchors: tuple[str, ...]
    """Heads of the run's events that were written into the ledger, oldest first."""
    rows: Sequence[str]
    """The hashes of all rows of the ledger."""
    summary: dict[str, Any] | None
    checkpoint: bytes | None
    agreement: dict[str, Any] | None = None
    """What all members of a run between peers agreed on, in the folder of one of them."""
    running: bool = False
    """Whether a process is still working on it, so that some files may be newer than others."""


def check_settings(run: RunEvidence) -> Iterator[str]:
    """Yield where the plan differs from what follows from the settings."""
    config, plan = run.config, run.plan
    agents = 1 if isinstance(config, RunConfig) and config.is_pooled else config.agents
    planned = plan.agents if plan.site is None else len(plan.site.members)
    if planned != agents or (plan.site is not None and plan.agents != 1):
        yield f"the settings have {agents} agents, but the plan has {planned}"
        return
    expected: dict[str, Any] = {
        "fingerprint": config.fingerprint,
        "rounds": config.rounds,
        "gossip_rounds": config.gossip_rounds,
        "exchanges_per_query": config.exchanges_per_query,
        "absences": tuple(each.model_dump(exclude_none=True) for each in config.absences),
        "private": config.private,
        "spare_queries": config.spare_queries if config.private or not isinstance(config, RunConfig) else 0,
        "delta": config.delta if config.private else None,
        "adjacency": config.adjacency if config.private else None,
        "accountant": config.accountant if config.private else None,
        "unit": config.unit if config.private else None,
        "epsilon": _spread(config.epsilon, plan, agents) if config.private else None,
        "lot_sizes": _spread(config.lot_size if plan.votes is None else 1.0, plan, agents),
    }
    if config.source in ("secret", "seeded", "fast"):  # and not an object of the owner
        expected["release"] = config.private and config.source == "secret" and not config.private_diagnostics
    if config.private:
        expected["clips"] = _spread(config.clip if plan.votes is None else 1.0, plan, agents)
    if config.private and config.noise_multiplier is not None and plan.masks is None:
        expected["noise_multipliers"] = _spread(config.noise_multiplier, plan, agents)
    for field, value in expected.items():
        if getattr(plan, field) != value:
            yield f"{field} is {short(getattr(plan, field))} in the plan, but {short(value)} follows from the settings"
    if config.bands not in ("auto", max(1, len(plan.bands))):
        yield f"the noise of the plan has {max(1, len(plan.bands))} bands, but the settings ask for {config.bands}"
    bits = config.rounding_bits if config.noise == "discrete" else None
    if bits != (None if plan.discrete is None else plan.discrete.bits):
        yield f"records are rounded by {short(plan.rounding)} in the plan, but to {bits} bits in the settings"
    yield from _check_masks(config, plan)
    yield from _check_rule(config, plan)
    if isinstance(config, PythonConfig):
        for key in ("model", "loss", "lr", "graph"):
            if key in config.parts and config.parts[key].shown != getattr(config, key):
                yield f"{key} is {short(getattr(config, key))} in the settings, but their facts about it say {short(config.parts[key].shown)}"
    made_up = config.dataset.startswith("synthetic") and plan.dataset.startswith("synthetic")
    if not is_user_code(config.dataset) and plan.dataset != config.dataset and not made_up:
        yield f"dataset is {plan.dataset!r} in the plan, but {config.dataset!r} in the settings"
    for agent, (rate, lot, size) in enumerate(zip(plan.sample_rates, plan.lot_sizes, plan.sizes, strict=True)):
        if plan.votes is not None:
            if rate != 1:
                yield f"agent {agent} samples at rate {rate:g}, but teachers learn from all of its records"
        elif not size or rate != lot / size:
            yield f"agent {agent} samples at rate {rate:g}, which is not its lot of {lot:g} divided by its {size} records"


def _check_rule(config: AnyConfig, plan: PlanEvent) -> Iterator[str]:
    """Yield where the plan has another rule than the settings, or another number of queries."""
    line = rule_line(config.algorithm)
    if not isinstance(config, RunConfig):
        if plan.algorithm != config.algorithm.partition(":")[0]:
            yield f"algorithm is {plan.algorithm!r} in the plan, but {config.algorithm!r} in the settings"
        return
    if line is None:  # a rule of the user's own
        return
    if plan.algorithm != config.algorithm.strip().partition(":")[0]:
        yield f"algorithm is {plan.algorithm!r} in the plan, but {config.algorithm!r} in the settings"
    if line.votes:
        yield from _check_votes(config, plan)
    if line.queries is None:
        return
    each = line.queries if isinstance(line.queries, int) else getattr(rule_of(config.rule()), line.queries)
    asked = config.rounds * each
    if plan.queries - plan.spare_queries != asked:
        yield f"the plan has {plan.queries - plan.spare_queries} queries without spare ones, but the settings need {asked}"


def _check_votes(config: RunConfig, plan: PlanEvent) -> Iterator[str]:
    """Yield where the plan asks teachers something other than the settings say."""
    asked = {
        field.name: getattr(rule_of(config.rule()), _OF_VOTES.get(field.name, field.name)) for field in fields(Ballot)
    }
    if plan.votes != asked:
        yield f"teachers are asked {short(plan.votes)} in the plan, but {short(asked)} in the settings"
    if plan.queries - plan.spare_queries != 1:
        yield f"the plan has {plan.queries - plan.spare_queries} queries without spare ones, but teachers are asked once"


def _check_masks(config: AnyConfig, plan: PlanEvent) -> Iterator[str]:
    """Yield where masks are not those of the settings, or protect less than these say."""
    if plan.masks is None:
        if config.noise == "cancelling" and config.mask_ratio != "auto":
            yield "the plan has no masks, but the settings ask for them"
        return
    if config.noise != "cancelling":
        yield "the plan has masks, but the settings ask for none"
        return
    masks = Masks.of_json(plan.masks)
    if plan.observer != str(config.curious):
        yield f"ε is planned against {short(plan.observer)} in the plan, but against {config.curious} curious agents in the settings"
    if masks.lost != config.lost:
        yield f"{masks.lost} agents may be lost in the plan, but {config.lost} in the settings"
    sharing, neighbours = set(masks.keys.all_pairs), {(min(edge), max(edge)) for edge in plan.edges}
    if (site := plan.site) is not None:  # a site knows only its own links
        neighbours = {(min(site.agent, other), max(site.agent, other)) for other in site.neighbors}
        sharing = {pair for pair in sharing if site.agent in pair} if config.keys == "graph" else sharing
    follows = True  # a graph with another name is rebuilt and compared later
    if isinstance(config.keys, list):
        follows = sharing == {(low, high) for low, high in config.keys}
    elif config.keys == "complete":
        follows = masks.keys.pairs is None
    elif config.keys == "graph":
        follows = sharing <= neighbours if plan.changing else sharing == neighbours
    if not follows:
        yield "the pairs that share masks in the plan are not those of the settings"
    for agent, sigma in enumerate(_spread(config.noise_multiplier, plan, config.agents) or ()):
        protects = plan.mechanisms[agent].noise_against(plan.planned_observer)
        if protects < sigma * (1 - ROUNDING):
            yield f"agent {agent} is protected as by σ = {protects:g}, but the settings ask for {sigma:g}"


def check_record(run: RunEvidence) -> Iterator[str]:
    """Yield where the account of a run in the ledger differs from its plan."""
    plan, account, name = run.plan, run.account, run.name
    if account is None:
        yield f"run {name!r} is not on record"
        return
    expected = {(owner, mechanism, plan.release) for owner, mechanism in zip(plan.owners, plan.mechanisms, strict=True)}
    found = {(line.owner, line.mechanism, line.release) for line in account.lines}
    if found != expected:
        which = sorted({row[0] for row in found ^ expected})
        yield f"run {name!r} has a different mechanism on record than in its plan, for {', '.join(which[:3])}"
    if plan.private and account.allowed != plan.queries:
        yield f"run {name!r} was planned for {plan.queries} queries, but is allowed {account.allowed}"
    if run.token != plan.token:
        yield f"the ledger has a different run of the name {name!r}"
    if any(line.records != plan.dataset for line in account.lines):
        yield f"run {name!r} is on record with a data set other than {plan.dataset!r}"


def check_queries(run: RunEvidence) -> Iterator[str]:
    """Yield where files show more queries than are on record, or an end that the ledger does not have."""
    plan, account, name = run.plan, run.account, run.name
    made, state = (0, "") if account is None else (account.spent, account.state)
    events = run.events
    answered, planned = _count_answered(run), plan.queries - plan.spare_queries
    if not plan.private:
        if answered and not made:
            yield f"run {name!r} has read records without privacy, but this is not on record"
        return
    lost = max((each.queries + events.lost_before[each.round] for each in events.snapshots), default=0)
    if plan.site is not None:  # its queries are numbered by rounds, and it may have missed some
        lost = answered
    if made < max(answered, lost):
        yield f"run {name!r} made {max(answered, lost)} queries, but {made} are on record"
    elif state == "finished" and answered < planned and plan.site is None:
        yield f"run {name!r} is finished in the ledger, but its files show {answered} of {plan.queries} queries"
    elif state == "finished" and made < planned:  # a run that missed rounds stays charged for its whole plan
        yield f"run {name!r} is finished in the ledger with {made} queries, but its plan needs {planned}"
    elif state == "finished" and events.finish is None:
        yield f"run {name!r} is finished in the ledger, but its events have no end"
    elif state == "finished" and made != answered + events.lost_queries:
        yield f"run {name!r} has {made} queries on record, but its files show {answered} answered and {events.lost_queries} lost"
    elif state == "stopped" and plan.site is not None and answered < planned:
        return  # a site that missed rounds stays charged for its whole plan
    elif state not in ("", "finished") and events.finish is not None and run.summary is not None:
        yield f"run {name!r} is finished in its files, but {state} in the ledger"


def _count_answered(run: RunEvidence) -> int:
    """Return how many queries of each agent the files show to be answered."""
    plan, events = run.plan, run.events
    if plan.site is not None:
        played = {event.round for event in events if isinstance(event, LinksEvent) and event.round <= plan.rounds}
        return len(played) * (plan.queries - plan.spare_queries) // plan.rounds
    answered = max((each.queries for each in events.snapshots), default=0)
    if run.checkpoint is not None:
        answered = max(answered, Checkpoint.of(run.checkpoint, f"the checkpoint of run {run.name!r}").answered)
    return answered


def check_epsilons(run: RunEvidence, kept: Sequence[Guarantee]) -> Iterator[str]:
    """Yield where a private run states or guarantees another ε than `kept`, which follow from the ledger, owner by owner."""
    if run.plan.private:
        yield from check_stated_epsilons(run, kept)
        yield from _check_planned_epsilons(run, kept)


def check_stated_epsilons(run: RunEvidence, kept: Sequence[Guarantee]) -> Iterator[str]:
    """Yield where the summary of a private run states another ε than `kept`."""
    name, summary, plan = run.name, run.summary, run.plan
    if summary is None:
        return
    claimed = summary.get("epsilon_per_agent")
    if not isinstance(claimed, list) or len(kept) != len(claimed):
        yield f"run {name!r} does not state ε of all {len(kept)} owners in the ledger"
        return
    most, claimed_most = max(guarantee.epsilon for guarantee in kept), summary.get("epsilon")
    follow = [ceil_digits(most * (1 + slack)) for slack in (-ROUNDING, 0.0, ROUNDING)]
    if claimed_most not in follow:
        yield f"run {name!r} states ε = {claimed_most}; {format_epsilon(most)} follows from the record"
    yield from _check_observers(run, summary.get("epsilon_against"))
    for owner, value, derived in zip(plan.owners, claimed, kept, strict=True):
        if not isinstance(value, int | float) or not math.isclose(value, derived.epsilon, rel_tol=ROUNDING):
            yield f"run {name!r} states ε = {short(value)} for {owner}; ε = {format_epsilon(derived.epsilon)} follows from the ledger"


def _check_planned_epsilons(run: RunEvidence, kept: Sequence[Guarantee]) -> Iterator[str]:
    """Yield which owners have a higher ε than the plan guarantees them."""
    plan = run.plan
    if plan.epsilon is None or run.account is None:
        return
    for line, wanted, derived in zip(run.account.lines, plan.epsilon, kept, strict=True):
        # With very many owners most ε are bounds, up to some percent too high; computed alone, ε is exact.
        if derived.epsilon > wanted and (exact := _exact(run, line)) > wanted * (1 + ROUNDING):
            yield f"{line.owner} was guaranteed ε = {wanted:g}, but {format_epsilon(exact)} follows from the ledger"


def _check_observers(run: RunEvidence, claimed: Any) -> Iterator[str]:
    """Yield where a summary states another ε against some observer than follows from the record."""
    plan, account = run.plan, run.account
    if account is None:
        return
    assert plan.delta is not None
    assert plan.adjacency is not None
    assert plan.accountant is not None
    follow = epsilons_against(
        account,
        delta=plan.delta,
        adjacency=plan.adjacency,
        accountant=plan.accountant,
        planned=plan.planned_observer,
    )
    if not isinstance(claimed, dict) or claimed.keys() != follow.keys():
        yield f"run {run.name!r} does not state ε against {', '.join(follow)} curious agents"
        return
    for key, value in follow.items():
        if claimed[key] not in [ceil_digits(value * (1 + slack)) for slack in (-ROUNDING, 0.0, ROUNDING)]:
            against = Observer.of_key(key)
            yield f"run {run.name!r} states ε = {short(claimed[key])} against {against}; {format_epsilon(value)} follows from the record"


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


def _exact(run: RunEvidence, line: Line) -> float:
    plan, account = run.plan, run.account
    assert account is not None
    assert plan.delta is not None
    assert plan.adjacency is not None
    assert plan.accountant is not None
    charged = [line.event(account.charged, plan.planned_observer)]
    return epsilon(charged, delta=plan.delta, adjacency=plan.adjacency, accountant=plan.accountant)


def _spread(value: float | list[float] | None, plan: PlanEvent, agents: int) -> tuple[float, ...] | None:
    """Return a setting for each agent that the plan is about: all of them, or the one of a site."""
    if value is None:
        return None
    each = tuple(map(float, value)) if isinstance(value, list) else (float(value),) * agents
    return each if plan.site is None else each[plan.site.agent : plan.site.agent + 1]


def short(value: Any) -> str:
    """Return a value as a text of at most 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
