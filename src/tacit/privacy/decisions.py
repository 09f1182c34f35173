"""Decisions of people about a ledger: who, what and why. The ledger keeps them beside the events, and nothing removes them."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from tacit.errors import PrivacyError

DecisionKind = Literal["abandon", "raise"]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One decision. `abandon`: a run that was killed or stopped makes no more queries. `raise`: a budget was increased."""

    kind: DecisionKind
    subject: str
    """The abandoned run, or the owner whose budget was raised; empty for the budget of all owners."""
    who: str
    reason: str
    time: str
    before: float | None = None
    after: float | None = None
    """The ε of a raised budget, before and after."""
    runs: int = 0
    """The number of runs on record when a budget was raised: their results may have been the reason."""

    def __str__(self) -> str:
        did = f"abandoned run {self.subject!r}"
        if self.kind == "raise":
            of = f" of {self.subject!r}" if self.subject else ""
            did = f"raised the budget{of} from ε={self.before:g} to ε={self.after:g}"
        return f"{self.time[:16].replace('T', ' ')} {self.who} {did}: {self.reason}"


def decide(*, who: str, reason: str, **facts: Any) -> Decision:
    """Return a decision made now; a name and a reason are required."""
    for what, text in (("who decided", who), ("the reason", reason)):
        if not isinstance(text, str) or not text.strip():
            raise PrivacyError(f"say {what}: the ledger records it for later readers")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Decision(who=who.strip(), reason=reason.strip(), time=now, **facts)


def read_decision(row: dict[str, Any]) -> Decision:
    """Read a decision from plain JSON; anything else is an error."""
    found = Decision(**row)
    texts = (found.kind, found.subject, found.who, found.reason, found.time)
    epsilons = (float, int) if found.kind == "raise" else (type(None),)  # other programs write 2.0 as 2
    if (
        found.kind not in get_args(DecisionKind)
        or not all(type(text) is str for text in texts)
        or not all(type(value) in epsilons for value in (found.before, found.after))
        or type(found.runs) is not int
    ):
        raise TypeError(f"a decision with fields of the wrong kind: {row}")
    return found
