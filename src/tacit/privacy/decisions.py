"""What a person decided about a ledger, with who and why. The ledger keeps it beside the events, and nothing removes it."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from tacit.errors import PrivacyError

Kind = Literal["abandon", "raise"]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One decision. `abandon`: a run that was killed or stopped never asks again. `raise`: a budget became larger."""

    kind: Kind
    subject: str
    """The run that was abandoned; the owner whose budget was raised, or nothing for the budget of all."""
    who: str
    reason: str
    time: str
    before: float | None = None
    after: float | None = None
    """ε of a budget that was raised, before and after."""
    runs: int = 0
    """How many runs were on record when a budget was raised: it may have been raised by their results."""

    def __str__(self) -> str:
        did = f"abandoned run {self.subject!r}"
        if self.kind == "raise":
            of = f" of {self.subject!r}" if self.subject else ""
            did = f"raised the budget{of} from ε={self.before:g} to ε={self.after:g}"
        return f"{self.time[:16].replace('T', ' ')} {self.who} {did}: {self.reason}"


def decide(*, who: str, reason: str, **facts: Any) -> Decision:
    """Return a decision that is made now; one without a name or a reason is refused."""
    for what, text in (("who decided", who), ("the reason", reason)):
        if not isinstance(text, str) or not text.strip():
            raise PrivacyError(f"say {what}: it is kept in the ledger for whoever reads it later")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Decision(who=who.strip(), reason=reason.strip(), time=now, **facts)


def read_decision(row: dict[str, Any]) -> Decision:
    """Return a decision that was kept as plain JSON; anything else is an error."""
    found = Decision(**row)
    texts = (found.kind, found.subject, found.who, found.reason, found.time)
    epsilons = (float, int) if found.kind == "raise" else (type(None),)  # other programs write 2.0 as 2
    if (
        found.kind not in get_args(Kind)
        or not all(type(text) is str for text in texts)
        or not all(type(value) in epsilons for value in (found.before, found.after))
        or type(found.runs) is not int
    ):
        raise TypeError(f"a decision with fields of the wrong kind: {row}")
    return found
