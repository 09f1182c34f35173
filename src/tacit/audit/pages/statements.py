"""What an audit found, in sentences and rounded numbers: the same on the page and in a terminal.

A lower bound is rounded down and a claim up, so that no more is shown than was found.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tacit.report.wording import lower_bound, write_epsilon

Document = Mapping[str, Any]
"""The content of `audit.json`."""

METHODS = {
    "clopper_pearson": ("any fault", "holds whatever is wrong with the system"),
    "tradeoff": ("noise", "is tighter, and holds if only the amount of noise may be wrong"),
    "one_run": ("any fault", "holds whatever is wrong with the system"),
    "one_run_fdp": ("noise", "is tighter, and holds if only the amount of noise may be wrong"),
    "gaussian": ("gaussian", "assumes many queries: an indication, on which no verdict rests"),
}
"""For every kind of bound: the heading of its column, and when it holds."""


def claimed(document: Document) -> str:
    """Write the claimed ε."""
    value = document["claimed"]["epsilon"]
    return "∞" if value is None else write_epsilon(value)


def confidence(document: Document) -> str:
    """Write the confidence as a percentage."""
    return percentage(document["confidence"])


def unconditional_bound(document: Document) -> float | None:
    """Return the largest bound that holds whatever is wrong, if the largest of all assumes more and is above it."""
    parts = document.get("thresholds", [document])  # an audit of one run has none
    found = [b["epsilon"] for each in parts for b in each["bounds"] if b["method"] in ("clopper_pearson", "one_run")]
    return max(found) if found and max(found) < document["lower_bound"] else None


def verdict(document: Document) -> str:
    """Say in one sentence what was found."""
    bound, sure = document["lower_bound"], f"at {confidence(document)} confidence"
    weaker = unconditional_bound(document)
    which = "" if weaker is None else f" if only the noise may be wrong, and {lower_bound(weaker)} whatever is wrong"
    if document["verdict"] == "broken":
        return f"The claim of ε = {claimed(document)} is broken: ε is at least {lower_bound(bound)}{which}, {sure}."
    if not bound > 0:
        return f"No violation found. The attack showed no loss of privacy {sure}."
    return f"No violation found. ε is at least {lower_bound(bound)}{which}, {sure}; the claim is {claimed(document)}."


def consequence(document: Document) -> str:
    """Say what that means for the claim."""
    if document["verdict"] == "broken":
        return "This system leaks more than it claims; do not rely on its ε."
    return "This does not prove the claim; it only means that this attack did not refute it."


def reach(document: Document) -> str:
    """Say how much this many runs can show."""
    found = document["within_reach"]
    if not found > 0:
        return (
            "So few runs can hardly tell a system that spends all of its claim from one that leaks nothing; use more."
        )
    return f"For a system that spends all of its claim, this many runs would show about ε ≥ {lower_bound(found)} to an attacker who sees everything."


def methods(thresholds: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the kinds of bounds at the thresholds, in order."""
    return list(dict.fromkeys(bound["method"] for each in thresholds for bound in each["bounds"]))


def bounds_of(threshold: Mapping[str, Any], among: Sequence[str]) -> list[str]:
    """Write the bounds at a threshold, one for each kind."""
    found = {bound["method"]: lower_bound(bound["epsilon"]) for bound in threshold["bounds"]}
    return [found.get(method, "–") for method in among]


def estimate(threshold: Mapping[str, Any]) -> str:
    """Write a point estimate with its interval; infinite values are null in a file."""
    low, high = (_or_infinite(end, 2) for end in threshold["interval"])
    return f"{_or_infinite(threshold['estimate'], 3)} ({low} to {high})"


def intervals(document: Document) -> str:
    """Explain the estimates, their intervals and the confidence."""
    each = document["thresholds"][0]["bounds"][0]["confidence"]
    return (
        "An estimate takes the counts at face value and proves nothing. After it is the interval that the counts allow: "
        f"each at {percentage(each)} confidence, so that all intervals of this audit hold together at {confidence(document)}."
    )


def errors_of(threshold: Mapping[str, Any]) -> tuple[str, str]:
    """Write the numbers of false alarms and misses, each with its total."""
    counts = threshold["outcomes"]
    alarms = f"{counts['false_alarms']:,}/{counts['absent']:,}"
    return alarms, f"{counts['misses']:,}/{counts['present']:,}"


def _or_infinite(value: float | None, decimals: int) -> str:
    return "∞" if value is None or math.isinf(value) else f"{value:.{decimals}f}"


def percentage(share: float) -> str:
    """Write a share with as many digits as it needs."""
    return f"{100 * share:.6g}\u202f%"
