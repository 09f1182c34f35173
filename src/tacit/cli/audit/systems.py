"""Parts of the systems that audits attack, made from options: the rule, the graph and the observers."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import networkx as nx

from tacit.algorithms import RULES, Adam, Algorithm, DiNNO, Plain
from tacit.errors import InvalidInput, choose
from tacit.registry import GRAPHS
from tacit.report.wording import agents as listed
from tacit.runs.specs import parse_graph

AGENTS = 3


def display_name(algorithm: str) -> str:
    """Return the name of a rule as it is printed: DSGT for dsgt."""
    return RULES.lines[algorithm].class_name


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


def name_observers(observers: Sequence[int]) -> str:
    """Return what the observers are called: `agent 1`, or `agents 0, 3 together`."""
    return f"agent {observers[0]}" if len(observers) == 1 else f"agents {listed(list(observers))} together"


def describe_observers(observers: Sequence[int]) -> str:
    """Begin a sentence about what the observers see: `Agent 1 sees`."""
    return f"{name_observers(observers).capitalize()} {'sees' if len(observers) == 1 else 'see'}"


def links_of(graph: nx.Graph) -> list[list[int]]:
    """Return all links in one order."""
    return sorted([min(pair), max(pair)] for pair in graph.edges)
