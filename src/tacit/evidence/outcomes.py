"""The outcome of verifying one thing: it holds, it fails, it could not be checked, or it is shown with nothing to compare it with."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Outcome = Literal["holds", "fails", "not checked", "shown"]


@dataclass(frozen=True)
class Verification:
    """One thing that was verified, and the outcome."""

    what: str
    outcome: Outcome
    words: str


def conclude(what: str, problems: Iterable[str], words: str) -> Verification:
    """Conclude that something holds if there are no problems; else that it fails, with the first three of them."""
    wrong = list(problems)
    if not wrong:
        return Verification(what, "holds", words)
    more = f"; and {len(wrong) - 3} more" if len(wrong) > 3 else ""
    return Verification(what, "fails", "; ".join(wrong[:3]) + more)
