"""What several runs spend together of the same records, derived from their accounts."""

from collections.abc import Sequence
from typing import Any

from tacit.privacy import Account, Adjacency
from tacit.privacy.accounting import Event, largest_epsilon
from tacit.privacy.holders import EventCounter, Holders
from tacit.privacy.mechanisms import EVERYBODY
from tacit.report.html.overlays import Entry
from tacit.report.wording import ADJACENCIES, epsilon


def together(entries: Sequence[Entry]) -> list[str]:
    """Return a sentence for every data set that several of the runs asked.

    Owners of the same name hold the same records. Where a data set was dealt out in several ways, a record may be with any
    owner each time: a run on another deal counts with whichever of its owners was asked most.
    """
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        for key in _data(entry):
            groups.setdefault(key, []).append(entry)
    found = []
    for key, asked in groups.items():
        if len(asked) > 1 and (names := [entry.name for entry in asked]):
            found.append(f"On {key}, {_sentence(asked, ' and '.join((', '.join(names[:-1]), names[-1])))}")
    return list(dict.fromkeys(found))


def _data(entry: Entry) -> list[str]:
    """Return what a run asked: its data set, whoever holds parts of it."""
    account = entry.run.record.account
    if account is None:
        return [entry.run.plan.dataset]
    return list(dict.fromkeys(line.records or line.owner for line in account.lines))


def _sentence(asked: Sequence[Entry], names: str) -> str:
    if any(not entry.run.plan.private or entry.run.record.exposed for entry in asked):
        return f"{names} together spend ε = ∞: a run without privacy has read these records."
    accounts = [entry.run.record.account for entry in asked]
    known = [account for account in accounts if account is not None]
    if len(known) < len(accounts):
        return f"what {names} together spend is not known: ε of each could not be derived."
    plans = [entry.run.plan for entry in asked]
    if len(units := dict.fromkeys(line.unit for account in known for line in account.lines)) > 1:
        return f"what {names} spend cannot be added up: some protect every {' and others every '.join(units)}."
    delta = min(plan.delta for plan in plans if plan.delta is not None)
    accountants = {plan.accountant for plan in plans}
    adjacencies: list[Adjacency] = sorted({plan.adjacency for plan in plans if plan.adjacency is not None})
    accountant = accountants.pop() if len(accountants) == 1 and len(adjacencies) == 1 else "pld"
    terms: dict[str, Any] = {"delta": delta, "accountant": accountant}
    histories, bound = _histories(known)
    spent = " and ".join(
        f"ε = {epsilon(largest_epsilon(histories, adjacency=adjacency, **terms)[1])} ({ADJACENCIES[adjacency]})"
        for adjacency in adjacencies
    )
    most = "at most " if bound else ""
    return (
        f"{names} together spend {most}{spent} per {known[0].lines[0].unit} at δ = {delta:g}, by {accountant}, for the owner with the "
        "highest ε, if no run was planned after seeing another’s results."
    )


def _histories(accounts: Sequence[Account]) -> tuple[list[list[Event]], bool]:
    """Return what may have been asked of one record, in all cases, and whether these are bounds."""
    holders, counted = Holders(accounts), EventCounter(lambda account, _: account.charged)
    found = [(owner, history) for owner in holders.owners for history in holders.histories(owner)]
    bound = any(asked.is_elsewhere(owner) for owner, history in found for asked in history)
    return [counted.events(history, EVERYBODY) for _, history in found], bound
