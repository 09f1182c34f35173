"""What a check of one's own settings found, as data for a file, a page or a terminal."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Outcome = Literal["pass", "fail", "inconclusive"]
Verdict = Literal["no fault found", "fault found"]

CANNOT_SHOW = (
    "A pass is no proof. The check sees what these made-up records, this many queries and this machine show.",
    "Records that nobody thought of, faults smaller than the stated bounds, and what a rule asks through at.query stay unseen.",
    "Compiled gradients are checked only where the settings say that they are always compiled.",
    "Accounting, ledger and messages are not looked at; tacit ledger --verify and tacit audit neighbor do that.",
)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One line of a check.

    measured, bound: in words, with numbers.
    p_value: of data at least as far from what is stated, times the number of tests it is the least of; None without chance.
    false_alarm: the probability that a sound system fails here, at most.
    """

    part: str
    name: str
    outcome: Outcome
    measured: str
    bound: str
    p_value: float | None = None
    false_alarm: float = 0.0


def judged(part: str, name: str, p_value: float, false_alarm: float, measured: str, bound: str) -> Finding:
    """Return a statistical finding, which fails where its p-value is below its false-alarm rate."""
    return Finding(
        part=part,
        name=name,
        outcome="fail" if p_value < false_alarm else "pass",
        measured=f"{measured}; p = {p_value:.2g}",
        bound=f"{bound}; p ≥ {false_alarm:.2g}",
        p_value=p_value,
        false_alarm=false_alarm,
    )


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """All findings of a check. Sound settings fail with probability `false_alarm` at most, whatever is looked at."""

    findings: tuple[Finding, ...]
    about: str
    seconds: float

    @property
    def false_alarm(self) -> float:
        """The probability that a sound system fails anywhere, at most."""
        return float(f"{math.fsum(each.false_alarm for each in self.findings):.6g}")

    @property
    def failed(self) -> tuple[Finding, ...]:
        """The findings that failed."""
        return tuple(each for each in self.findings if each.outcome == "fail")

    @property
    def verdict(self) -> Verdict:
        """Whether anything failed."""
        return "fault found" if self.failed else "no fault found"

    def of(self, part: str) -> tuple[Finding, ...]:
        """Return the findings of one detector: influence, bits, noise or lots."""
        return tuple(each for each in self.findings if each.part == part)

    def outcome(self, part: str, name: str) -> Outcome:
        """Return how one line came out."""
        return next(each.outcome for each in self.of(part) if each.name == name)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "verdict": self.verdict,
            "about": self.about,
            "false_alarm": self.false_alarm,
            "seconds": round(self.seconds, 1),
            "findings": [asdict(each) for each in self.findings],
            "failed": [f"{each.part}: {each.name}" for each in self.failed],
            "cannot_show": list(CANNOT_SHOW),
        }


def share(false_alarm: float, parts: Sequence[str]) -> float:
    """Return each part's share of a false-alarm rate."""
    return false_alarm / max(len(parts), 1)
