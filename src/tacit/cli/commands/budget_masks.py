"""Masks in `tacit budget`: own noise, the size of masks and ε by who is curious, as a run with these settings plans them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from tacit.cli.commands.budget_accounting import PlannedQueries
from tacit.cli.terminal.output import digits, plain_table, round_up
from tacit.errors import InvalidInput
from tacit.privacy.mechanisms import Mechanism
from tacit.privacy.observers import EVERYBODY, Observer
from tacit.privacy.stated_epsilons import find_cut_off, observers_of
from tacit.report.wording import explain_cut_off, span
from tacit.runs.config import RunConfig

if TYPE_CHECKING:
    import networkx as nx

    from tacit.networks import Topology
    from tacit.privacy import Cancelling
    from tacit.privacy.cancelling import Response
    from tacit.privacy.keys import Keys

OF_RESPONSE = ("algorithm", "graph", "mixing", "exchanges_per_query", "rounds", "lr", "lr_final", "averaging")
"""Settings of a run that decide how its rule responds to masks, and so their best size."""


@dataclass(frozen=True, kw_only=True)
class MaskedBudget:
    """Noise that cancels, of equal agents: what protects each of them as well as noise of `sigma` would, in units of the clipping norm."""

    sigma: float
    planned: Observer
    keys: "Keys | None"
    """Who shares masks; None if these would not help."""
    size: float
    """That of a mask."""
    mechanisms: tuple[Mechanism, ...]
    chosen_for: str | None
    """The rule and graph for which the size was chosen; None where it was given, or chosen without knowing these."""
    dropped: str
    """Why there are no masks, if there are none."""

    @property
    def own(self) -> list[float]:
        """Every agent's own noise multiplier."""
        return [each.noise_multiplier for each in self.mechanisms]

    @property
    def gap(self) -> float:
        """The noise of the agents' average, as a multiple of that of a trusted centre with the same total lot and ε."""
        return math.sqrt(sum(each**2 for each in self.own)) / self.sigma

    @property
    def observers(self) -> tuple[Observer, ...]:
        """Against whom ε is stated."""
        return observers_of(self.mechanisms, self.planned)

    @property
    def cut_off(self) -> dict[Observer, list[int]]:
        """The agents whom masks do not protect from each observer."""
        return {each: find_cut_off(self.mechanisms, each) for each in self.observers if each != EVERYBODY}

    def sigma_against(self, observer: Observer) -> float:
        """Return the noise that protects the agent with the highest ε from an observer."""
        return min(each.noise_against(observer) for each in self.mechanisms)

    def epsilons(self, planned: PlannedQueries) -> dict[str, float]:
        """Return the highest ε of any agent against each observer, by the observer's key."""
        return {each.key: planned.epsilon(self.sigma_against(each)) for each in self.observers}

    def facts(self, epsilons: dict[str, float]) -> dict[str, Any]:
        """Return what is added to the JSON document."""
        return {
            "observer": str(self.planned),
            "own_noise_multiplier": max(self.own),
            "own_noise_multipliers": self.own,
            "mask_multiplier": self.size,
            "masks_chosen_for": self.chosen_for,
            "noise_of_average": self.gap,
            "epsilon_against": epsilons,
        }


def plan_masks(sigma: float, config: RunConfig, planned: PlannedQueries, given: Mapping[str, Any]) -> MaskedBudget:
    """Plan masks as a run with these settings does, for agents that need noise of `sigma` without masks.

    `given` are the settings that were named. If the rule or its links are among them, masks are of the size that suits them, with defaults
    for what is missing; if not, of a size that suits most.
    """
    # Imported here: most budgets need no linear algebra.
    from tacit.privacy import Cancelling, Privacy

    noise = Cancelling(
        curious=config.curious, keys=_key_graph(config, given), ratio=config.mask_ratio, lost=config.lost
    )
    settings = Privacy(noise_multiplier=sigma, delta=planned.delta, clip=1.0, lot_size=planned.sample_rate, noise=noise)
    pairs: list[tuple[int, int]] = []
    response, chosen_for, dropped = None, None, "with such keys, only own noise protects"
    if any(name in given for name in OF_RESPONSE):
        rounds = given.get("rounds", planned.queries)
        pairs, response = _respond(config, noise, rounds)
        if config.mask_ratio == "auto":
            chosen_for = f"{config.algorithm} on {config.graph}"
            dropped = f"{config.algorithm} on {config.graph} suffers more from them than from the noise that they save"
            if response is None:
                settings = replace(settings, noise=None)
                dropped = f"{config.algorithm} is not linear in its gradients, so they would not cancel in it"
    plan = settings.plan([1] * config.agents, planned.queries, pairs=pairs, response=response)
    keys, size = (None, 0.0) if plan.masks is None else (plan.masks.keys, plan.masks.size * planned.sample_rate)
    return MaskedBudget(
        sigma=sigma,
        planned=noise.observer,
        keys=keys,
        size=size,
        mechanisms=plan.mechanisms,
        chosen_for=chosen_for,
        dropped=dropped,
    )


def _respond(config: RunConfig, noise: "Cancelling", rounds: int) -> "tuple[list[tuple[int, int]], Response | None]":
    """Return the pairs of neighbours, and how the rule responds to noise on its graph; None where it is not linear."""
    from tacit.algorithms.links import check_links
    from tacit.networks.topology import edges_over
    from tacit.training.noise_response import expected_response
    from tacit.training.preparation import connect
    from tacit.training.schedules import Constant, LogSpaced

    topology: Topology
    (topology,) = connect(
        config.load_graph(config.agents),
        "metropolis" if config.is_robust else config.mixing,
        allow_drift=False,
        agents=config.agents,
        trials=1,
        rounds=rounds,
        exchanges=config.exchanges_per_query,
    )
    rule, pairs = config.rule(), list(edges_over(topology, rounds))
    check_links(rule, [topology], rounds)
    if config.mask_ratio != "auto":
        return pairs, None
    schedule = Constant(config.lr) if config.lr_final is None else LogSpaced(config.lr, config.lr_final)
    keys, removed = noise.keys_of(config.agents, pairs), noise.curious + noise.lost
    expected = expected_response(rule, [topology], keys, removed, rounds, schedule, config.seed)
    return pairs, None if expected is None else expected.response


def _key_graph(config: RunConfig, given: Mapping[str, Any]) -> "Literal['complete', 'graph'] | nx.Graph":
    from tacit.runs.specs import parse_keys

    if config.keys.strip() == "graph" and "graph" not in given:
        raise InvalidInput(
            "--keys graph means the neighbours in a run's graph, which is not known here; name it with --graph, or name the kind of keys, such "
            "as ring"
        )
    return parse_keys(config.keys, config.agents, config.seed, "--keys")


def print_masks(
    screen: Console, found: MaskedBudget, config: RunConfig, epsilons: dict[str, float], title: str
) -> None:
    """Print own noise, masks, what their size was chosen for, and ε by number of curious agents."""
    own, agents, without = span(found.own, digits), len(found.own), math.sqrt(len(found.own))
    if found.keys is None:
        screen.print(f"own noise σ = {own}; masks would not help: {found.dropped}")
    else:
        pairs = f"{len(found.keys.all_pairs):,} pairs of {agents} agents"
        screen.print(f"own noise σ = {own} and masks of {digits(found.size)}, shared by {pairs}")
    if found.keys is not None and found.chosen_for is not None:
        screen.print(f"the size of masks is the best for {found.chosen_for}, as in a run")
    elif found.keys is not None and config.mask_ratio == "auto":
        screen.print(
            "the rule and graph are not known here, so masks have a size that leaves little own noise; a run chooses it for its own, and ε "
            "against everybody then differs: name --algorithm, --graph, --lr and --lr-final to see it"
        )
    screen.print(f"noise of the average: {found.gap:.2f} times that of a trusted centre; {without:.2f} without masks")
    screen.print()
    table = plain_table(title, "", "against", ">protects as σ", ">ε")
    for observer in found.observers:
        asked = observer == found.planned
        noise, spent = digits(found.sigma_against(observer)), round_up(epsilons[observer.key])
        table.add_row("▸" if asked else "", str(observer), noise, spent, style="bold" if asked else "")
    screen.print(table)
    for words in explain_cut_off(found.cut_off, agents):
        screen.print(words)
    screen.print()
