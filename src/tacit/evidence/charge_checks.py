"""Whether the account of a run in the ledger is that of its plan, has every query that the files show, and gives the ε that is stated.

Each function yields a sentence for every disagreement.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from tacit.evidence.run_evidence import RunEvidence, short
from tacit.privacy import Guarantee, Line, epsilon
from tacit.privacy.accounting import ceil_digits
from tacit.privacy.guarantees import format_epsilon
from tacit.privacy.observers import Observer
from tacit.privacy.stated_epsilons import epsilons_against
from tacit.runs.checkpoint import Checkpoint
from tacit.runs.event_types import LinksEvent


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
    follow = [ceil_digits(most * (1 + slack)) for slack in (-run.rounding, 0.0, run.rounding)]
    if claimed_most not in follow:
        yield f"run {name!r} states ε = {claimed_most}; {format_epsilon(most)} follows from the record"
    yield from _check_observers(run, summary.get("epsilon_against"))
    for owner, value, derived in zip(plan.owners, claimed, kept, strict=True):
        if not isinstance(value, int | float) or not math.isclose(value, derived.epsilon, rel_tol=run.rounding):
            yield f"run {name!r} states ε = {short(value)} for {owner}; ε = {format_epsilon(derived.epsilon)} follows from the ledger"


def _check_planned_epsilons(run: RunEvidence, kept: Sequence[Guarantee]) -> Iterator[str]:
    """Yield which owners have a higher ε than the plan guarantees them."""
    plan = run.plan
    if plan.epsilon is None or run.account is None:
        return
    for line, wanted, derived in zip(run.account.lines, plan.epsilon, kept, strict=True):
        # With very many owners most ε are bounds, up to some percent too high; computed alone, ε is exact.
        if derived.epsilon > wanted and (exact := _exact(run, line)) > wanted * (1 + run.rounding):
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
        if claimed[key] not in [ceil_digits(value * (1 + slack)) for slack in (-run.rounding, 0.0, run.rounding)]:
            against = Observer.of_key(key)
            yield f"run {run.name!r} states ε = {short(claimed[key])} against {against}; {format_epsilon(value)} follows from the record"


def _exact(run: RunEvidence, line: Line) -> float:
    plan, account = run.plan, run.account
    assert account is not None
    assert plan.delta is not None
    assert plan.adjacency is not None
    assert plan.accountant is not None
    charged = [line.event(account.charged, plan.planned_observer)]
    return epsilon(charged, delta=plan.delta, adjacency=plan.adjacency, accountant=plan.accountant)
