"""What has been spent, on whose data, by which run. The only truth for ε.

The ledger holds events, never an ε: `guarantee` derives it anew each time, and reading changes nothing.
An oracle opens an `Account` for its run and spends one query there *before* the answer leaves it, so a
crash can only lose an answer, never a cost. A query past the allowance raises and spends nothing; that is
checked by count, and the allowance was checked against the owner's budget when the account was opened.
A run without privacy has an account, too, on which it writes that it read the records before it does.
"""

import json
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any, get_args

from tacit.errors import BudgetExceeded, PrivacyError
from tacit.io.chains import parse
from tacit.privacy.accounting import Accountant, Adjacency, Event, epsilons
from tacit.privacy.accounts import Account, Entry, Ground, Line, State, lines_of_json, lines_to_json
from tacit.privacy.budgets import Request, grounds
from tacit.privacy.decisions import Decision, read_decision
from tacit.privacy.event import worst_of
from tacit.privacy.guarantees import Basis, Budget, Guarantee, format_epsilon
from tacit.privacy.holders import Asked, Counted, Holders
from tacit.privacy.mechanisms import EVERYBODY, RECORD, Mechanism, Observer

_FORMAT = "tacit-ledger-7"
EVERYONE = ""  # the owner under which the budget of all is kept


class Ledger:
    """Events by data owner and run, kept in memory; `to_json` and `from_json` carry it elsewhere.

    A budget is optional and bounds what *all* runs on one owner's data spend together.
    """

    def __init__(self, budget: Budget | None = None, budgets: Mapping[str, Budget] | None = None) -> None:
        self.budget = budget
        self.budgets = dict(budgets or {})
        self.set_after: dict[str, int] = {}
        """How many runs were on record when a budget was set, by its owner; none unless told."""
        self.decisions: list[Decision] = []
        self._holders = Holders()
        self._accounts: dict[str, Account] = {}

    def open(self, *, run: str, **terms: Any) -> Account:
        """Allow one run its queries, or refuse before anything is spent. For the terms see `open_together`."""
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
        """Allow each of `runs` this many queries of each owner's data by its mechanism, or refuse all before anything is spent.

        Runs that are opened in one go were planned together: none of them by another's results. `records` names the
        data set that the owners hold parts of, and `partition` how it was dealt to them.
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

        Nothing is promised of these records from then on. One `spend` stands for all that such a run reads.
        """
        lines = _lines(owners, records, partition, mechanisms, False)
        if any(line.private for line in lines):
            raise PrivacyError("a run without privacy has mechanisms without noise")
        return self._open(runs, lines, 1)

    def _open(self, runs: Sequence[str], lines: tuple[Line, ...], allowed: int) -> list[Account]:
        owners = [line.owner for line in lines]
        with self._opening():
            if not all(isinstance(name, str) for name in [*runs, *owners]):
                raise PrivacyError("a run and its data owners are named by texts")
            if taken := [run for run, times in Counter(runs).items() if times > 1 or run in self._accounts]:
                raise PrivacyError(f"the ledger has a run {taken[0]!r} already; choose another name")
            if not lines:
                raise PrivacyError("an account needs at least one data owner")
            if repeated := [owner for owner, times in Counter(owners).items() if times > 1][:3]:
                raise PrivacyError(f"each owner may stand in an account once; repeated: {', '.join(repeated)}")
            self._check_units(runs[0], lines)
            lines = self._let_in(runs, lines, allowed)
            accounts = [self._account(run, lines, allowed, runs[0]) for run in runs]
            for account in accounts:
                self._keep(account)
            return accounts

    def _check_units(self, run: str, lines: Sequence[Line]) -> None:
        """Refuse a promise to another unit than others in this run, or than earlier ones about the same owner or records.

        A patient with one record more is not a patient more: its contribution changes by up to twice the bound. So what runs
        promise to records and what they promise to patients cannot be added up.
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
        """Return the lines with the grounds on which budgets let them in, or refuse."""
        if self.budget is None and not self.budgets:
            return lines
        counted = self._filter()
        requests = [self._request(runs, line, allowed, counted) for line in lines if self._budget_of(line.owner)]
        found: dict[str, Ground] = grounds(requests, runs[0], allowed)
        for owner in self.budgets.keys() - {line.owner for line in lines}:  # whose records may be among these
            self._check_budget_of(owner, runs, lines, allowed, counted)
        return tuple(replace(line, ground=found.get(line.owner, "free")) for line in lines)

    def _budget_of(self, owner: str) -> Budget | None:
        return self.budgets.get(owner, self.budget)

    def _request(self, runs: Sequence[str], line: Line, allowed: int, counted: Counted) -> Request:
        """Return what is asked of one owner's data and what counts already, or refuse what no budget lets in."""
        owner, budget = line.owner, self._budget_of(line.owner)
        assert budget is not None
        if not line.private:
            raise BudgetExceeded(
                f"run {runs[0]!r} has no privacy, and {owner!r} has a budget of {budget}: after it, nothing "
                "could be promised of these records. Nothing was read"
            )
        (history,) = self._holders.histories(owner, (line.records, line.partition))
        if readers := [asked.account for asked in history if asked.account.charged and not asked.private]:
            raise BudgetExceeded(
                f"a run without privacy has read the records of {owner!r}: nothing is promised of them any more, "
                f"and no run fits its budget of {budget}. Nothing was spent"
                + self._reserved([account for account in readers if not account.spent])
            )
        observer = budget.observer
        charged = [asked for asked in history if counted.event(asked, observer) is not None]
        reserved = self._reserved(
            [each.account for each in charged if any(map(each.account.to_free, each.lines))],
            [each.account for each in charged if each.is_elsewhere(owner)],
        )
        asked = [line.event(allowed, observer)] * len(runs)
        return Request(owner, budget, counted.events(charged, observer), asked, line.unit, reserved)

    def _check_budget_of(
        self, owner: str, runs: Sequence[str], lines: Sequence[Line], allowed: int, counted: Counted
    ) -> None:
        """Refuse runs that would take an owner past a budget of its own: they ask others, who may hold its records now."""
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
                    f"run {runs[0]!r} asks of the records that {owner!r} holds, dealt to owners in another way, and would bring it "
                    f"to ε={format_epsilon(total)}, past its own budget of {budget}. Nothing was spent"
                )

    def filtered(self, owner: str) -> float:
        """Derive what the filter of an owner's budget counts as spent: a run that fits the rest is let in."""
        self._refresh()
        if (budget := self._budget_of(owner)) is None:
            raise PrivacyError(f"{owner!r} has no budget")
        if self._readers([owner])[owner]:
            return math.inf
        return self._filtered_epsilon(owner, budget, self._filter())

    def _filtered_epsilon(self, owner: str, budget: Budget, counted: Counted) -> float:
        histories = self._holders.histories(owner)
        return max((budget.filtered(counted.events(history, budget.observer)) for history in histories), default=0.0)

    def _filter(self) -> Counted:
        """Return how the filter counts: of a released run what was asked, unless the budget was raised since."""
        before = {owner: self._before_raise(owner) for owner in (EVERYONE, *self.budgets)}

        def count(account: Account, line: Line) -> int:
            subject = line.owner if line.owner in self.budgets else EVERYONE
            return account.charged if account.run in before[subject] else account.filtered(line)

        return Counted(count)

    def _before_raise(self, owner: str) -> Collection[str]:
        """Return the runs that were opened before an owner's budget was set or last raised, which may be because of them."""
        subject = owner if owner in self.budgets else EVERYONE
        raises = [each.runs for each in self.decisions if each.kind == "raise" and each.subject == subject]
        return set(list(self._accounts)[: max([self.set_after.get(subject, 0), *raises])])

    def _reserved(self, accounts: Sequence[Account], others: Sequence[Account] = ()) -> str:
        """Say which accounts hold queries that they have not made, and how to free them; and which asked other owners."""
        if others:
            told = ", ".join(repr(account.run) for account in others[:3]) + (" and others" if len(others) > 3 else "")
            return (
                f". This counts what {told} asked of the same records, dealt to owners in another way: for each record, of the "
                f"owner that was asked most{self._reserved(accounts)}"
            )
        if not accounts:
            return ""
        named = [f"run {each.run!r} ({each.spent} of {each.allowed} made)" for each in accounts[:3]]
        more = f" and {len(accounts) - 3} others" if len(accounts) > 3 else ""
        return f". Queries not made are held for {', '.join(named)}{more}; {self._how_to_free(accounts[0].run)}"

    def _how_to_free(self, run: str) -> str:
        return "they are free once it is finished"

    @property
    def owners(self) -> tuple[str, ...]:
        """Everyone on whose data something is charged."""
        held = self._holders
        return tuple(owner for owner in held.owners if any(account.charged for account, _ in held.lines_of(owner)))

    @property
    def accounts(self) -> tuple[Account, ...]:
        """All accounts, in the order in which they were opened."""
        self._refresh()
        return tuple(self._accounts.values())

    def entries(self, owner: str | None = None, run: str | None = None) -> list[Entry]:
        """Return what is charged, of one owner or run or of all."""
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
        """Return, for each owner, the runs without privacy that have read its records, or others' that may be the same.

        The same data set dealt to other owners holds the same records.
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
        """Derive ε for one owner, of one run or of all runs on the same data."""
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
        """Derive ε for several owners; with very many distinct mechanisms, each an upper bound within some percent.

        It holds against `observer`. Only masks make a difference between observers. Where several agents are curious, in several
        runs, they are the same parties in all of them.

        What is counted is what accounts are charged: of a run that is not finished, its whole plan. ε over all runs also counts
        runs on the same data set that dealt it to owners in another way, each as its owner who was asked most: any of them may have held
        a record. Over all runs of records that a run without privacy has read, ε is infinite; of one private run, it is that run's.
        """
        self._refresh()
        found = [self._histories(owner, run) for owner in owners]
        for owner, histories in zip(owners, found, strict=True):
            if not histories:
                of_run = "" if run is None else f" by run {run!r}"
                raise PrivacyError(f"nothing was ever spent on {owner!r}{of_run}; {len(self.owners)} owners are known")
        readers, filtered = self._readers(owners), self._filter()
        terms: dict[str, Any] = {"delta": delta, "adjacency": adjacency, "accountant": accountant}
        values = iter(epsilons([events for each in found for events in self._events(each, observer)], **terms))
        made = []
        for owner, histories in zip(owners, found, strict=True):
            value = max(next(values) for _ in histories)
            counted = [asked for history in histories for asked in history]
            exposed = bool(readers[owner])
            if not all(asked.private for asked in counted) or (exposed and run is None):
                value = math.inf
            basis, adaptive = self._basis(owner, counted, delta, adjacency, observer, filtered)
            if adaptive is not None:
                value = min(value, adaptive)  # an abandoned run counts here with its plan, and in the filter with less
            made.append(
                Guarantee(
                    epsilon=value,
                    **terms,
                    release=all(asked.release for asked in counted),
                    basis="nothing" if math.isinf(value) else basis,
                    adaptive=None if math.isinf(value) else adaptive,
                    exposed=exposed,
                    observer=observer,
                    unit=counted[0].lines[0].unit,
                )
            )
        return made

    def asked(self, owner: str, run: str | None = None) -> list[Asked]:
        """Return the runs whose queries ε of an owner counts: one, or all that asked about its records or may have."""
        self._refresh()
        return list({each.account: each for history in self._histories(owner, run) for each in history}.values())

    def histories(self, owner: str, run: str | None = None, observer: Observer = EVERYBODY) -> list[list[Event]]:
        """Return what ε of an owner is derived from: the largest of these, one for each way in which it held records."""
        self._refresh()
        return self._events(self._histories(owner, run), observer)

    def _histories(self, owner: str, run: str | None) -> list[list[Asked]]:
        """Return the runs that are charged for an owner's records. One by itself counts with what it asked under this name alone."""
        if run is None:
            every = self._holders.histories(owner)
        else:
            every = [[Asked(account, (line,)) for account, line in self._charged(owner, run)]]
        return [some for history in every if (some := [asked for asked in history if asked.account.charged])]

    def _events(self, histories: Sequence[Sequence[Asked]], observer: Observer) -> list[list[Event]]:
        counted = Counted(lambda account, _: account.charged)
        return [counted.events(history, observer) for history in histories]

    def _basis(
        self,
        owner: str,
        counted: Sequence[Asked],
        delta: float,
        adjacency: Adjacency,
        observer: Observer,
        filtered: Counted,
    ) -> tuple[Basis, float | None]:
        """Return on what ground the ε of these runs holds, and what holds if runs were planned by others' results."""
        if len({asked.account.together for asked in counted}) == 1:
            return "plan", None
        budget = self._budget_of(owner)
        if (
            budget is not None
            and all(
                line.ground == "filter" and self._budget_of(line.owner) == budget
                for asked in counted
                for line in asked.lines
            )
            and not {asked.account.run for asked in counted}.intersection(self._before_raise(owner))
            and budget.adjacency == adjacency
            and budget.delta <= delta
            and observer.sees_no_more_than(budget.observer)
            and self._filtered_epsilon(owner, budget, filtered) <= budget.epsilon
        ):
            return "filter", budget.epsilon
        return "plans", None

    def to_json(self) -> str:
        """Return the whole record as plain JSON."""
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
        """Read a record back; anything that is not one is an error."""
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
            raise TypeError(f"an account that is repeated or not named by a text: {run!r}")
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
                    asked.account.run
                    for history in self._histories(owner, None)
                    for asked in history
                    if not asked.private
                )
            )
            for owner in owners
        }

    def _refresh(self) -> None:
        """Learn what others have written meanwhile, where others share the ledger."""

    @contextmanager
    def _opening(self) -> Iterator[None]:
        """Let nobody else open an account meanwhile, where others share the ledger."""
        yield

    def _account(self, run: str, lines: tuple[Line, ...], allowed: int, together: str) -> Account:
        return Account(run, lines, allowed, together=together)

    def _keep(self, account: Account) -> None:
        self._accounts[account.run] = account
        self._holders.add(account)


def check_together(account: Account, before: Account | None) -> None:
    """Refuse an account that claims to have been opened in one go with others, unless the one `before` it is such another."""
    if account.together == account.run:
        return
    alike = before is not None and (before.together, before.lines, before.allowed) == (
        account.together,
        account.lines,
        account.allowed,
    )
    if not alike:
        raise PrivacyError(
            f"run {account.run!r} is said to have been opened together with {account.together!r}, and was not opened right after it on "
            "the same terms"
        )


def _advice(unit: str) -> str:
    if unit == RECORD:
        return "This ledger has promised records, of whom one may have several; nothing stronger can be added to that"
    return f"Protect every {unit} here, too"


def _lines(
    owners: Sequence[str], records: str, partition: str, mechanisms: Sequence[Mechanism], release: bool
) -> tuple[Line, ...]:
    if len(owners) != len(mechanisms):
        raise PrivacyError(f"{len(mechanisms)} mechanisms for {len(owners)} owners; give one for each")
    return tuple(
        Line(owner, records, partition, mechanism, release) for owner, mechanism in zip(owners, mechanisms, strict=True)
    )
