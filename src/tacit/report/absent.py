"""Who is away when, and what that costs: masks that others share with an absent agent stay in the agents' average.

Everything here is public and follows from the plan. Privacy does not change: own noise and masks were fixed for the whole run, and
agents that may be left out of the masks count as curious.
"""

import math
from collections.abc import Collection, Sequence
from itertools import pairwise

from tacit.privacy.noise_kinds import Masks
from tacit.report.wording import number
from tacit.runs.kept_settings import AbsenceSettings


def describe_absences(absences: Sequence[AbsenceSettings], masks: Masks | None, rounds: int) -> list[str]:
    """Return a sentence for every absence and, if there are masks, one about the noise of the average meanwhile.

    `rounds` are those with queries, counted from 0 as in a run's settings.
    """
    found = [_sentence(each) for each in absences]
    if masks is not None and (noise := _describe_noise(absences, masks, rounds)):
        found.append(noise)
    return found


def noise_of_average(masks: Masks, away: Collection[int], left_out: Collection[int] = ()) -> float:
    """Return the noise of the agents' average while some are away, as a multiple of that with nobody away.

    Nobody shares masks with those who are `left_out`. An agent that is away adds nothing; the masks that the others share with
    it do not cancel.
    """
    there = [agent for agent in range(masks.keys.agents) if agent not in away]
    alone = sum((first in away) != (second in away) for first, second in masks.keys.without(list(left_out)).all_pairs)
    own = sum(masks.own[agent] ** 2 for agent in there)
    return math.sqrt((own + alone * masks.size**2) / sum(each**2 for each in masks.own))


def _sentence(absence: AbsenceSettings) -> str:
    if absence.until is None:
        when = f"from round {absence.first} on, for good"
    elif absence.until == absence.first + 1:
        when = f"in round {absence.first}"
    else:
        when = f"in rounds {absence.first} to {absence.until - 1}"
    words = f"agent {absence.agent} is away {when}"
    return words if absence.rekey is None else f"{words}; masks are shared without it from round {absence.rekey} on"


def _describe_noise(each: Sequence[AbsenceSettings], masks: Masks, rounds: int) -> str:
    changes = {change for absence in each for change in (absence.first, absence.until, absence.rekey) if change}
    starts = sorted(change for change in {0, *changes} if change < rounds)
    affected, most = 0, 0.0
    for start, end in pairwise([*starts, rounds]):
        away = {a.agent for a in each if a.first <= start and (a.until is None or start < a.until)}
        left_out = {a.agent for a in each if a.rekey is not None and a.rekey <= start}
        if away - left_out:
            affected += end - start
            most = max(most, noise_of_average(masks, away, left_out))
    if not affected:
        return ""
    return (
        f"in {affected:,} of {rounds:,} rounds masks shared with absent agents do not cancel, and the noise of the agents’ average is "
        f"{'up to ' if len(each) > 1 else ''}{number(most, 3)} times as large; privacy does not suffer"
    )
