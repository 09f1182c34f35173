"""Numbers and promises in words, the same in the page and in the figures."""

import math
from typing import TYPE_CHECKING

from tacit.privacy.guarantees import format_epsilon

if TYPE_CHECKING:
    from tacit.report.reading import Run
    from tacit.report.spent import Spending

ADJACENCIES = {"add_remove": "add-or-remove-one", "replace_one": "replace-one"}
ACCOUNTANTS = {"pld": "privacy loss distributions (PLD)", "rdp": "Rényi divergences (RDP)"}
_THIN = "\u202f"  # a narrow space that does not break


def percent(share: float, digits: int = 1) -> str:
    """0.895 as 89.5 %."""
    return f"{100 * share:.{digits}f}{_THIN}%" if math.isfinite(share) else "–"


def promised(epsilon: float, delta: float, adjacency: str = "add_remove") -> str:
    """A claimed ε with all that it needs to mean something."""
    return f"ε = {epsilon:g} at δ = {delta:g}, {ADJACENCIES[adjacency]} adjacency"


def number(value: float | None, digits: int = 4) -> str:
    """Write a number with as many digits as it needs."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞"
    return f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"


def epsilon(value: float) -> str:
    """Write an ε to four digits, rounded up: never less than it is."""
    return format_epsilon(value) if 0 < value < math.inf else number(value)


def score(value: float, measure: str) -> str:
    """Write an accuracy or a loss."""
    return percent(value) if measure == "accuracy" else number(value)


def amount(count: float) -> str:
    """Write an amount of bytes."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f}{_THIN}{unit}" if unit == "bytes" else f"{count:.3g}{_THIN}{unit}"
        count /= 1000
    return f"{count:,.3g}{_THIN}TB"


def counted(number: int, noun: str) -> str:
    """Return a number of things: 1 agent, 2,000 agents."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(seconds: float) -> str:
    """Write a time as a person would say it."""
    if seconds < 60:
        return f"{seconds:.2g}{_THIN}s" if seconds < 10 else f"{seconds:.0f}{_THIN}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}{_THIN}min {rest}{_THIN}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,}{_THIN}h {minutes}{_THIN}min"


def agents(members: list[int]) -> str:
    """0, 1, 2, 5 as 0–2, 5; just how many there are where that would be long."""
    spans: list[list[int]] = []
    for member in members:
        if spans and member == spans[-1][1] + 1:
            spans[-1][1] = member
        else:
            spans.append([member, member])
    if len(spans) > 6:
        return f"{len(members):,} agents"
    return ", ".join(str(a) if a == b else f"{a}–{b}" if b > a + 1 else f"{a}, {b}" for a, b in spans)


def about(run: "Run") -> str:
    """One line on what was run."""
    plan, graph, split = run.plan, run.config.get("graph"), run.config.get("split")
    parts = [f"{plan.algorithm} on {plan.dataset}", "1 agent" if plan.agents == 1 else f"{plan.agents:,} agents"]
    if isinstance(graph, str) and plan.edges:
        parts.append(f"graph: {graph}")
    if split is not None:
        parts.append(f"split: {split}")
    parts.append(f"{plan.rounds:,} rounds" if run.finished else f"{run.round:,} of {plan.rounds:,} rounds so far")
    return " · ".join(parts)


def thin(count: int) -> float:
    """How opaque each of so many lines may be, that all of them together stay below the mean's."""
    return max(0.12, min(0.45, 4.5 / count))


def promise(spent: "Spending | None", *, central: bool = False, private: bool = True) -> str:
    """What a run that spent this promises to everyone who is protected, of agents or of one who has all data."""
    if spent is None and private:
        return "What this run promises cannot be said without the ledger that it was charged to."
    if spent is None:
        return (
            f"This run clips nothing and adds no noise: {'the model' if central else 'what the agents said'} can reveal "
            f"{'records' if central else 'their records'}. "
            "It is a baseline to compare with, for public or made-up data only."
        )
    guarantee = spent.guarantee
    factor = math.exp(guarantee.epsilon) if guarantee.epsilon < 700 else math.inf
    held, holds = ("the data", "was used") if central else ("an agent’s data", "an agent holds")
    tell = (
        f"whether any single {guarantee.unit} is among {held}"
        if guarantee.adjacency == "add_remove"
        else f"which of two {guarantee.unit}s {holds}"
    )
    who = (
        "Whatever someone makes of the published model, there is a limit to how well they can tell"
        if central
        else "Whatever all other agents together make of what they heard, there is a limit to how well they can tell"
    )
    words = (
        f"{who} {tell}: it makes any outcome at most {number(factor, 3)} (e to the ε) times as likely, but for a "
        f"probability of δ = {guarantee.delta:g}."
    )
    if central:
        words += " From the one who pools the data and trains on it, nothing is hidden."
    if guarantee.release:
        return words
    return (
        "Lots and noise of this run can be repeated, or it showed what only its data’s owners may see. "
        f"The figure is what it would have spent in secret. Then it would hold: {words[0].lower()}{words[1:]}"
    )


def attacks(epsilon: float, delta: float) -> tuple[float, float]:
    """Bound what a best attack on one record can do under (ε, δ).

    First, the share of even bets that it wins; second, how many of the true cases it catches if it may be wrong
    about one in a hundred of the others.
    """
    even = (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon))
    wrong = 0.01
    caught = min(math.exp(min(epsilon, 700)) * wrong + delta, 1 - math.exp(-epsilon) * (1 - delta - wrong))
    return even, min(caught, 1.0)
