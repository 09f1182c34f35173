"""Attacks that are ready to be played, made from the options of a command. Every mistake in them is found here."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx

from tacit.algorithms import DSGD, DSGT, Adam, Algorithm, DiNNO, Plain
from tacit.audit.findings import Claim
from tacit.audit.membership import PUBLISHED, published
from tacit.audit.neighbor import Neighbor
from tacit.audit.worlds import dirac
from tacit.cli.audit_shared import Case, Compiled
from tacit.data import load
from tacit.errors import InvalidInput
from tacit.graphs.topologies import KINDS
from tacit.privacy import Privacy
from tacit.report.words import agents as listed
from tacit.specs import parse_graph

_AGENTS = 3
# Rounds times numbers in an image, of all runs of a process; it takes about a minute to compile.
_WORTH_COMPILING = 2e7


def neighbor_case(
    *,
    algorithm: str,
    agents: int | None,
    graph: str,
    target: int,
    observers: Sequence[int],
    epsilon: float,
    delta: float,
    lot_size: float,
    records: int,
    rounds: int,
    lr: float,
    inner_steps: int | None,
    adam: bool | None,
    seed: int,
) -> Case:
    """Return the attack of curious neighbours on a record whose gradient is the worst that there is."""
    rule = _rule(algorithm, inner_steps, adam)
    if records < 1:
        raise InvalidInput(f"records is {records}; it must be at least 1")
    links = parse_graph(graph, _default_agents(graph) if agents is None else agents, seed)
    watching = _observers(links, target, observers)
    privacy = Privacy(epsilon=epsilon, delta=delta, clip=1.0, lot_size=lot_size)
    world = dirac(rule, privacy=privacy, rounds=rounds, lr=lr, graph=links, target=target, records=records, seed=seed)
    attack = Neighbor(world=world, observers=watching)
    claim = Claim.of(attack.event, delta)
    attack.scores(1, present=False, seed=0)  # whatever cannot be played fails here, before a folder is made
    seen = None if attack.shows_signs_only else attack.view
    exact = None if seen is None else int(seen.exact(target).sum())
    told = {
        "kind": "neighbor",
        "title": "Curious neighbour" if len(watching) == 1 else "Curious neighbours",
        "about": f"{algorithm} · {len(links)} agents · graph: {graph} · {rounds:,} rounds",
        "algorithm": algorithm,
        "agents": len(links),
        "graph": graph,
        "target": target,
        "observers": watching,
        "queries": attack.event.count,
        "exact_answers": exact,
        "share_seen": None if seen is None else seen.share(target),
        "saw": _neighbor_saw(target, watching, signs=seen is None),
        "record": "The record is the worst that there is: whatever the model, its gradient is clipped to its full length "
        "and points in one direction, which the attacker knows.",
    }
    settings = {
        "attack": "neighbor",
        "algorithm": algorithm,
        "agents": len(links),
        "graph": graph,
        "links": sorted([min(pair), max(pair)] for pair in links.edges),
        "target": target,
        "observers": watching,
        "epsilon": epsilon,
        "delta": delta,
        "lot_size": lot_size,
        "records": records,
        "rounds": rounds,
        "lr": lr,
        "seed": seed,
    }
    if isinstance(rule, DiNNO):
        settings |= {"inner_steps": rule.inner_steps, "step": "adam" if adam else "plain"}
    return Case(attack=attack, claim=claim, settings=settings, told=told)


def membership_cases(
    algorithm: str,
    *,
    dataset: str,
    data_dir: Path | None,
    epsilon: float,
    delta: float,
    lot_size: float,
    rounds: int,
    compile: Compiled,
    runs_each: float,
) -> list[Case]:
    """Return the paper's attack on an algorithm, or on all of them.

    runs_each: how many runs a process will play; every process compiles for itself.
    """
    data = load(dataset, data_dir)
    numbers = runs_each * rounds * math.prod(data.input_shape)
    compiled = numbers > _WORTH_COMPILING if compile == "auto" else compile == "always"
    cases = []
    for rule in PUBLISHED if algorithm == "all" else (algorithm,):
        made = published(data, rule, epsilon=epsilon, delta=delta, rounds=rounds, lot_size=lot_size)
        attack = replace(made, world=replace(made.world, compile=compiled))
        central, held = attack.world.graph is None, attack.world.data.sizes
        settings = {
            "attack": "membership",
            "algorithm": rule,
            "dataset": dataset,
            "epsilon": epsilon,
            "delta": delta,
            "lot_size": lot_size,
            "rounds": rounds,
        }
        told = {
            "kind": "membership",
            "title": "Membership by loss",
            "about": f"{rule} on {dataset} · {_people(len(held))} · {rounds:,} rounds",
            "algorithm": rule,
            "dataset": f"{dataset}, {sum(held):,} images",
            "agents": len(held),
            "graph": None if central else "complete",
            "target": 0,
            "queries": attack.event.count,
            "saw": f"It sees the final {'model' if central else 'models of all agents'} and nothing else, and asks how low "
            "the loss on the record is. A low loss speaks for the record.",
            "record": "The record is a blank image labelled 0. The settings are those that the paper published.",
        }
        cases.append(Case(attack=attack, claim=Claim.of(attack.event, delta), settings=settings, told=told))
    return cases


def _rule(algorithm: str, inner_steps: int | None, adam: bool | None) -> Algorithm[Any]:
    if algorithm == "dinno":
        return DiNNO(step=Adam() if adam else Plain(), inner_steps=1 if inner_steps is None else inner_steps)
    for name, value in (("--inner-steps", inner_steps), ("--adam" if adam else "--plain", adam)):
        if value is not None:
            raise InvalidInput(f"{name} is about DiNNO's inner steps; {algorithm} has none")
    return DSGD() if algorithm == "dsgd" else DSGT()


def _default_agents(graph: str) -> int | None:
    """Return how many agents there are unless that was said; a file knows its own number."""
    return _AGENTS if graph.strip().partition(":")[0].replace("-", "_") in (*KINDS, "random") else None


def _observers(graph: nx.Graph, target: int, given: Sequence[int]) -> list[int]:
    last = len(graph) - 1
    if target not in graph:
        raise InvalidInput(f"target is {target}; it must be an agent, from 0 to {last}")
    for agent in given:
        if agent not in graph:
            raise InvalidInput(f"observer is {agent}; it must be an agent, from 0 to {last}")
    near = sorted(graph[target])
    if not given and not near:
        raise InvalidInput(f"agent {target} has no neighbours, so nobody is there to watch it")
    return sorted(set(given)) or near[:1]


def _neighbor_saw(target: int, observers: Sequence[int], *, signs: bool) -> str:
    who, together = f"Agent {observers[0]}", ""
    if len(observers) > 1:
        who, together = f"Agents {listed(list(observers))}", " together"
    s = "s" if len(observers) == 1 else ""
    drawn = (
        "Adam's steps show the signs of the gradients and hardly their sizes, so it goes by signs"
        if signs
        else f"From this it works out the noisy gradients of agent {target} as well as can be"
    )
    return (
        f"{who}{together} see{s} every message of neighbours, their final models, the graph and all settings; lots and "
        f"noise stay secret. {drawn}."
    )


def _people(count: int) -> str:
    return "all data in one place" if count == 1 else f"{count} agents"
