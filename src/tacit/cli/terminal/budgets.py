"""The options by which a command that makes runs stores a budget in their ledger."""

from typing import Annotated, Any

from tacit.cli.terminal.command import option
from tacit.cli.terminal.options import PRIVACY
from tacit.errors import InvalidInput, PrivacyError
from tacit.privacy import Budget, Observer
from tacit.report.wording import counted
from tacit.runs.config import RunConfig

BudgetOfRuns = Annotated[
    float | None,
    option(
        "ε", "Store in the ledger that all runs together may spend this, at this run's δ and adjacency.", panel=PRIVACY
    ),
]
BudgetAgainst = Annotated[
    str, option("K|all", "Whom --budget limits ε against: any K curious agents together, or all others.", panel=PRIVACY)
]


def make_budget(epsilon: float | None, against: str, config: RunConfig) -> Budget | None:
    """Return the budget of all runs, in the terms of this run; None if none is given."""
    if epsilon is None:
        if against != "all":
            raise InvalidInput("--budget-against says whom a budget limits ε against, but --budget is missing")
        return None
    try:
        observer = Observer.of_key(against)
    except PrivacyError:
        raise InvalidInput(f"--budget-against is {against!r}; give a number of curious agents, or all") from None
    if observer.curious is not None and observer.curious >= config.agents - 1:
        others = counted(config.agents - 1, "other agent")
        raise InvalidInput(
            f"--budget-against is {against}, but there are {others}; --budget-against all is against all of them together"
        )
    if not config.private:
        raise InvalidInput(
            "--budget limits what private runs spend; a run without privacy leaves no guarantee for these records"
        )
    terms: dict[str, Any] = {"delta": config.delta, "adjacency": config.adjacency, "accountant": config.accountant}
    return Budget(epsilon=epsilon, observer=observer, **terms)
