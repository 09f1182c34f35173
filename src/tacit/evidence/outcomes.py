"""What came of checking one thing: it holds, it fails, or it could not be checked, and in words why."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Outcome = Literal["holds", "fails", "not checked"]


@dataclass(frozen=True)
class Verification:
    """One thing that was looked at."""

    what: str
    outcome: Outcome
    words: str


def conclude(what: str, problems: Iterable[str], words: str) -> Verification:
    """Return that something holds, or how it fails: the first three problems, and how many there are."""
    wrong = list(problems)
    if not wrong:
        return Verification(what, "holds", words)
    more = f"; and {len(wrong) - 3} more" if len(wrong) > 3 else ""
    return Verification(what, "fails", "; ".join(wrong[:3]) + more)
