"""Votes of teachers in words: how many labels they gave, and what they cannot know."""

from collections.abc import Sequence

from tacit.privacy.votes import Ballot
from tacit.report.wording import list_agents, span
from tacit.runs.event_types import PlanEvent


def describe_labels(labels: Sequence[int], ballot: Ballot) -> str:
    """Say how many public records each agent's teachers labelled, which everybody may know: labels are released."""
    return f"{span(labels, _whole)} of {ballot.records} public records at each agent, {ballot.answers} at most"


def explain_unknown_classes(plan: PlanEvent) -> str | None:
    """Name agents whose teachers cannot know all classes; None if all do, or if nobody votes.

    A record belongs to one teacher. With fewer records of a class than teachers that must agree, those that know the class never win a vote
    for it. Who holds which classes is read only if that is public.
    """
    ballot = plan.ballot
    if ballot is None:
        return None
    if plan.counts is None:
        return "votes need records of all classes at every agent; who holds which is private, and was not checked"
    needed = ballot.threshold * ballot.teachers
    missing = [sum(count < needed for count in row) for row in plan.counts]
    if not (cut_off := [agent for agent, count in enumerate(missing) if count]):
        return None
    who = "no agent has" if len(cut_off) == plan.agents else f"agents {list_agents(cut_off)} do not have"
    classes = span([missing[agent] for agent in cut_off], _whole)
    return (
        f"{who} enough records of all classes: {classes} of {len(plan.counts[0])} classes are unknown to most teachers there, which label "
        "such records wrongly and with confidence. Votes are for evenly divided data (--split iid); with a class for each agent, use gradients (dsgt)"
    )


def _whole(value: float) -> str:
    return f"{value:,.0f}"
