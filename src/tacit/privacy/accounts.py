"""The account of one run: whose data it may ask, by which mechanism, how often, and what it is charged.

What is charged is not always what was spent. The ε of a number of queries is proven where that number was fixed
beforehand. So an account that is open, or was stopped early, is charged all queries it was allowed: the decision to stop
may depend on the answers, and the answers so far are a part of what the whole plan would have released. A finished run
is charged the queries it made, whose number was fixed before the first answer; spare queries that were not needed are
not charged, since their use depends on crashes and not on answers.

A run that was killed or stopped can be *abandoned*: it makes no more queries. Its ε stays that of its plan. But the filter
of a budget adds up the queries actually made, and holds whenever a run stops. So an abandoned run that was admitted by the
filter counts there with the queries it made, each recorded before its answer left the oracle, and the rest become free for other runs.
"""

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from tacit.errors import BudgetExceeded, PrivacyError
from tacit.privacy.accounting import Accountant, Adjacency, largest_epsilon
from tacit.privacy.event import Event
from tacit.privacy.mechanisms import Mechanism
from tacit.privacy.noise_kinds import Masked, Masks
from tacit.privacy.observers import EVERYBODY, Observer

State = Literal["open", "stopped", "finished", "abandoned"]
Ground = Literal["free", "plan", "filter"]
"""How a run was admitted: without a budget; by the ε of its plan, as the first; by the budget's filter."""


@dataclass(frozen=True)
class Line:
    """One owner's share in an account: whose data, by which mechanism, and whether it can be a release.

    `records` names the data set and `partition` how it was divided among owners: in another division the same record has
    another owner, and its budget must not start again.
    """

    owner: str
    records: str
    partition: str
    mechanism: Mechanism
    release: bool
    ground: Ground = "free"

    @property
    def private(self) -> bool:
        """Whether there is noise."""
        return self.mechanism.private

    @property
    def unit(self) -> str:
        """Who is protected."""
        return self.mechanism.sampler.unit

    def event(self, count: int, observer: Observer = EVERYBODY) -> Event:
        """Return this many queries of the mechanism, from the point of view of an observer."""
        return self.mechanism.event(count, observer)

    def to_json(self) -> dict[str, Any]:
        """Return the line as plain data for JSON. Masks are shared by all lines, so the account stores them once."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        return plain | {"mechanism": self.mechanism.to_json()}

    @staticmethod
    def of_json(document: Any, masks: Masks | None = None) -> "Line":
        """Read plain data back; anything else is an error."""
        kinds = {"owner": str, "records": str, "partition": str, "mechanism": dict, "release": bool, "ground": str}
        if not isinstance(document, dict) or set(document) != set(kinds):
            raise PrivacyError(
                f"a line of an account has the fields {', '.join(kinds)}, but this is {str(document)[:200]}"
            )
        if wrong := [name for name, kind in kinds.items() if type(document[name]) is not kind]:
            raise PrivacyError(f"a line with a field of the wrong type: {wrong[0]} is {document[wrong[0]]!r}")
        if document["ground"] not in get_args(Ground):
            raise PrivacyError(f"a line admitted by {document['ground']!r}")
        return Line(**(document | {"mechanism": Mechanism.of_json(document["mechanism"], masks)}))


def lines_to_json(lines: Sequence[Line]) -> dict[str, Any]:
    """Return the lines of an account as plain data, with the masks its owners share, or null."""
    shared = {line.mechanism.noise.masks for line in lines if isinstance(line.mechanism.noise, Masked)}
    if len(shared) > 1:
        raise PrivacyError("the owners in an account share different masks; their noise would not cancel")
    return {"lines": [line.to_json() for line in lines], "masks": shared.pop().to_json() if shared else None}


def lines_of_json(lines: Any, masks: Any) -> tuple[Line, ...]:
    """Read the lines of an account back; anything else is an error."""
    if type(lines) is not list:
        raise PrivacyError(f"the lines of an account are a list, but this is {str(lines)[:200]}")
    shared = None if masks is None else Masks.of_json(masks)
    read = tuple(Line.of_json(line, shared) for line in lines)
    noises = [line.mechanism.noise for line in read]
    places = [noise.agent for noise in noises if isinstance(noise, Masked)]
    if (shared is None) == bool(places) or (places and len(places) < len(noises)) or len({*places}) < len(places):
        raise PrivacyError("masks must be in all lines of an account, each of a different agent")
    return read


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What one run is charged on one owner's data."""

    owner: str
    run: str
    event: Event | None
    """The queries charged; None for a run without privacy."""
    spent: int
    """The number of queries made."""
    state: State
    release: bool


class Account:
    """One run's allowance on several owners' data; each `spend` is one query of every one of them.

    Accounts opened in one call have the same `together`: the first one's run.
    """

    def __init__(
        self,
        run: str,
        lines: tuple[Line, ...],
        allowed: int,
        spent: int = 0,
        state: State = "open",
        together: str | None = None,
    ) -> None:
        self.run, self.lines, self.together = run, lines, run if together is None else together
        self._allowed, self._spent, self._state = allowed, spent, state
        self._lock = threading.Lock()

    @property
    def allowed(self) -> int:
        """The number of queries that the run was planned and calibrated for."""
        return self._allowed

    @property
    def spent(self) -> int:
        """The number of queries made."""
        return self._spent

    @property
    def state(self) -> State:
        """Whether queries can still be made and, if not, whether the run finished."""
        return self._state

    @property
    def remaining(self) -> int:
        """The number of queries that may still be made."""
        return self._allowed - self._spent if self._state == "open" else 0

    @property
    def charged(self) -> int:
        """The number of queries charged: those made by a finished run, otherwise all allowed; none if none was made."""
        if self._state == "finished" or (self._state in ("stopped", "abandoned") and not self._spent):
            return self._spent
        return self._allowed

    def largest_epsilon(
        self,
        *,
        delta: float,
        adjacency: Adjacency,
        accountant: Accountant,
        queries: int | None = None,
        observer: Observer = EVERYBODY,
    ) -> tuple[int, float]:
        """Return the index in `lines` of the owner with the highest ε, and that ε, which is the one that a run states.

        It counts the queries charged, or `queries` if given. Without noise, ε is infinite.
        """
        count = self.charged if queries is None else queries
        plain = [place for place, line in enumerate(self.lines) if not line.private]
        if plain:
            return plain[0], math.inf
        histories = [[line.event(count, observer)] for line in self.lines]
        return largest_epsilon(histories, delta=delta, adjacency=adjacency, accountant=accountant)

    def filtered(self, line: Line) -> int:
        """Return how many queries a budget's filter counts: for an abandoned run that it admitted, only those made."""
        return self._spent if self._state == "abandoned" and line.ground == "filter" else self.charged

    def to_free(self, line: Line) -> int:
        """Return how many queries of one owner's data an unraised budget would no longer count if this run were abandoned."""
        if self._state not in ("open", "stopped") or (self._spent and line.ground != "filter"):
            return 0
        return self.charged - self._spent

    def spend(self) -> None:
        """Write one query to the ledger, for every owner, or raise and write nothing."""
        with self._lock:
            self.check()
            self._write()

    def check(self) -> None:
        """Raise if no further query is allowed."""
        if self._state != "open":
            raise BudgetExceeded(f"the account of run {self.run!r} is closed; no query can be charged to it")
        if self._spent >= self._allowed:
            raise BudgetExceeded(
                f"run {self.run!r} has made all {self._allowed} queries that it was calibrated for; one more would "
                "exceed its ε. The number of queries of an algorithm must not depend on the answers. The query was not made"
            )

    def close(self, *, finished: bool = False) -> None:
        """Allow no more queries. `finished` means that all planned queries were made."""
        if self._state == "open":
            self._state = "finished" if finished else "stopped"

    def _write(self) -> None:
        """Record one more query."""
        self._spent += 1
