"""Whether the plan of a run is the one that follows from its settings. Each function yields a sentence for every difference."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from tacit.algorithms.averaged import rule_of
from tacit.evidence.run_evidence import ROUNDING, RunEvidence, short
from tacit.privacy.noise_kinds import Masks
from tacit.privacy.votes import Ballot
from tacit.registry import rule_line
from tacit.runs.config import RunConfig
from tacit.runs.event_types import PlanEvent
from tacit.runs.python_config import AnyConfig, PythonConfig
from tacit.runs.user_code import is_user_code

_OF_VOTES = {"steps": "teacher_steps", "lr": "teacher_lr"}  # what a rule calls them


def check_settings(run: RunEvidence) -> Iterator[str]:
    """Yield where the plan differs from what follows from the settings."""
    config, plan = run.config, run.plan
    agents = 1 if isinstance(config, RunConfig) and config.is_pooled else config.agents
    planned = plan.agents if plan.site is None else len(plan.site.members)
    if planned != agents or (plan.site is not None and plan.agents != 1):
        yield f"the settings have {agents} agents, but the plan has {planned}"
        return
    expected: dict[str, Any] = {
        "fingerprint": config.fingerprint,
        "rounds": config.rounds,
        "gossip_rounds": config.gossip_rounds,
        "exchanges_per_query": config.exchanges_per_query,
        "absences": tuple(each.model_dump(exclude_none=True) for each in config.absences),
        "private": config.private,
        "spare_queries": config.spare_queries if config.private or not isinstance(config, RunConfig) else 0,
        "delta": config.delta if config.private else None,
        "adjacency": config.adjacency if config.private else None,
        "accountant": config.accountant if config.private else None,
        "unit": config.unit if config.private else None,
        "epsilon": _spread(config.epsilon, plan, agents) if config.private else None,
        "lot_sizes": _spread(config.lot_size if plan.votes is None else 1.0, plan, agents),
    }
    if config.source in ("secret", "seeded", "fast"):  # and not an object of the owner
        expected["release"] = config.private and config.source == "secret" and not config.private_diagnostics
    if config.private:
        expected["clips"] = _spread(config.clip if plan.votes is None else 1.0, plan, agents)
    if config.private and config.noise_multiplier is not None and plan.masks is None:
        expected["noise_multipliers"] = _spread(config.noise_multiplier, plan, agents)
    for field, value in expected.items():
        if getattr(plan, field) != value:
            yield f"{field} is {short(getattr(plan, field))} in the plan, but {short(value)} follows from the settings"
    if config.bands not in ("auto", max(1, len(plan.bands))):
        yield f"the noise of the plan has {max(1, len(plan.bands))} bands, but the settings ask for {config.bands}"
    bits = config.rounding_bits if config.noise == "discrete" else None
    if bits != (None if plan.discrete is None else plan.discrete.bits):
        yield f"records are rounded by {short(plan.rounding)} in the plan, but to {bits} bits in the settings"
    yield from _check_masks(config, plan)
    yield from _check_rule(config, plan)
    if isinstance(config, PythonConfig):
        for key in ("model", "loss", "lr", "graph"):
            if key in config.parts and config.parts[key].shown != getattr(config, key):
                yield f"{key} is {short(getattr(config, key))} in the settings, but their facts about it say {short(config.parts[key].shown)}"
    made_up = config.dataset.startswith("synthetic") and plan.dataset.startswith("synthetic")
    if not is_user_code(config.dataset) and plan.dataset != config.dataset and not made_up:
        yield f"dataset is {plan.dataset!r} in the plan, but {config.dataset!r} in the settings"
    for agent, (rate, lot, size) in enumerate(zip(plan.sample_rates, plan.lot_sizes, plan.sizes, strict=True)):
        if plan.votes is not None:
            if rate != 1:
                yield f"agent {agent} samples at rate {rate:g}, but teachers learn from all of its records"
        elif not size or rate != lot / size:
            yield f"agent {agent} samples at rate {rate:g}, which is not its lot of {lot:g} divided by its {size} records"


def _check_rule(config: AnyConfig, plan: PlanEvent) -> Iterator[str]:
    """Yield where the plan has another rule than the settings, or another number of queries."""
    line = rule_line(config.algorithm)
    if not isinstance(config, RunConfig):
        if plan.algorithm != config.algorithm.partition(":")[0]:
            yield f"algorithm is {plan.algorithm!r} in the plan, but {config.algorithm!r} in the settings"
        return
    if line is None:  # a rule of the user's own
        return
    if plan.algorithm != config.algorithm.strip().partition(":")[0]:
        yield f"algorithm is {plan.algorithm!r} in the plan, but {config.algorithm!r} in the settings"
    if line.votes:
        yield from _check_votes(config, plan)
    if line.queries is None:
        return
    each = line.queries if isinstance(line.queries, int) else getattr(rule_of(config.rule()), line.queries)
    asked = config.rounds * each
    if plan.queries - plan.spare_queries != asked:
        yield f"the plan has {plan.queries - plan.spare_queries} queries without spare ones, but the settings need {asked}"


def _check_votes(config: RunConfig, plan: PlanEvent) -> Iterator[str]:
    """Yield where the plan asks teachers something other than the settings say."""
    asked = {
        field.name: getattr(rule_of(config.rule()), _OF_VOTES.get(field.name, field.name)) for field in fields(Ballot)
    }
    if plan.votes != asked:
        yield f"teachers are asked {short(plan.votes)} in the plan, but {short(asked)} in the settings"
    if plan.queries - plan.spare_queries != 1:
        yield f"the plan has {plan.queries - plan.spare_queries} queries without spare ones, but teachers are asked once"


def _check_masks(config: AnyConfig, plan: PlanEvent) -> Iterator[str]:
    """Yield where masks are not those of the settings, or protect less than these say."""
    if plan.masks is None:
        if config.noise == "cancelling" and config.mask_ratio != "auto":
            yield "the plan has no masks, but the settings ask for them"
        return
    if config.noise != "cancelling":
        yield "the plan has masks, but the settings ask for none"
        return
    masks = Masks.of_json(plan.masks)
    if plan.observer != str(config.curious):
        yield f"ε is planned against {short(plan.observer)} in the plan, but against {config.curious} curious agents in the settings"
    if masks.lost != config.lost:
        yield f"{masks.lost} agents may be lost in the plan, but {config.lost} in the settings"
    sharing, neighbours = set(masks.keys.all_pairs), {(min(edge), max(edge)) for edge in plan.edges}
    if (site := plan.site) is not None:  # a site knows only its own links
        neighbours = {(min(site.agent, other), max(site.agent, other)) for other in site.neighbors}
        sharing = {pair for pair in sharing if site.agent in pair} if config.keys == "graph" else sharing
    follows = True  # a graph with another name is rebuilt and compared later
    if isinstance(config.keys, list):
        follows = sharing == {(low, high) for low, high in config.keys}
    elif config.keys == "complete":
        follows = masks.keys.pairs is None
    elif config.keys == "graph":
        follows = sharing <= neighbours if plan.changing else sharing == neighbours
    if not follows:
        yield "the pairs that share masks in the plan are not those of the settings"
    for agent, sigma in enumerate(_spread(config.noise_multiplier, plan, config.agents) or ()):
        protects = plan.mechanisms[agent].noise_against(plan.planned_observer)
        if protects < sigma * (1 - ROUNDING):
            yield f"agent {agent} is protected as by σ = {protects:g}, but the settings ask for {sigma:g}"


def _spread(value: float | list[float] | None, plan: PlanEvent, agents: int) -> tuple[float, ...] | None:
    """Return a setting for each agent that the plan is about: all of them, or the one of a site."""
    if value is None:
        return None
    each = tuple(map(float, value)) if isinstance(value, list) else (float(value),) * agents
    return each if plan.site is None else each[plan.site.agent : plan.site.agent + 1]
