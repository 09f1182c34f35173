"""What several runs together spend on the same records, derived from their accounts."""

from collections.abc import Sequence
from typing import Any

from tacit.privacy import Account, Adjacency
from tacit.privacy.accounting import Event, largest_epsilon
from tacit.privacy.holders import EventCounter, Holders
from tacit.privacy.mechanisms import EVERYBODY, Observer
from tacit.report.compared import ComparedRun
from tacit.report.wording import ADJACENCIES, epsilon


def describe_combined(runs: Sequence[ComparedRun]) -> list[str]:
    """Return a sentence for every data set that several of the runs queried.

    Owners of the same name hold the same records. If a data set was split in several ways, any owner may have held a record
    each time: a run on another split counts with whichever of its owners was queried most.
    """
    groups: dict[str, list[ComparedRun]] = {}
    for each in runs:
        for key in _data_sets(each):
            groups.setdefault(key, []).append(each)
    found = []
    for key, group in groups.items():
        if len(group) > 1 and (names := [each.name for each in group]):
            found.append(f"On {key}, {_sentence(group, ' and '.join((', '.join(names[:-1]), names[-1])))}")
    return list(dict.fromkeys(found))


def _data_sets(each: ComparedRun) -> list[str]:
    """Return the data sets that a run queried, whoever holds parts of them."""
    account = each.run.record.account
    if account is None:
        return [each.run.plan.dataset]
    return list(dict.fromkeys(line.records or line.owner for line in account.lines))


def _sentence(group: Sequence[ComparedRun], names: str) -> str:
    if any(not each.run.plan.private or each.run.record.exposed for each in group):
        return f"{names} together spend ε = ∞: a run without privacy has read these records."
    accounts = [each.run.record.account for each in group]
    known = [account for account in accounts if account is not None]
    if len(known) < len(accounts):
        return f"what {names} together spend is not known: ε of each could not be derived."
    plans = [each.run.plan for each in group]
    if len(units := dict.fromkeys(line.unit for account in known for line in account.lines)) > 1:
        return f"what {names} spend cannot be added up: some protect every {' and others every '.join(units)}."
    delta = min(plan.delta for plan in plans if plan.delta is not None)
    accountants = {plan.accountant for plan in plans}
    adjacencies: list[Adjacency] = sorted({plan.adjacency for plan in plans if plan.adjacency is not None})
    accountant = accountants.pop() if len(accountants) == 1 and len(adjacencies) == 1 else "pld"
    terms: dict[str, Any] = {"delta": delta, "accountant": accountant}
    promised = {plan.promised_against for plan in plans} - {EVERYBODY}
    against = []
    for observer in (*sorted(promised, key=lambda each: each.curious or 0), EVERYBODY):
        histories, bound = _histories(known, observer)
        spent = " and ".join(
            f"ε = {epsilon(largest_epsilon(histories, adjacency=adjacency, **terms)[1])} ({ADJACENCIES[adjacency]})"
            for adjacency in adjacencies
        )
        against.append(f"{'at most ' if bound else ''}{spent}{f' against {observer}' if promised else ''}")
    return (
        f"{names} together spend {', and '.join(against)} per {known[0].lines[0].unit} at δ = {delta:g}, by {accountant}, for the owner with the "
        "highest ε, if no run was planned after seeing another’s results."
    )


def _histories(accounts: Sequence[Account], observer: Observer) -> tuple[list[list[Event]], bool]:
    """Return all the queries that may have been made of one record, case by case, and whether these are bounds."""
    holders, counted = Holders(accounts), EventCounter(lambda account, _: account.charged)
    found = [(owner, history) for owner in holders.owners for history in holders.histories(owner)]
    bound = any(asked.is_elsewhere(owner) for owner, history in found for asked in history)
    return [counted.events(history, observer) for _, history in found], bound
