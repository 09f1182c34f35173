"""What a check of one's own settings found, as data for a file, a page or a terminal."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

CheckOutcome = Literal["pass", "fail", "inconclusive"]
CheckVerdict = Literal["no fault found", "fault found"]

CANNOT_SHOW = (
    "A pass is not a proof. The check covers only these made-up records, this many queries and this machine.",
    "It cannot find records nobody thought of, faults smaller than the stated bounds, or what a rule asks through at.query.",
    "Compiled gradients are checked only where the settings always compile.",
    "Accounting, ledger and messages are not covered; use tacit ledger --verify and tacit audit neighbor for those.",
    "Masks are tested against one coalition, the worst of the stated size; tacit audit coalition attacks whole runs.",
)


@dataclass(frozen=True)
class CheckFinding:
    """One line of a check.

    measured, bound: text with numbers.
    p_value: of data at least as far off, times the number of tests that it is the least of; None where no chance is involved.
    false_alarm: the highest probability that a sound system fails here.
    """

    part: str
    name: str
    outcome: CheckOutcome
    measured: str
    bound: str
    p_value: float | None = None
    false_alarm: float = 0.0


def compare(part: str, name: str, p_value: float, false_alarm: float, measured: str, bound: str) -> CheckFinding:
    """Return the finding of a statistical test, which fails where its p-value is below its false-alarm rate."""
    outcome: CheckOutcome = "fail" if p_value < false_alarm else "pass"
    measured, bound = f"{measured}; p = {p_value:.2g}", f"{bound}; p ≥ {false_alarm:.2g}"
    return CheckFinding(part, name, outcome, measured, bound, p_value, false_alarm)


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """All findings of a check. Sound settings fail with probability `false_alarm` at most."""

    findings: tuple[CheckFinding, ...]
    about: str
    seconds: float

    @property
    def false_alarm(self) -> float:
        """The highest probability that a sound system fails anywhere."""
        return float(f"{math.fsum(each.false_alarm for each in self.findings):.6g}")

    @property
    def failed(self) -> tuple[CheckFinding, ...]:
        """The findings that failed."""
        return tuple(each for each in self.findings if each.outcome == "fail")

    @property
    def verdict(self) -> CheckVerdict:
        """Whether anything failed."""
        return "fault found" if self.failed else "no fault found"

    def of(self, part: str) -> tuple[CheckFinding, ...]:
        """Return the findings of one detector: influence, bits, noise or lots."""
        return tuple(each for each in self.findings if each.part == part)

    def outcome(self, part: str, name: str) -> CheckOutcome:
        """Return the outcome of one finding."""
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
