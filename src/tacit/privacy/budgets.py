"""Whether runs fit the budgets of the owners whose data they query, and by which proof.

The first runs on an owner's data, planned together before any query, are admitted if the ε of their plan fits the budget:
that is ordinary composition. Later runs are admitted only by the budget's Rényi filter. So there are two cases, and
which one applies depends on the first plan and, for its spare queries, on crashes, never on an answer: either that plan
passes the filter, and then everything after it is inside the filter; or it does not, and then nothing after it is
admitted, and its own ε is the total.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tacit.errors import BudgetExceeded
from tacit.privacy.accounting import ceil_digits, epsilons
from tacit.privacy.accounts import Ground
from tacit.privacy.event import Event
from tacit.privacy.guarantees import Budget, format_epsilon, per

_MOST_NOISE = 1e4  # times the noise of a run: if that does not fit, nothing does


@dataclass(frozen=True)
class Request:
    """What one owner's data were charged, and what new runs would ask."""

    owner: str
    budget: Budget
    charged: list[Event]
    asked: list[Event]
    unit: str
    """Who is protected."""
    reserved: str = ""
    """Which runs hold unused queries, how to free them, and what else a refused run can do."""


def grounds(requests: Sequence[Request], run: str, queries: int) -> dict[str, Ground]:
    """Return the ground on which each owner's budget admits the runs, or refuse all runs if one budget does not."""
    found: dict[str, Ground] = {}
    rest: dict[Budget, list[Request]] = {}
    for request in requests:
        budget = request.budget
        total = budget.filtered([*request.charged, *request.asked])
        if total <= budget.epsilon:
            found[request.owner] = "filter"
        elif request.charged:
            raise BudgetExceeded(
                f"{queries} more queries by run {run!r}, counted per {request.unit}, would bring {request.owner!r} past its budget of "
                f"{budget}. After the first run the Rényi filter decides; it also holds if runs are planned from the results of others, and counts "
                f"{format_epsilon(budget.filtered(request.charged))} already. {_what_fits(requests, queries)}. Nothing was spent{request.reserved}"
            )
        else:
            rest.setdefault(budget, []).append(request)
    for budget, first in rest.items():
        totals = epsilons(
            [request.asked for request in first],
            delta=budget.delta,
            accountant=budget.accountant,
            adjacency=budget.adjacency,
        )
        for request, total in zip(first, totals, strict=True):
            if total > budget.epsilon:
                raise BudgetExceeded(
                    f"{queries} queries by run {run!r} would bring {request.owner!r} to {per(request.unit, format_epsilon(total))}, past its budget "
                    f"of {budget}. A run that is planned for ε={budget.epsilon:g} or less fits; its noise follows from that. "
                    "Nothing was spent"
                )
            found[request.owner] = "plan"
    return found


def _what_fits(requests: Sequence[Request], queries: int) -> str:
    """Describe how many queries, or how much noise, would pass every filter involved."""
    decided = [request for request in requests if request.charged]

    def fits(change: Callable[[Event], Event]) -> bool:
        return all(
            each.budget.filtered([*each.charged, *map(change, each.asked)]) <= each.budget.epsilon for each in decided
        )

    def fewer(count: int) -> Callable[[Event], Event]:
        # Where groups of records take turns, an event counts turns: fewer than queries, and no fewer than this for fewer queries.
        return lambda event: replace(event, count=-(-count * event.count // queries))

    def louder(factor: float) -> Callable[[Event], Event]:
        return lambda event: replace(event, noise_multiplier=factor * event.noise_multiplier)

    fewest, most = 0, queries  # the first fit, the second do not
    while most - fewest > 1:
        middle = (fewest + most) // 2
        fewest, most = (middle, most) if fits(fewer(middle)) else (fewest, middle)
    if not fits(louder(_MOST_NOISE)):
        return f"{fewest} queries with this noise would fit" if fewest else "No run fits what is left of it"
    low, high = 1.0, _MOST_NOISE
    while high / low > 1.001:
        middle_noise = math.sqrt(low * high)
        low, high = (low, middle_noise) if fits(louder(middle_noise)) else (middle_noise, high)
    sigmas = {event.noise_multiplier for each in decided for event in each.asked}
    noise = (
        f"σ={ceil_digits(high * sigmas.pop()):.4g}" if len(sigmas) == 1 else f"{ceil_digits(high):.4g} times the noise"
    )
    less = f"{fewest} queries with this noise, or " if fewest else ""
    return f"What would fit: {less}all {queries} with {noise}"
