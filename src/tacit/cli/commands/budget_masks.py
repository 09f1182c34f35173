"""What `tacit budget --noise cancelling` adds: own noise, the size of masks, and ε by number of curious agents.

All agents are taken to be equal: the same records, lots and clipping norm. Noise is in units of that norm, on the sum of a lot.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import networkx as nx
from rich.console import Console

from tacit.cli.commands.budget_accounting import PlannedQueries, Terms
from tacit.cli.terminal.output import digits, plain_table, round_up
from tacit.errors import GraphError, InvalidInput
from tacit.privacy import Cancelling
from tacit.privacy.cancelling import masks_for, usual_ratio
from tacit.privacy.mechanisms import EVERYBODY, Masked, Masks, Mechanism, Observer, Poisson
from tacit.privacy.observers import find_cut_off, observers_of
from tacit.report.wording import agents as list_agents


@dataclass(frozen=True, kw_only=True)
class MaskedBudget:
    """Masks that protect equal agents as well as noise of `sigma` would, against whom ε is promised."""

    sigma: float
    promised: Observer
    masks: Masks
    mechanisms: tuple[Mechanism, ...]

    @property
    def own(self) -> tuple[float, ...]:
        """Every agent's own noise multiplier."""
        return self.masks.own

    @property
    def gap(self) -> float:
        """The noise of the agents' average, as a multiple of that of a trusted centre with the same total lot and ε."""
        return math.sqrt(sum(each**2 for each in self.own)) / self.sigma

    def sigma_against(self, observer: Observer) -> float:
        """Return the noise that protects the agent with the highest ε from an observer."""
        return min(each.noise_against(observer) for each in self.mechanisms)

    @property
    def observers(self) -> tuple[Observer, ...]:
        """Against whom ε is stated."""
        return observers_of(self.mechanisms, self.promised)

    def epsilons(self, planned: PlannedQueries, terms: Terms) -> dict[str, float]:
        """Return the highest ε of any agent against each observer, by the observer's key."""
        return {each.key: planned.epsilon(self.sigma_against(each), terms) for each in self.observers}

    def facts(self, epsilons: dict[str, float]) -> dict[str, Any]:
        """Return what is added to the JSON document."""
        return {
            "observer": str(self.promised),
            "own_noise_multiplier": max(self.own),
            "own_noise_multipliers": list(self.own),
            "mask_multiplier": self.masks.size,
            "noise_of_average": self.gap,
            "epsilon_against": epsilons,
        }


def plan_masks(
    sigma: float, *, rate: float, agents: int, keys: str, curious: int, lost: int, ratio: str, seed: int
) -> MaskedBudget:
    """Find own noise and masks of equal agents that need noise of `sigma` without masks."""
    noise = Cancelling(curious=curious, keys=_key_graph(keys, agents, seed), ratio=_ratio(ratio), lost=lost)
    shared, needed, removed = noise.keys_of(agents, ()), [sigma] * agents, curious + lost
    size = usual_ratio(needed, shared, removed) if noise.ratio == "auto" else float(noise.ratio)
    masks = masks_for(needed, shared, removed, ratio=size, lost=lost)
    mechanisms = tuple(
        Mechanism(
            sampler=Poisson(rate=rate),
            clip=1.0,
            lot=1.0,
            noise=Masked(multiplier=masks.own[agent], agent=agent, masks=masks),
        )
        for agent in range(agents)
    )
    return MaskedBudget(sigma=sigma, promised=noise.observer, masks=masks, mechanisms=mechanisms)


def _key_graph(keys: str, agents: int, seed: int) -> Literal["complete"] | nx.Graph:
    from tacit.runs.specs import is_schedule, parse_graph

    text = keys.strip()
    if text == "complete":
        return "complete"
    if text == "graph":
        raise InvalidInput(
            "--keys graph means the neighbours in a run's graph, which is not known here; name its kind, such as ring"
        )
    if is_schedule(text):
        raise InvalidInput(f"--keys is {text!r}, whose links change; masks are shared by the same pairs in all rounds")
    try:
        return parse_graph(text, agents, seed)
    except GraphError as error:
        raise InvalidInput(f"--keys is {text!r}; give complete, or a graph of those who share masks: {error}") from None


def _ratio(text: str) -> float | Literal["auto"]:
    if text == "auto":
        return "auto"
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"--mask-ratio is {text!r}; give a number or auto") from None


def print_masks(screen: Console, found: MaskedBudget, epsilons: dict[str, float], title: str) -> None:
    """Print own noise, masks, and ε by number of curious agents."""
    low, high = min(found.own), max(found.own)
    own = digits(high) if digits(low) == digits(high) else f"{digits(low)} to {digits(high)}"
    pairs = len(found.masks.keys.all_pairs)
    size = digits(found.masks.size)
    screen.print(
        f"own noise σ = {own} and masks of {size}, shared by {pairs:,} pairs of {found.masks.keys.agents} agents"
    )
    without = math.sqrt(found.masks.keys.agents)
    screen.print(f"noise of the average: {found.gap:.2f} times that of a trusted centre; {without:.2f} without masks")
    screen.print()
    table = plain_table(title, "", "against", ">protects as σ", ">ε")
    cut_off = {each: find_cut_off(found.mechanisms, each) for each in found.observers if each != EVERYBODY}
    for observer in found.observers:
        asked = observer == found.promised
        cells = (
            "▸" if asked else "",
            str(observer),
            digits(found.sigma_against(observer)),
            round_up(epsilons[observer.key]),
        )
        table.add_row(*cells, style="bold" if asked else "")
    screen.print(table)
    for words in _describe_cut_off(cut_off, found.masks.keys.agents):
        screen.print(words)
    screen.print()


def _describe_cut_off(cut_off: dict[Observer, list[int]], agents: int) -> Sequence[str]:
    """Name agents whom masks do not protect from the first observer for whom that holds."""
    found, before = [], 0
    for observer, who in cut_off.items():
        if len(who) > before:
            whose = "every agent" if len(who) == agents else f"agent{'' if len(who) == 1 else 's'} {list_agents(who)}"
            found.append(f"Against {observer}, only own noise protects {whose}.")
            before = len(who)
    return found
