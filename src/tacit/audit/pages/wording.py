"""What an audit found, in words and rounded numbers: the same on the page and in a terminal.

A lower bound is rounded down and a claim up, so that what is shown is never more than what was found.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tacit.report.wording import epsilon, number

Document = Mapping[str, Any]
"""An audit as `audit.json` has it."""

METHODS = {
    "clopper_pearson": ("any fault", "holds whatever may be wrong with the system"),
    "tradeoff": ("noise", "is sharper, and holds if only the amount of noise may be wrong"),
    "one_run": ("any fault", "holds whatever may be wrong with the system"),
    "one_run_fdp": ("noise", "is sharper, and holds if only the amount of noise may be wrong"),
    "gaussian": ("gaussian", "supposes many queries: an indication, on which no verdict rests"),
}
"""For every kind of bound: how its column is headed, and when it holds."""


def lower(value: float | None) -> str:
    """Write a lower bound, rounded down to three decimals."""
    if value is None or not math.isfinite(value):
        return number(value)
    return f"{math.floor(value * 1000 * (1 + 1e-12)) / 1000:.3f}" if value > 0 else "0"


def claimed(document: Document) -> str:
    """Write the ε that is claimed."""
    value = document["claimed"]["epsilon"]
    return "∞" if value is None else epsilon(value)


def confidence(document: Document) -> str:
    """Write the confidence as a percentage."""
    return _percentage(document["confidence"])


def whatever_is_wrong(document: Document) -> float | None:
    """Return the largest bound that supposes nothing, if it is below the largest of all, which then supposes something."""
    looks = document.get("looks", [document])  # one run is one look
    found = [b["epsilon"] for look in looks for b in look["bounds"] if b["method"] in ("clopper_pearson", "one_run")]
    return max(found) if found and max(found) < document["lower_bound"] else None


def verdict(document: Document) -> str:
    """Say in one sentence what came out."""
    bound, sure = document["lower_bound"], f"at {confidence(document)} confidence"
    weaker = whatever_is_wrong(document)
    which = "" if weaker is None else f" if only the noise may be wrong, and {lower(weaker)} whatever is"
    if document["verdict"] == "broken":
        return f"The claim of ε = {claimed(document)} is broken: it is at least {lower(bound)}{which}, {sure}."
    if not bound > 0:
        return f"No violation found. The attack showed no loss of privacy {sure}."
    return f"No violation found. ε is at least {lower(bound)}{which}, {sure}; up to {claimed(document)} is claimed."


def consequence(document: Document) -> str:
    """Say what that means for the claim."""
    if document["verdict"] == "broken":
        return "Something in this system leaks more than it promises; do not rely on its ε."
    return "This is no proof that the claim holds, only that this attack did not refute it."


def reach(document: Document) -> str:
    """Say what so many runs can show at all."""
    found = document["within_reach"]
    if not found > 0:
        return "So few runs would show nothing of a system that just uses its claim up; take more."
    return f"So many runs would show about ε ≥ {lower(found)} of a system that uses its claim up, to one who sees all of it."


def methods(looks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the kinds of bounds that the looks have, in their order."""
    return list(dict.fromkeys(bound["method"] for look in looks for bound in look["bounds"]))


def heading(method: str) -> str:
    """Return how the column of a kind of bound is headed."""
    return METHODS.get(method, (method.replace("_", " "), ""))[0]


def bounds_of(look: Mapping[str, Any], among: Sequence[str]) -> list[str]:
    """Write a look's bounds, one for each kind."""
    found = {bound["method"]: lower(bound["epsilon"]) for bound in look["bounds"]}
    return [found.get(method, "–") for method in among]


def estimate(look: Mapping[str, Any]) -> str:
    """Write a point estimate with its interval; what is infinite is null in a file."""
    low, high = (_or_infinite(end, 2) for end in look["interval"])
    return f"{_or_infinite(look['estimate'], 3)} ({low} to {high})"


def intervals(document: Document) -> str:
    """Say what the estimates and their intervals are, and how sure these are."""
    each = document["looks"][0]["bounds"][0]["confidence"]
    return (
        "An estimate takes the counts at their face and proves nothing. Behind it is the interval that the counts allow: "
        f"each one at {_percentage(each)}, so that all intervals of this audit together hold at {confidence(document)}."
    )


def errors_of(look: Mapping[str, Any]) -> tuple[str, str]:
    """Write how many false alarms and misses there were, and of how many."""
    counts = look["outcomes"]
    alarms = f"{counts['false_alarms']:,}/{counts['absent']:,}"
    return alarms, f"{counts['misses']:,}/{counts['present']:,}"


def _or_infinite(value: float | None, decimals: int) -> str:
    return "∞" if value is None or math.isinf(value) else f"{value:.{decimals}f}"


def _percentage(share: float) -> str:
    return f"{100 * share:.6g}\u202f%"
