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

from tacit.chains import parse
from tacit.errors import BudgetExceeded, PrivacyError
from tacit.privacy.accounting import Accountant, Adjacency, Event, epsilons
from tacit.privacy.accounts import Account, Entry, Ground, Line, State
from tacit.privacy.budgets import Request, grounds
from tacit.privacy.decisions import Decision, read_decision
from tacit.privacy.guarantees import Basis, Budget, Guarantee
from tacit.privacy.mechanisms import RECORD, Mechanism

_FORMAT = "tacit-ledger-6"
EVERYONE = ""  # the owner under which the budget of all is kept


class Ledger:
    """Events by data owner and run, kept in memory; `to_json` and `from_json` carry it elsewhere.

    A budget is optional and bounds what *all* runs on one owner's data spend together.
    """

    def __init__(self, budget: Budget | None = None, budgets: Mapping[str, Budget] | None = None) -> None:
        self.budget = budget
        self.budgets = dict(budgets or {})
        self.decisions: list[Decision] = []
        self._by_owner: dict[str, list[tuple[Account, Line]]] = {}
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
        requests: list[Request] = []
        elsewhere: dict[tuple[str, str, Budget], list[tuple[Account, Event]]] = {}
        readers = self._readers([line.owner for line in lines])
        for line in lines:
            if (budget := self.budgets.get(line.owner, self.budget)) is None:
                continue
            if not line.private:
                raise BudgetExceeded(
                    f"run {runs[0]!r} has no privacy, and {line.owner!r} has a budget of {budget}: after it, nothing "
                    "could be promised of these records. Nothing was read"
                )
            if readers[line.owner]:
                raise BudgetExceeded(
                    f"a run without privacy has read the records of {line.owner!r}: nothing is promised of them any more, "
                    f"and no run fits its budget of {budget}. Nothing was spent"
                    + self._reserved(
                        [self._accounts[run] for run in readers[line.owner] if not self._accounts[run].spent]
                    )
                )
            key = line.records, line.partition, budget
            if key not in elsewhere:
                elsewhere[key] = self._elsewhere(*key)
            history = self._filtered_events(line.owner, line.records, line.partition, elsewhere[key])
            held = self._by_owner.get(line.owner, [])
            reserved = self._reserved([account for account, other in held if account.to_free(other)], elsewhere[key])
            requests.append(
                Request(line.owner, budget, history, [line.event(allowed)] * len(runs), line.unit, reserved)
            )
        found: dict[str, Ground] = grounds(requests, runs[0], allowed)
        return tuple(replace(line, ground=found.get(line.owner, "free")) for line in lines)

    def filtered(self, owner: str) -> float:
        """Derive what the filter of an owner's budget counts as spent: a run that fits the rest is let in."""
        self._refresh()
        if (budget := self.budgets.get(owner, self.budget)) is None:
            raise PrivacyError(f"{owner!r} has no budget")
        held = {(line.records, line.partition) for _, line in self._by_owner.get(owner, [])}
        return max(
            (budget.filtered(self._filtered_events(owner, *of, self._elsewhere(*of, budget))) for of in held),
            default=0.0,
        )

    def _filtered_events(
        self, owner: str, records: str, partition: str, elsewhere: Sequence[tuple[Account, Event]]
    ) -> list[Event]:
        """Return what the filter counts of an owner's data, with what was asked of its records when others held them."""
        before = self._before_raise(owner)
        own = [
            line.event(count)
            for account, line in self._by_owner.get(owner, [])
            if not _elsewhere(line, records, partition) and (count := self._filtered(account, line, before))
        ]
        return own + [event for _, event in elsewhere]

    def _elsewhere(self, records: str, partition: str, budget: Budget) -> list[tuple[Account, Event]]:
        """Return what each run asked of these records as they were dealt to owners in another way: of the owner asked most.

        Which owner held a record then is not on record, and this one bounds them all.
        """
        found = []
        for account in self._accounts.values():
            events = [
                line.event(count)
                for line in account.lines
                if _elsewhere(line, records, partition)
                and line.private
                and (count := self._filtered(account, line, self._before_raise(line.owner)))
            ]
            if events:
                found.append((account, max(set(events), key=budget.divergence)))
        return found

    def _filtered(self, account: Account, line: Line, before: Collection[str]) -> int:
        """Return how many queries the filter counts: of an abandoned run those made, unless the budget was raised since."""
        return account.charged if account.run in before else account.filtered(line)

    def _before_raise(self, owner: str) -> set[str]:
        """Return the runs that were opened before an owner's budget was last raised, which may be because of them."""
        subject = owner if owner in self.budgets else EVERYONE
        raises = [each.runs for each in self.decisions if each.kind == "raise" and each.subject == subject]
        return set(list(self._accounts)[: raises[-1]]) if raises else set()

    def _reserved(self, accounts: Sequence[Account], elsewhere: Sequence[tuple[Account, Event]] = ()) -> str:
        """Say which accounts hold queries that they have not made, and how to free them; and which asked other owners."""
        others = [account for account, _ in elsewhere]
        accounts = [*accounts, *(account for account in others if any(map(account.to_free, account.lines)))]
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
        return tuple(owner for owner, held in self._by_owner.items() if any(account.charged for account, _ in held))

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
    ) -> Guarantee:
        """Derive ε for one owner, of one run or of all runs on the same data."""
        return self.guarantees([owner], delta=delta, run=run, adjacency=adjacency, accountant=accountant)[0]

    def guarantees(
        self,
        owners: Sequence[str],
        *,
        delta: float,
        run: str | None = None,
        adjacency: Adjacency = "add_remove",
        accountant: Accountant = "pld",
    ) -> list[Guarantee]:
        """Derive ε for several owners; with very many distinct mechanisms, each an upper bound within some percent.

        What is counted is what accounts are charged: of a run that is not finished, its whole plan. Over all runs of
        records that a run without privacy has read, ε is infinite; of one private run, it is that run's.
        """
        self._refresh()
        charged = [self._charged(owner, run) for owner in owners]
        for owner, own in zip(owners, charged, strict=True):
            if not own:
                of_run = "" if run is None else f" by run {run!r}"
                raise PrivacyError(f"nothing was ever spent on {owner!r}{of_run}; {len(self.owners)} owners are known")
        readers = self._readers(owners)
        values = epsilons(
            [[line.event(account.charged) for account, line in own if line.private] for own in charged],
            delta=delta,
            adjacency=adjacency,
            accountant=accountant,
        )
        made = []
        for owner, own, value in zip(owners, charged, values, strict=True):
            exposed = bool(readers[owner])
            if not all(line.private for _, line in own) or (exposed and run is None):
                value = math.inf
            basis, adaptive = self._basis(owner, own, delta, adjacency)
            if adaptive is not None:
                value = min(value, adaptive)  # an abandoned run counts here with its plan, and in the filter with less
            made.append(
                Guarantee(
                    epsilon=value,
                    delta=delta,
                    adjacency=adjacency,
                    accountant=accountant,
                    release=all(line.release for _, line in own),
                    basis="nothing" if math.isinf(value) else basis,
                    adaptive=None if math.isinf(value) else adaptive,
                    exposed=exposed,
                    unit=own[0][1].unit,
                )
            )
        return made

    def _basis(
        self, owner: str, own: Sequence[tuple[Account, Line]], delta: float, adjacency: Adjacency
    ) -> tuple[Basis, float | None]:
        """Return on what ground the ε of these accounts holds, and what holds if runs were planned by others' results."""
        if len({account.together for account, _ in own}) == 1:
            return "plan", None
        budget = self.budgets.get(owner, self.budget)
        if (
            budget is not None
            and all(line.ground == "filter" for _, line in own)
            and not self._before_raise(owner) & {account.run for account, _ in own}
            and budget.adjacency == adjacency
            and budget.delta <= delta
        ):
            return "filter", budget.epsilon
        return "plans", None

    def to_json(self) -> str:
        """Return the whole record as plain JSON."""
        content = {
            "format": _FORMAT,
            "budget": asdict(self.budget) if self.budget else None,
            "budgets": {owner: asdict(budget) for owner, budget in self.budgets.items()},
            "accounts": [
                {
                    "run": account.run,
                    "together": account.together,
                    "state": account.state,
                    "allowed": account.allowed,
                    "spent": account.spent,
                    "lines": [line.to_json() for line in account.lines],
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
            budget = None if content["budget"] is None else Budget(**content["budget"])
            ledger = cls(budget, {owner: Budget(**b) for owner, b in content["budgets"].items()})
            for row in content["accounts"]:
                ledger._read(**row)
            ledger.decisions = [read_decision(row) for row in content["decisions"]]
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
            if isinstance(error, PrivacyError):
                raise
            raise PrivacyError(f"this is not a ledger: {type(error).__name__}: {error}") from error
        return ledger

    def _read(
        self, run: str, together: str, state: State, allowed: int, spent: int, lines: list[dict[str, Any]]
    ) -> None:
        if run in self._accounts or type(run) is not str or type(together) is not str:
            raise TypeError(f"an account that is repeated or not named by a text: {run!r}")
        if type(allowed) is not int or type(spent) is not int or not 0 <= spent <= allowed:
            raise TypeError(f"run {run!r} has spent {spent!r} of {allowed!r}")
        if state not in get_args(State):
            raise TypeError(f"run {run!r} is {state!r}")
        read = tuple(_read_line(row, allowed) for row in lines)
        if not read or len({line.owner for line in read}) < len(read):
            raise TypeError(f"run {run!r} has no owner, or one twice")
        self._keep(Account(run, read, allowed, spent, state, together))

    def _charged(self, owner: str | None, run: str | None) -> list[tuple[Account, Line]]:
        held = self._by_owner.values() if owner is None else [self._by_owner.get(owner, [])]
        return [
            (account, line)
            for each in held
            for account, line in each
            if account.charged and (run is None or account.run == run)
        ]

    def _readers(self, owners: Sequence[str]) -> dict[str, tuple[str, ...]]:
        read = [(account.run, line) for account, line in self._charged(None, None) if not line.private]
        if not read:
            return dict.fromkeys(owners, ())
        by_owner: dict[str, dict[str, None]] = {}
        by_records: dict[str, dict[tuple[str, str], None]] = {}
        for run, line in read:
            by_owner.setdefault(line.owner, {})[run] = None
            by_records.setdefault(line.records, {})[run, line.partition] = None
        found = {}
        for owner in owners:
            runs = dict(by_owner.get(owner, {}))
            for records, partition in {(line.records, line.partition) for _, line in self._by_owner.get(owner, [])}:
                if records:
                    runs |= {run: None for run, other in by_records.get(records, {}) if other != partition}
            found[owner] = tuple(runs)
        return found

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
        for line in account.lines:
            self._by_owner.setdefault(line.owner, []).append((account, line))


def _advice(unit: str) -> str:
    if unit == RECORD:
        return "This ledger has promised records, of whom one may have several; nothing stronger can be added to that"
    return f"Protect every {unit} here, too"


def _elsewhere(line: Line, records: str, partition: str) -> bool:
    """Say whether a line is of the same records, dealt to owners in another way."""
    return bool(records) and line.records == records and line.partition != partition


def _lines(
    owners: Sequence[str], records: str, partition: str, mechanisms: Sequence[Mechanism], release: bool
) -> tuple[Line, ...]:
    if len(owners) != len(mechanisms):
        raise PrivacyError(f"{len(mechanisms)} mechanisms for {len(owners)} owners; give one for each")
    return tuple(
        Line(owner, records, partition, mechanism, release) for owner, mechanism in zip(owners, mechanisms, strict=True)
    )


def _read_line(row: dict[str, Any], allowed: int) -> Line:
    line = Line.of_json(row)
    if line.private:
        line.event(allowed)  # checks the number
    return line
