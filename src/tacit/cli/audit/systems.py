"""Parts of the systems that audits attack, made from options: the rule, the graph, the observers and the noise."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import networkx as nx

from tacit.algorithms import RULES, Adam, Algorithm, DiNNO, Plain
from tacit.errors import InvalidInput, choose
from tacit.privacy import Cancelling, Discrete, Privacy
from tacit.registry import GRAPHS
from tacit.report.wording import counted, name_agents
from tacit.runs.specs import parse_graph

AGENTS = 3

WORST_RECORD = (
    "The record is the worst possible one: for any model, its gradient is clipped to its full length and points in one "
    "direction, which has a share of every axis and which the attacker knows."
)


def make_rule(algorithm: str, inner_steps: int | None = None, adam: bool | None = None) -> Algorithm[Any]:
    """Return the rule of this name, with plain steps unless Adam is asked for; DiNNO takes one in a round by default."""
    make = RULES[choose("algorithm", algorithm, RULES)]
    names = {field.name for field in fields(make)}
    settings: dict[str, Any] = {"step": Adam() if adam else Plain()} if "step" in names else {}
    if "inner_steps" in names:
        settings |= {} if inner_steps is None else {"inner_steps": inner_steps}
    else:
        for name, value in (("--inner-steps", inner_steps), ("--adam" if adam else "--plain", adam)):
            if value is not None:
                raise InvalidInput(f"{name} is an option for DiNNO's inner steps; {algorithm} has none")
    rule: Algorithm[Any] = make(**settings)
    return rule


def plain_dinno() -> dict[str, Any]:
    """Return the settings of DiNNO with its default step, to be stated beside its results."""
    rule = make_rule("dinno")
    assert isinstance(rule, DiNNO)
    return {"step": "plain", "inner_steps": rule.inner_steps, "rho": rule.rho}


def make_graph(graph: str, agents: int | None, seed: int, *, default: int = AGENTS) -> nx.Graph:
    """Return the graph of this kind, with `default` agents if no number is given; a file has its own number."""
    kind = graph.strip().partition(":")[0].replace("-", "_")
    if agents is None and kind in (*GRAPHS, "random"):
        agents = default
    return parse_graph(graph, agents, seed)


def check_agents(graph: nx.Graph, name: str, given: Sequence[int]) -> None:
    """Refuse numbers that no agent has."""
    for agent in given:
        if agent not in graph:
            raise InvalidInput(f"{name} is {agent}; it must be an agent, from 0 to {len(graph) - 1}")


def choose_observers(
    graph: nx.Graph, target: int, given: Sequence[int] | None, *, most: int | None = None
) -> list[int]:
    """Return the observers: those given, or else the first neighbours of the target, `most` of them."""
    check_agents(graph, "target", [target])
    check_agents(graph, "observer", given or ())
    near = sorted(graph[target])
    if not given and not near:
        raise InvalidInput(f"agent {target} has no neighbours who could observe it")
    return sorted(set(given or ())) or near[:most]


def make_masks(audit: Any) -> Cancelling | None:
    """Return the masks that an audit's options ask for; None for other noise, with which options of masks are refused."""
    if audit.noise == "cancelling":
        return Cancelling(
            curious=1 if audit.curious is None else audit.curious,
            keys=audit.keys or "complete",
            ratio="auto" if audit.mask_ratio is None else audit.mask_ratio,
        )
    for name, value in (("--curious", audit.curious), ("--keys", audit.keys), ("--mask-ratio", audit.mask_ratio)):
        if value is not None:
            raise InvalidInput(f"{name} means nothing without --noise cancelling")
    return None


def make_privacy(audit: Any) -> Privacy:
    """Return the privacy settings that an audit's options ask for, with noise of any kind."""
    settings: dict[str, Any] = {name: getattr(audit, name) for name in ("epsilon", "delta", "lot_size")} | {"clip": 1.0}
    masks, bits = make_masks(audit), getattr(audit, "rounding_bits", None)
    if audit.noise == "discrete":
        settings |= {"noise": Discrete() if bits is None else Discrete(bits), "accountant": "rdp"}
    elif bits is not None:
        raise InvalidInput("--rounding-bits means nothing without --noise discrete")
    return Privacy(**{"noise": masks} | settings, bands=getattr(audit, "bands", 1))


def name_observers(observers: Sequence[int]) -> str:
    """Return what the observers are called: `agent 1`, or `agents 0, 3 together`."""
    return f"{name_agents(list(observers))}{' together' * (len(observers) > 1)}"


def describe_observers(observers: Sequence[int]) -> str:
    """Begin a sentence about what the observers see: `Agent 1 sees`."""
    return f"{name_observers(observers).capitalize()} {'sees' if len(observers) == 1 else 'see'}"


def describe_system(
    title: str,
    algorithm: str,
    *,
    agents: int,
    graph: str | None,
    rounds: int,
    on: str | None = None,
    more: Sequence[str] = (),
    **facts: Any,
) -> dict[str, Any]:
    """Describe an audited system: what it is, in one line and in facts.

    on: the data set, where there is one.
    more: further parts of the line.
    """
    parts = [algorithm + (f" on {on}" if on else "")]
    parts += ["all data in one place" if graph is None else counted(agents, "agent")]
    parts += [f"graph: {graph}"] if graph else []
    about = " · ".join([*parts, *more, f"{rounds:,} rounds"])
    return {"title": title, "about": about, "algorithm": algorithm, "agents": agents, "graph": graph, **facts}


def state_system(graph: nx.Graph, observers: Sequence[int]) -> dict[str, Any]:
    """Return the settings that follow from the options of the graph and the observers."""
    links = sorted([min(pair), max(pair)] for pair in graph.edges)
    return {"agents": len(graph), "links": links, "observers": list(observers)}
