"""Opening accounts: which runs may ask whose data how often, and whether budgets leave room for them."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import RLock
from typing import Any

from tacit.errors import BudgetExceeded, PrivacyError
from tacit.privacy.accounts import Account, Ground, Line
from tacit.privacy.budgets import Request, grounds
from tacit.privacy.decisions import Decision
from tacit.privacy.event import worst_of
from tacit.privacy.guarantees import Budget
from tacit.privacy.holders import Access, EventCounter, Holders
from tacit.privacy.mechanisms import RECORD, Mechanism

EVERYONE = ""  # the owner under which the budget of all is kept


class AccountBook:
    """Accounts by data owner and run, with budgets that bound what all runs on one owner's data spend together."""

    def __init__(self, budget: Budget | None = None, budgets: Mapping[str, Budget] | None = None) -> None:
        self.budget = budget
        self.budgets = dict(budgets or {})
        self.set_after: dict[str, int] = {}
        """By owner: the number of runs on record when its budget was set; 0 if missing."""
        self.decisions: list[Decision] = []
        self._holders = Holders()
        self._accounts: dict[str, Account] = {}
        self._lock = RLock()

    def open(self, *, run: str, **terms: Any) -> Account:
        """Allow one run its queries, or refuse before anything is spent. `open_together` explains the terms."""
        return self.open_together(runs=[run], **terms)[0]

    def open_together(
        self,
        *,
        runs: Sequence[str],
        owners: Sequence[str],
        mechanisms: Sequence[Mechanism],
        queries: int,
        release: bool,
        records: str = "",
        partition: str = "",
    ) -> list[Account]:
        """Allow each run this many queries of each owner's data by its mechanism, or refuse all of them before anything is spent.

        Runs opened in one call were planned together, so none of them was planned from another's results. `records` names the
        data set that the owners hold parts of, and `partition` how it was divided among them.
        """
        lines = _lines(owners, records, partition, mechanisms, release)
        if queries < 0:
            raise PrivacyError(f"queries is {queries}; it cannot be negative")
        for line in lines:
            line.event(queries)  # refuses what has no noise, and too many queries
        return self._open(runs, lines, queries)

    def open_without_privacy(
        self,
        *,
        runs: Sequence[str],
        owners: Sequence[str],
        mechanisms: Sequence[Mechanism],
        records: str = "",
        partition: str = "",
    ) -> list[Account]:
        """Let `runs` read the owners' data without clipping and noise, or refuse where a budget is set.

        From then on these records have no privacy guarantee. One `spend` covers everything that such a run reads.
        """
        lines = _lines(owners, records, partition, mechanisms, False)
        if any(line.private for line in lines):
            raise PrivacyError("a run without privacy has mechanisms without noise")
        return self._open(runs, lines, 1)

    def _open(self, runs: Sequence[str], lines: tuple[Line, ...], allowed: int) -> list[Account]:
        owners = [line.owner for line in lines]
        with self._opening():
            if not all(isinstance(name, str) for name in [*runs, *owners]):
                raise PrivacyError("the names of a run and of its data owners must be strings")
            if taken := [run for run, times in Counter(runs).items() if times > 1 or run in self._accounts]:
                raise PrivacyError(f"the ledger has a run {taken[0]!r} already; choose another name")
            if not lines:
                raise PrivacyError("an account needs at least one data owner")
            if repeated := [owner for owner, times in Counter(owners).items() if times > 1][:3]:
                raise PrivacyError(f"an owner can be in an account only once; repeated: {', '.join(repeated)}")
            self._check_units(runs[0], lines)
            lines = self._let_in(runs, lines, allowed)
            accounts = [self._account(run, lines, allowed, runs[0]) for run in runs]
            for account in accounts:
                self._keep(account)
            return accounts

    def _check_units(self, run: str, lines: Sequence[Line]) -> None:
        """Refuse to protect another kind of unit than the rest of this run, or than earlier runs on the same owner or records.

        A patient with one more record is not one more patient: its contribution changes by up to twice the bound. So an ε per
        record and an ε per patient cannot be added up.
        """
        private = [line for line in lines if line.private]
        if len(units := {line.unit for line in private}) > 1:
            raise PrivacyError(f"run {run!r} protects {' and '.join(sorted(units))}; a run protects one kind of unit")
        owners, records = {line.owner for line in private}, {line.records for line in private} - {""}
        for account in self._accounts.values():
            for line in account.lines:
                same = line.owner in owners or line.records in records
                if not same or not line.private or not account.charged or line.unit in units:
                    continue
                raise PrivacyError(
                    f"run {run!r} protects every {private[0].unit} and run {account.run!r} every {line.unit}, on the same records: what "
                    f"they spend cannot be added up. {_advice(line.unit)}"
                )

    def _let_in(self, runs: Sequence[str], lines: tuple[Line, ...], allowed: int) -> tuple[Line, ...]:
        """Return the lines with the grounds on which the budgets admit them, or refuse."""
        if self.budget is None and not self.budgets:
            return lines
        counted = self._filter()
        requests = [self._request(runs, line, allowed, counted) for line in lines if self._budget_of(line.owner)]
        found: dict[str, Ground] = grounds(requests, runs[0], allowed)
        for owner in self.budgets.keys() - {line.owner for line in lines}:  # whose records these owners may hold
            self._check_budget_of(owner, runs, lines, allowed, counted)
        return tuple(replace(line, ground=found.get(line.owner, "free")) for line in lines)

    def _budget_of(self, owner: str) -> Budget | None:
        return self.budgets.get(owner, self.budget)

    def _request(self, runs: Sequence[str], line: Line, allowed: int, counted: EventCounter) -> Request:
        """Return what a run asks of one owner's data and what is charged already; refuse what no budget admits."""
        owner, budget = line.owner, self._budget_of(line.owner)
        assert budget is not None
        if not line.private:
            raise BudgetExceeded(
                f"run {runs[0]!r} has no privacy, and {owner!r} has a budget of {budget}: after it, these "
                "records would have no privacy guarantee. Nothing was read"
            )
        (history,) = self._holders.histories(owner, (line.records, line.partition))
        if readers := [access.account for access in history if access.account.charged and not access.private]:
            raise BudgetExceeded(
                f"a run without privacy has read the records of {owner!r}: they no longer have a privacy guarantee, and no run fits its "
                f"budget of {budget}. Nothing was spent"
                + self._reserved([account for account in readers if not account.spent])
            )
        observer = budget.observer
        charged = [access for access in history if counted.event(access, observer) is not None]
        held = [each for each in charged if any(map(each.account.to_free, each.lines))]
        frees = [each.account for each in held if any(self.to_free(each.account, line) for line in each.lines)]
        reserved = self._reserved(
            frees,
            [each.account for each in charged if each.is_elsewhere(owner)],
            [each.account for each in held if each.account not in frees],
        )
        asked = [line.event(allowed, observer)] * len(runs)
        advice = reserved + self._way_out(owner if owner in self.budgets else EVERYONE)
        return Request(owner, budget, counted.events(charged, observer), asked, line.unit, advice)

    def _check_budget_of(
        self, owner: str, runs: Sequence[str], lines: Sequence[Line], allowed: int, counted: EventCounter
    ) -> None:
        """Refuse runs on other owners, who may hold this owner's records now, that would exceed its own budget."""
        budget = self.budgets[owner]
        for history, others in self._holders.concerned(owner, lines):
            if not all(line.private for line in others):
                raise BudgetExceeded(
                    f"run {runs[0]!r} has no privacy, and may read records of {owner!r}, which has a budget of {budget}. "
                    "Nothing was read"
                )
            asked = worst_of(line.event(allowed, budget.observer) for line in others)
            total = budget.filtered([*counted.events(history, budget.observer), *[asked] * len(runs)])
            if total > budget.epsilon:
                raise BudgetExceeded(
                    f"run {runs[0]!r} queries records that {owner!r} holds, divided among owners in another way, and would bring it "
                    f"past its own budget of {budget}, by the Rényi filter, which also holds if runs are planned from the results of "
                    "others. Nothing was spent"
                )

    def filtered(self, owner: str) -> float:
        """Derive what the filter of an owner's budget counts as spent; a run that fits into the rest is admitted."""
        self._refresh()
        if (budget := self._budget_of(owner)) is None:
            raise PrivacyError(f"{owner!r} has no budget")
        if self._readers([owner])[owner]:
            return math.inf
        return self._filtered_epsilon(owner, budget, self._filter())

    def _filtered_epsilon(self, owner: str, budget: Budget, counted: EventCounter) -> float:
        histories = self._holders.histories(owner)
        return max((budget.filtered(counted.events(history, budget.observer)) for history in histories), default=0.0)

    def _filter(self) -> EventCounter:
        """Return how the filter counts queries: those made by an abandoned run, unless the budget was raised since."""
        before = {owner: self._before_raise(owner) for owner in (EVERYONE, *self.budgets)}

        def count(account: Account, line: Line) -> int:
            subject = line.owner if line.owner in self.budgets else EVERYONE
            return account.charged if account.run in before[subject] else account.filtered(line)

        return EventCounter(count)

    def _before_raise(self, owner: str) -> Collection[str]:
        """Return the runs opened before an owner's budget was set or last raised: their results may have been the reason."""
        subject = owner if owner in self.budgets else EVERYONE
        raises = [each.runs for each in self.decisions if each.kind == "raise" and each.subject == subject]
        return set(list(self._accounts)[: max([self.set_after.get(subject, 0), *raises])])

    def to_free(self, account: Account, line: Line) -> int:
        """Return how many queries of one owner's data would become free if this run were abandoned.

        None do if the run made some and the owner's budget was set or raised since: the results may have been the reason, so the
        whole plan stays charged.
        """
        count = account.to_free(line)
        return 0 if count and account.spent and account.run in self._before_raise(line.owner) else count

    def _reserved(
        self, accounts: Sequence[Account], others: Sequence[Account] = (), never_free: Sequence[Account] = ()
    ) -> str:
        """Describe which accounts hold queries that they have not made and how to free them, and which queried other owners."""
        if others:
            runs = ", ".join(repr(account.run) for account in others[:3]) + (" and others" if len(others) > 3 else "")
            return (
                f". This counts what {runs} asked of the same records, divided among owners in another way: for each record, "
                f"the owner that was queried most{self._reserved(accounts, never_free=never_free)}"
            )
        if never_free:
            runs = ", ".join(repr(account.run) for account in never_free[:3])
            return (
                f". The whole plan of {runs}{' and others' if len(never_free) > 3 else ''} stays charged, even if abandoned, since the budget "
                f"was set or raised after it began{self._reserved(accounts)}"
            )
        if not accounts:
            return ""
        named = [f"run {each.run!r} ({each.spent} of {each.allowed} made)" for each in accounts[:3]]
        more = f" and {len(accounts) - 3} others" if len(accounts) > 3 else ""
        return f". Queries not made are held for {', '.join(named)}{more}; {self._how_to_free(accounts[0].run)}"

    def _way_out(self, subject: str) -> str:
        """Say what can be done where a budget refuses a run: that of one owner, or that of all."""
        return ""

    def _how_to_free(self, run: str) -> str:
        return "they become free when it finishes"

    def _histories(self, owner: str, run: str | None) -> list[list[Access]]:
        """Return the runs that are charged for an owner's records; for a single run, only what it asked under this owner's name."""
        if run is None:
            every = self._holders.histories(owner)
        else:
            every = [[Access(account, (line,)) for account, line in self._charged(owner, run)]]
        return [some for history in every if (some := [access for access in history if access.account.charged])]

    def _charged(self, owner: str | None, run: str | None) -> list[tuple[Account, Line]]:
        return [
            (account, line)
            for each in (self._holders.owners if owner is None else [owner])
            for account, line in self._holders.lines_of(each)
            if account.charged and (run is None or account.run == run)
        ]

    def _readers(self, owners: Sequence[str]) -> dict[str, tuple[str, ...]]:
        if all(line.private for account in self._accounts.values() for line in account.lines):
            return dict.fromkeys(owners, ())
        return {
            owner: tuple(
                dict.fromkeys(
                    access.account.run
                    for history in self._histories(owner, None)
                    for access in history
                    if not access.private
                )
            )
            for owner in owners
        }

    def _refresh(self) -> None:
        """Read what other processes have written, where the ledger is shared."""

    @contextmanager
    def _opening(self) -> Iterator[None]:
        """Keep other threads, and other processes where the ledger is shared, from opening accounts in the meantime."""
        with self._lock:
            yield

    def _account(self, run: str, lines: tuple[Line, ...], allowed: int, together: str) -> Account:
        return Account(run, lines, allowed, together=together)

    def _keep(self, account: Account) -> None:
        self._accounts[account.run] = account
        self._holders.add(account)


def check_together(account: Account, before: Account | None) -> None:
    """Refuse an account that claims to have been opened together with others, unless the one `before` it was too."""
    if account.together == account.run:
        return
    alike = before is not None and (before.together, before.lines, before.allowed) == (
        account.together,
        account.lines,
        account.allowed,
    )
    if not alike:
        raise PrivacyError(
            f"run {account.run!r} claims to have been opened together with {account.together!r}, but was not opened right after it on "
            "the same terms"
        )


def _advice(unit: str) -> str:
    if unit == RECORD:
        return (
            "This ledger protects records, of which one person may have several; nothing stronger can be added to that"
        )
    return f"Protect every {unit} here, too"


def _lines(
    owners: Sequence[str], records: str, partition: str, mechanisms: Sequence[Mechanism], release: bool
) -> tuple[Line, ...]:
    if len(owners) != len(mechanisms):
        raise PrivacyError(f"{len(mechanisms)} mechanisms for {len(owners)} owners; give one for each")
    return tuple(
        Line(owner, records, partition, mechanism, release) for owner, mechanism in zip(owners, mechanisms, strict=True)
    )
