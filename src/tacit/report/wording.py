"""Numbers and guarantees in words, the same in pages, figures and the terminal."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tacit.privacy.accounting import ceil_digits
from tacit.privacy.guarantees import format_epsilon
from tacit.privacy.observers import EVERYBODY, Observer

if TYPE_CHECKING:
    from tacit.report.recorded import RecordedRun
    from tacit.report.spending import Spending
    from tacit.runs.event_types import PlanEvent
    from tacit.runs.python_config import AnyConfig

ADJACENCIES = {"add_remove": "add-or-remove-one", "replace_one": "replace-one"}
ACCOUNTANTS = {"pld": "privacy loss distributions (PLD)", "rdp": "Rényi divergences (RDP)"}
_THIN = "\u202f"  # a narrow space that does not break
_MOST_NAMED = 40  # parts of a list of agents whom masks do not protect


def percent(share: float, digits: int = 1) -> str:
    """Write 0.895 as 89.5 %."""
    return f"{100 * share:.{digits}f}{_THIN}%" if math.isfinite(share) else "–"


def percent_at_most(share: float) -> str:
    """Write a share that is an upper bound, rounded up, so never less than it is."""
    return percent(math.ceil(1000 * share * (1 - 1e-12)) / 1000)


def write_guarantee(epsilon: float, delta: float, adjacency: str = "add_remove") -> str:
    """Write an ε, rounded up to four digits, with its δ and adjacency."""
    return f"ε = {format_epsilon(epsilon)} at δ = {delta:g}, {ADJACENCIES[adjacency]} adjacency"


def number(value: float | None, digits: int = 4) -> str:
    """Write a number with as many digits as it needs."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞"
    return f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"


def write_epsilon(value: float) -> str:
    """Write an ε to four digits, rounded up, so never less than it is."""
    return format_epsilon(value) if 0 < value < math.inf else number(value)


def lower_bound(value: float | None) -> str:
    """Write a lower bound on ε, rounded down to three decimals, so never more than it is."""
    if value is None or not math.isfinite(value):
        return number(value)
    return f"{math.floor(value * 1000 * (1 + 1e-12)) / 1000:.3f}" if value > 0 else "0"


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
    """Write a number of things: 1 agent, 2,000 agents."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(seconds: float) -> str:
    """Write a time in seconds, minutes or hours."""
    if seconds < 60:
        return f"{seconds:.2g}{_THIN}s" if seconds < 10 else f"{seconds:.0f}{_THIN}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}{_THIN}min {rest}{_THIN}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,}{_THIN}h {minutes}{_THIN}min"


def list_agents(members: list[int], most: int = 6) -> str:
    """Write 0, 1, 2, 5 as 0–2, 5, or as the number of agents if that would be more than so many parts."""
    spans: list[list[int]] = []
    for member in members:
        if spans and member == spans[-1][1] + 1:
            spans[-1][1] = member
        else:
            spans.append([member, member])
    if len(spans) > most:
        return f"{len(members):,} agents"
    return ", ".join(str(a) if a == b else f"{a}–{b}" if b > a + 1 else f"{a}, {b}" for a, b in spans)


def name_agents(members: list[int]) -> str:
    """Name agents by their numbers in a sentence: agent 4, agents 0–2, 5, or 40 agents where a list would be very long."""
    named = list_agents(members, most=_MOST_NAMED)
    return named if named.endswith("agents") else f"agent{'' if len(members) == 1 else 's'} {named}"


def describe_run(run: "RecordedRun") -> str:
    """Describe a run in one line."""
    plan, graph, split = run.plan, run.config.get("graph"), run.config.get("split")
    site = plan.site
    who = (
        counted(plan.agents, "agent")
        if site is None
        else f"{name_site_or_agent(plan, 0)}, one of {len(site.members):,} sites"
    )
    parts = [f"{plan.algorithm} on {plan.dataset}", who]
    if isinstance(graph, str) and (plan.edges or site is not None):
        parts.append(f"graph: {graph}")
    if split is not None and site is None:  # a site has records of its own
        parts.append(f"split: {split}")
    rounds = (
        f"{plan.total_rounds:,} rounds" if run.finished else f"{run.round:,} of {plan.total_rounds:,} rounds so far"
    )
    parts.append(rounds + (f", {plan.gossip_rounds:,} of them without queries" if plan.gossip_rounds else ""))
    return " · ".join(parts)


def name_site_or_agent(plan: "PlanEvent", agent: int) -> str:
    """Name an agent of a run, or the site whose own view the run is."""
    return f"agent {agent}" if plan.site is None else plan.site.members[plan.site.agent]


def span(values: Sequence[float], write: Callable[[float], str] = number, between: str = " to ") -> str:
    """Write the smallest and the largest of some numbers, or the one if all are written alike."""
    low, high = write(min(values)), write(max(values))
    return low if low == high else f"{low}{between}{high}"


def opacity(count: int) -> float:
    """Return how opaque each of `count` lines may be, so that the line of their mean stands out."""
    return max(0.12, min(0.45, 4.5 / count))


def explain_guarantee(spent: "Spending | None", *, central: bool = False, private: bool = True) -> str:
    """Say what a run guarantees: against the other agents or, of `central` training, against those who see the model."""
    if spent is None and private:
        return "The guarantee of this run is unknown without the ledger that it was charged to."
    if spent is None:
        reveals = "the model can reveal records" if central else "the agents’ messages can reveal their records"
        return f"This run clips nothing and adds no noise: {reveals}. Use it only as a baseline, on public or made-up data."
    kept = spent.guarantee
    stated = ceil_digits(kept.epsilon)
    factor = ceil_digits(math.exp(stated), 3) if stated < 700 else math.inf
    held, holds = ("the data", "was used") if central else ("an agent’s data", "an agent holds")
    either = f"whether or not any single {kept.unit} is among {held}"
    if kept.adjacency == "replace_one":
        either = f"whichever of two {kept.unit}s {holds}"
    learned = "someone can learn from the published model" if central else _say_what_is_learned(kept.observer)
    words = (
        f"What {learned} is limited: {either}, any outcome is at most {number(factor, 3)} (e to the ε) times as likely, plus a "
        f"probability of δ = {kept.delta:g}."
    )
    if spent.masked:
        words += f" If all other agents pool what they know, only an agent’s own noise protects it, and ε is {write_epsilon(spent.everybody.epsilon)}."
    if central:
        words += " Nothing is hidden from whoever pools the data and trains on it."
    if kept.release:
        return words
    return (
        "The lots and noise of this run can be reproduced, or it showed what only the owners of the data may see. With secret lots "
        f"and noise it would have spent this ε, which means: {words[0].lower()}{words[1:]}"
    )


def _say_what_is_learned(observer: Observer) -> str:
    if observer == EVERYBODY:
        return "all other agents together can learn from the messages that they received"
    if observer.curious == 0:
        return "someone without any agent’s masks can learn from all messages"
    if observer.curious == 1:
        return "any one other agent can learn from all messages and the masks that it shares"
    return f"any {observer.curious} other agents together can learn from all messages and the masks that they share"


def claim(spent: "Spending") -> str:
    """State the ε of a run: against the planned observer and, with masks, against everybody else together."""
    kept = spent.guarantee
    words = f"ε = {write_epsilon(kept.epsilon)} per {kept.unit}"
    if spent.masked:
        words += f" against {kept.observer}, and ε = {write_epsilon(spent.everybody.epsilon)} against {EVERYBODY},"
    return f"{words} at δ = {kept.delta:g}"


def explain_exposures(spent: "Spending") -> list[str]:
    """Return sentences that name the agent with the highest ε, and agents whom masks do not protect from some observers."""
    kept, last = spent.guarantee, spent.exposures[-1].agent
    ends = "" if last == spent.agent else f"; against {EVERYBODY}, agent {last}"
    equal = len({format_epsilon(value) for value in spent.per_agent}) == 1
    found = (
        f"All agents have the same ε against {kept.observer}{ends}."
        if equal
        else f"Highest ε against {kept.observer}: agent {spent.agent}{ends}."
    )
    cut_off = {each.observer: each.cut_off for each in spent.exposures[:-1]}
    return [found, *explain_cut_off(cut_off, len(spent.per_agent))]


def drops_masks(config: "AnyConfig", masks: object) -> bool:
    """Say whether a run asked for masks and was planned without."""
    return config.private and config.noise == "cancelling" and masks is None


def explain_dropped(runs: Iterable[str]) -> list[str]:
    """Return a sentence about runs that dropped their masks, if there are any."""
    names = ", ".join(runs)
    return [f"masks were dropped, since with this rule and graph they would not help: {names}"] if names else []


def explain_cut_off(cut_off: Mapping[Observer, Sequence[int]], count: int) -> list[str]:
    """Name the agents, of `count`, whom masks do not protect from an observer: each once, with the weakest such observer."""
    found: list[str] = []
    named: set[int] = set()
    for observer, who in cut_off.items():
        if new := [agent for agent in who if agent not in named]:
            whose = "every agent" if len(who) == count else name_agents(new)
            found.append(
                f"Against {observer}, only own noise protects {whose}: all with whom "
                f"{'it shares' if len(who) == count or len(new) == 1 else 'they share'} keys may be curious."
            )
            named.update(who)
    return found


def attacks(epsilon: float, delta: float) -> tuple[float, float]:
    """Bound what the best attack on one record can do under (ε, δ).

    Returns the share of even bets that it wins, and the share of true cases that it finds if it may be wrong about one in
    a hundred of the others.
    """
    even = (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon))
    wrong = 0.01
    caught = min(math.exp(min(epsilon, 700)) * wrong + delta, 1 - math.exp(-epsilon) * (1 - delta - wrong))
    return even, min(caught, 1.0)
