"""What a person decided about a ledger, with who and why. The ledger keeps it beside the events, and nothing removes it."""

from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from tacit.errors import PrivacyError

Kind = Literal["release"]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One decision. `release`: a run that was killed or stopped never asks again."""

    kind: Kind
    subject: str
    """The run that was released."""
    who: str
    reason: str
    time: str

    def __str__(self) -> str:
        return f"{self.time[:16].replace('T', ' ')} {self.who} released run {self.subject!r}: {self.reason}"


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
    if found.kind not in get_args(Kind) or not all(
        type(value) is str for field, value in asdict(found).items() if field in _TEXTS
    ):
        raise TypeError(f"a decision with fields of the wrong kind: {row}")
    return found


_TEXTS = {field.name for field in fields(Decision)}
