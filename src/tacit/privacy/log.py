"""The log of a ledger: rows are appended and never changed, and each is hashed with all before it.

budget    a budget was set, for one owner or (owner "") for each
open      an account was opened: run, token, allowance, the owners' lines with their mechanisms
query     one query was charged to an account
close     an account was closed, as finished or as stopped
decision  a person abandoned a run or raised a budget
anchor    the head of a run's events, which the ledger's own head then covers

Every row has a random salt, so that a row of which only the digest is shown cannot be guessed.

`Reader` rebuilds a ledger from its rows, and refuses a row that contradicts those before it. The ledger on disk uses it, and so
does the verification of a copy of the log, in which some rows may be shown by their digests alone.
"""

import secrets
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from tacit.errors import PrivacyError
from tacit.io import chains
from tacit.privacy.accounts import Account, Line, State, lines_of_json, lines_to_json
from tacit.privacy.decisions import Decision, read_decision
from tacit.privacy.guarantees import Budget
from tacit.privacy.ledger import Ledger
from tacit.privacy.opening import EVERYONE, check_together

FORMAT = "tacit-ledger-7"
START = chains.start(FORMAT)
LogRow = dict[str, Any]
MakeAccount = Callable[[int, str, tuple[Line, ...], int, str, str], Account]

_FIELDS: dict[str, dict[str, type]] = {
    "budget": {"owner": str, "budget": dict},
    "open": {"account": int, "run": str, "token": str, "allowed": int, "together": str, "lines": list, "masks": object},
    "query": {"account": int, "number": int},
    "close": {"account": int, "state": str},
    "decision": {"decision": dict},
    "anchor": {"account": int, "events": str},
}


def budget_row(owner: str, budget: Budget) -> LogRow:
    """Return the row that sets a budget."""
    return {"kind": "budget", "owner": owner, "budget": budget.to_json()}


def open_row(number: int, account: Account, token: str) -> LogRow:
    """Return the row that opens an account; later rows refer to it by its number."""
    return {
        "kind": "open",
        "account": number,
        "run": account.run,
        "token": token,
        "allowed": account.allowed,
        "together": account.together,
        **lines_to_json(account.lines),
    }


def query_row(account: int, number: int) -> LogRow:
    """Return the row of an account's query; its queries are numbered from 1."""
    return {"kind": "query", "account": account, "number": number}


def close_row(account: int, state: State) -> LogRow:
    """Return the row that closes an account."""
    return {"kind": "close", "account": account, "state": state}


def decision_row(decision: Decision) -> LogRow:
    """Return the row of a decision."""
    return {"kind": "decision", "decision": asdict(decision)}


def anchor_row(account: int, events: str) -> LogRow:
    """Return the row with the head of a run's events."""
    return {"kind": "anchor", "account": account, "events": events}


def row_text(row: LogRow) -> str:
    """Return the text of a new row, with a salt."""
    return chains.canonical(row | {"salt": secrets.token_hex(16)})


def read_row(text: str) -> LogRow:
    """Parse a row, or raise a PrivacyError; only the canonical text of a row with a salt is accepted."""
    try:
        row = chains.parse(text)
        if not isinstance(row, dict) or row.get("kind") not in _FIELDS:
            raise ValueError("its kind is unknown")
        wanted = _FIELDS[row["kind"]] | {"salt": str}
        if set(row) != {"kind", *wanted}:
            raise ValueError(f"a row of kind {row['kind']!r} has the fields {', '.join(sorted(wanted))}")
        for name, kind in wanted.items():
            if kind is not object and type(row[name]) is not kind:
                raise ValueError(f"{name} is {str(row[name])[:80]!r}")
        if chains.canonical(row) != text:
            raise ValueError("it is not in canonical form")
    except ValueError as error:
        raise PrivacyError(f"this is not a row of a ledger: {error}: {text[:120]}") from None
    del row["salt"]
    return row


class Reader:
    """Rebuilds the accounts, budgets and decisions of a ledger from its rows.

    `make` makes an account from its number, run, lines, allowance, token and the run it was opened together with. Accounts are
    numbered from 1 in the order of opening, including those in sealed rows.
    """

    def __init__(self, ledger: Ledger, make: MakeAccount | None = None) -> None:
        self.ledger = ledger
        self._make = make or (
            lambda _, run, lines, allowed, token, together: Account(run, lines, allowed, 0, "open", together)
        )
        self.accounts: dict[int, Account] = {}
        self.tokens: dict[int, str] = {}
        self.anchors: dict[int, list[str]] = {}
        self.sealed = 0
        self._opened = range(1)
        """The possible numbers of accounts opened so far: a sealed row may have opened one."""
        self._before: Account | None = None
        self._just_opened: Account | None = None
        """The accounts that the previous row and this row opened, if any."""

    def number_of(self, run: str) -> int | None:
        """Return the number of a run's account; None if there is none."""
        return next((number for number, account in self.accounts.items() if account.run == run), None)

    def apply(self, row: LogRow) -> None:
        """Apply one row, or raise a PrivacyError that says why it contradicts those before it."""
        self._before, self._just_opened = self._just_opened, None
        try:
            getattr(self, f"_{row['kind']}")(**{name: value for name, value in row.items() if name != "kind"})
        except PrivacyError:
            raise
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise PrivacyError(f"a row of the ledger cannot be read: {error}") from error

    def skip(self) -> None:
        """Skip a row of which only the digest is shown."""
        self.sealed += 1
        self._opened = range(self._opened.start, self._opened.stop + 1)
        self._just_opened = None

    def count(self, account: int, queries: int) -> None:
        """Add several queries of an account at once."""
        self._of(account)._spent += queries

    def _of(self, number: int) -> Account:
        if number not in self.accounts:
            raise PrivacyError(f"a row is of account {number}, which was not opened before it")
        return self.accounts[number]

    def _budget(self, owner: str, budget: dict[str, Any]) -> None:
        known = self.ledger.budget if owner == EVERYONE else self.ledger.budgets.get(owner)
        if known is not None:
            raise PrivacyError(f"a budget was set a second time, for {owner!r}")
        self._put_budget(owner, Budget.of_json(budget))
        self.ledger.set_after[owner] = len(self.accounts)

    def _put_budget(self, owner: str, budget: Budget) -> None:
        if owner == EVERYONE:
            self.ledger.budget = budget
        else:
            self.ledger.budgets[owner] = budget

    def _open(self, account: int, run: str, token: str, allowed: int, together: str, lines: Any, masks: Any) -> None:
        if run in self.ledger._accounts:
            raise PrivacyError(f"run {run!r} was opened a second time")
        if account - 1 not in self._opened:
            raise PrivacyError(f"run {run!r} is account {account}, but {self._opened_text()} were opened before it")
        read = lines_of_json(lines, masks)
        if not read:
            raise PrivacyError(f"run {run!r} names no data owner")
        if len({line.owner for line in read}) < len(read):
            raise PrivacyError(f"run {run!r} has an owner twice")
        if not 0 <= allowed <= 10**9:
            raise PrivacyError(f"run {run!r} was allowed {allowed} queries")
        if len({line.private for line in read}) > 1 or any(line.release and not line.private for line in read):
            raise PrivacyError(f"run {run!r} has a line without noise")
        for line in read:
            if (line.ground == "free") != (self.ledger._budget_of(line.owner) is None):
                budget = "no budget" if line.ground != "free" else "a budget"
                raise PrivacyError(f"run {run!r} was admitted as {line.ground!r}, but {line.owner!r} had {budget}")
        self.ledger._check_units(run, read)
        made = self._make(account, run, read, allowed, token, together)
        check_together(made, self._before)
        self.accounts[account], self.tokens[account] = made, token
        self._opened, self._just_opened = range(account, account + 1), made
        Ledger._keep(self.ledger, made)

    def _opened_text(self) -> str:
        least, most = self._opened.start, self._opened.stop - 1
        return str(least) if least == most else f"{least} to {most}"

    def _query(self, account: int, number: int) -> None:
        of = self._of(account)
        if number != of.spent + 1:
            raise PrivacyError(f"run {of.run!r} has query {number} after {of.spent}: some are missing")
        if of.state != "open":
            raise PrivacyError(f"run {of.run!r} has a query after it was {of.state}")
        if number > of.allowed:
            raise PrivacyError(f"run {of.run!r} has made {number} queries and was allowed {of.allowed}")
        of._spent = number

    def _close(self, account: int, state: State) -> None:
        of = self._of(account)
        if state not in ("finished", "stopped") or of.state != "open":
            raise PrivacyError(f"run {of.run!r} was closed as {state!r} when it was {of.state}")
        of._state = state

    def _decision(self, decision: dict[str, Any]) -> None:
        made = read_decision(decision)
        if made.kind == "abandon":
            account = self.ledger._accounts.get(made.subject)
            if account is None or account.state not in ("open", "stopped"):
                raise PrivacyError(f"run {made.subject!r} was abandoned when there was nothing to abandon")
            account._state = "abandoned"
        else:
            known = self.ledger.budget if made.subject == EVERYONE else self.ledger.budgets.get(made.subject)
            if known is None or made.before != known.epsilon or made.after is None or not made.after > known.epsilon:
                raise PrivacyError(f"a budget was raised from ε={made.before}, but {known or 'none'} was stored")
            if made.runs not in self._opened:
                raise PrivacyError(
                    f"a budget was raised after {made.runs} runs, but {self._opened_text()} were on record"
                )
            self._opened = range(made.runs, made.runs + 1)
            self._put_budget(made.subject, replace(known, epsilon=float(made.after)))
            made = replace(made, runs=sum(number <= made.runs for number in self.accounts))  # counting only those shown
        self.ledger.decisions.append(made)

    def _anchor(self, account: int, events: str) -> None:
        self._of(account)
        if not chains.is_hash(events):
            raise PrivacyError(f"an anchor of account {account} is not a hash")
        self.anchors.setdefault(account, []).append(events)
