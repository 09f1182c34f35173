"""What has been spent, on whose data, by which run: the only thing that ε is derived from.

The ledger holds events, never an ε: `guarantee` derives ε each time, and reading changes nothing. An oracle computes
an answer, charges one query to the `Account` of its run, and only then returns the answer, so a crash can lose an
answer but never a charge. A query past the allowance raises and spends nothing; that is checked by count, and the
allowance was checked against the owner's budget when the account was opened. A run without privacy has an account
too, on which it records that it reads the data before it does.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, get_args

from tacit.errors import PrivacyError
from tacit.io.chains import parse
from tacit.privacy.accounting import Accountant, Adjacency, accountant_of, epsilons
from tacit.privacy.accounts import Account, Entry, State, lines_of_json, lines_to_json
from tacit.privacy.decisions import read_decision
from tacit.privacy.event import Event
from tacit.privacy.guarantees import Basis, Budget, Guarantee
from tacit.privacy.holders import Access, EventCounter
from tacit.privacy.observers import EVERYBODY, Observer
from tacit.privacy.opening import EVERYONE as EVERYONE
from tacit.privacy.opening import AccountBook, check_together

_FORMAT = "tacit-ledger-7"


class Ledger(AccountBook):
    """Events by data owner and run, kept in memory; `to_json` and `from_json` carry it elsewhere.

    A budget is optional and bounds what *all* runs on one owner's data spend together.
    """

    @property
    def owners(self) -> tuple[str, ...]:
        """All owners on whose data something is charged."""
        held = self._holders
        return tuple(owner for owner in held.owners if any(account.charged for account, _ in held.lines_of(owner)))

    @property
    def accounts(self) -> tuple[Account, ...]:
        """All accounts, in the order of opening."""
        self._refresh()
        return tuple(self._accounts.values())

    def entries(self, owner: str | None = None, run: str | None = None) -> list[Entry]:
        """Return the charges of one owner, of one run, or of all."""
        self._refresh()
        return [
            Entry(
                owner=line.owner,
                run=account.run,
                event=line.event(account.charged) if line.private else None,
                spent=account.spent,
                state=account.state,
                release=line.release,
            )
            for account, line in self._charged(owner, run)
        ]

    def readers_without_privacy(self, owners: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Return, for each owner, the runs without privacy that have read its records or may have.

        The same data set divided among other owners holds the same records.
        """
        self._refresh()
        return self._readers(owners)

    def guarantee(
        self,
        owner: str,
        *,
        delta: float,
        run: str | None = None,
        adjacency: Adjacency = "add_remove",
        accountant: Accountant = "pld",
        observer: Observer = EVERYBODY,
    ) -> Guarantee:
        """Derive ε for one owner, over one run or over all runs on the same data."""
        terms: dict[str, Any] = {"delta": delta, "adjacency": adjacency, "accountant": accountant, "observer": observer}
        return self.guarantees([owner], run=run, **terms)[0]

    def guarantees(
        self,
        owners: Sequence[str],
        *,
        delta: float,
        run: str | None = None,
        adjacency: Adjacency = "add_remove",
        accountant: Accountant = "pld",
        observer: Observer = EVERYBODY,
    ) -> list[Guarantee]:
        """Derive ε for several owners; with very many distinct mechanisms, upper bounds within a few percent.

        It holds against `observer`. Observers differ only where there are masks. Curious agents are taken to be the same parties in
        all runs.

        It counts what accounts are charged: for an unfinished run, its whole plan. ε over all runs also counts runs that divided the
        same data set among owners in another way, each by the owner it queried most, since any of them may have held a record. Over
        all runs ε is infinite if a run without privacy has read the records; over one private run, it is that run's ε.
        """
        self._refresh()
        found = [self._histories(owner, run) for owner in owners]
        for owner, histories in zip(owners, found, strict=True):
            if not histories:
                of_run = "" if run is None else f" by run {run!r}"
                raise PrivacyError(
                    f"nothing was ever spent on {owner!r}{of_run}; the ledger has {len(self.owners)} owners"
                )
        readers, filtered = self._readers(owners), self._filter()
        terms: dict[str, Any] = {"delta": delta, "adjacency": adjacency, "accountant": accountant}
        events_of = [self._events(each, observer) for each in found]
        values = iter(epsilons([events for each in events_of for events in each], **terms))
        made = []
        for owner, histories, events in zip(owners, found, events_of, strict=True):
            value = max(next(values) for _ in histories)
            terms["accountant"] = accountant_of([event for each in events for event in each], accountant, adjacency)
            counted = [access for history in histories for access in history]
            exposed = bool(readers[owner])
            if not all(access.private for access in counted) or (exposed and run is None):
                value = math.inf
            basis, adaptive = self._basis(owner, counted, delta, adjacency, observer, filtered)
            if adaptive is not None:
                value = min(
                    value, adaptive
                )  # an abandoned run counts in full here, and with fewer queries in the filter
            made.append(
                Guarantee(
                    epsilon=value,
                    **terms,
                    release=all(access.release for access in counted),
                    basis="nothing" if math.isinf(value) else basis,
                    adaptive=None if math.isinf(value) else adaptive,
                    exposed=exposed,
                    observer=observer,
                    unit=counted[0].lines[0].unit,
                )
            )
        return made

    def accesses(self, owner: str, run: str | None = None) -> list[Access]:
        """Return the runs that an owner's ε counts: one, or all that queried its records or may have."""
        self._refresh()
        return list({each.account: each for history in self._histories(owner, run) for each in history}.values())

    def histories(self, owner: str, run: str | None = None, observer: Observer = EVERYBODY) -> list[list[Event]]:
        """Return the events from which an owner's ε follows: one history for each way it held records; the largest ε counts."""
        self._refresh()
        return self._events(self._histories(owner, run), observer)

    def _events(self, histories: Sequence[Sequence[Access]], observer: Observer) -> list[list[Event]]:
        counted = EventCounter(lambda account, _: account.charged)
        return [counted.events(history, observer) for history in histories]

    def _basis(
        self,
        owner: str,
        counted: Sequence[Access],
        delta: float,
        adjacency: Adjacency,
        observer: Observer,
        filtered: EventCounter,
    ) -> tuple[Basis, float | None]:
        """Return why the ε of these runs holds, and which ε holds if runs were planned from others' results."""
        if len({access.account.together for access in counted}) == 1:
            return "plan", None
        budget = self._budget_of(owner)
        if (
            budget is not None
            and all(
                line.ground == "filter" and self._budget_of(line.owner) == budget
                for access in counted
                for line in access.lines
            )
            and not {access.account.run for access in counted}.intersection(self._before_raise(owner))
            and budget.adjacency == adjacency
            and budget.delta <= delta
            and observer.sees_no_more_than(budget.observer)
            and self._filtered_epsilon(owner, budget, filtered) <= budget.epsilon
        ):
            return "filter", budget.epsilon
        return "plans", None

    def to_json(self) -> str:
        """Return the whole ledger as JSON."""
        content = {
            "format": _FORMAT,
            "budget": self.budget.to_json() if self.budget else None,
            "budgets": {owner: budget.to_json() for owner, budget in self.budgets.items()},
            "set_after": self.set_after,
            "accounts": [
                {
                    "run": account.run,
                    "together": account.together,
                    "state": account.state,
                    "allowed": account.allowed,
                    "spent": account.spent,
                    **lines_to_json(account.lines),
                }
                for account in self._accounts.values()
            ],
            "decisions": [asdict(decision) for decision in self.decisions],
        }
        return json.dumps(content, indent=1, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "Ledger":
        """Read a ledger from JSON; anything else is an error."""
        try:
            content = parse(text)
            if content["format"] != _FORMAT:
                raise PrivacyError(f"ledger format {content['format']!r} is not {_FORMAT!r}")
            budget = None if content["budget"] is None else Budget.of_json(content["budget"])
            ledger = cls(budget, {owner: Budget.of_json(each) for owner, each in content["budgets"].items()})
            for row in content["accounts"]:
                ledger._read(**row)
            ledger.decisions = [read_decision(row) for row in content["decisions"]]
            ledger.set_after = dict(content["set_after"])
            for runs in (*ledger.set_after.values(), *(decision.runs for decision in ledger.decisions)):
                if type(runs) is not int or not 0 <= runs <= len(ledger._accounts):
                    raise TypeError(f"a budget that was set or raised after {runs!r} of {len(ledger._accounts)} runs")
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
            if isinstance(error, PrivacyError):
                raise
            raise PrivacyError(f"this is not a ledger: {type(error).__name__}: {error}") from error
        return ledger

    def _read(self, run: str, together: str, state: State, allowed: int, spent: int, lines: Any, masks: Any) -> None:
        if run in self._accounts or type(run) is not str or type(together) is not str:
            raise TypeError(f"a run that is repeated, or whose name is not a string: {run!r}")
        if type(allowed) is not int or type(spent) is not int or not 0 <= spent <= allowed:
            raise TypeError(f"run {run!r} has spent {spent!r} of {allowed!r}")
        if state not in get_args(State):
            raise TypeError(f"run {run!r} is {state!r}")
        read = lines_of_json(lines, masks)
        for line in read:
            if line.private:
                line.event(allowed)  # checks the number
        if not read or len({line.owner for line in read}) < len(read):
            raise TypeError(f"run {run!r} has no owner, or one twice")
        account = Account(run, read, allowed, spent, state, together)
        check_together(account, next(reversed(self._accounts.values()), None))
        self._keep(account)
