"""Attacks that are ready to be played, made from the options of a command. Every mistake in them is found here."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tacit.algorithms import DiNNO
from tacit.audit.attacks.membership import SETTINGS, paper_attack
from tacit.audit.attacks.natural import NaturalNeighbor
from tacit.audit.attacks.neighbor import Neighbor
from tacit.audit.attacks.worlds import dirac, images
from tacit.audit.bounds.findings import Claim
from tacit.cli.audit.shared import Case, Compiled
from tacit.cli.audit.systems import at_least, links_of, make_graph, make_rule, watchers, who_watches
from tacit.data import DataSet, load
from tacit.errors import InvalidInput
from tacit.models import convnet
from tacit.privacy import Privacy

# Rounds times numbers in an image, of all runs of a process; it takes about a minute to compile.
_WORTH_COMPILING = 2e7
_MESSAGES = 1e9  # bytes of messages that a process keeps until their runs are scored

_RECORDS = {
    "worst": "The record is the worst that there is: whatever the model, its gradient is clipped to its full length "
    "and points in one direction, which has a share of every axis and which the attacker knows.",
    "blank": "The record is a blank image labelled 0. The attacker knows all other records of the attacked agent, though "
    "not which of them were drawn. A worse record may show more.",
}

_SEARCHED = "of some that were tried (0.003 to 1) the one that moves the loss on the record most"
_NOT_SEARCHED = "which was not searched for; others may leak more"


def neighbor_case(
    *,
    algorithm: str,
    agents: int | None,
    graph: str,
    target: int,
    observers: Sequence[int],
    canary: str,
    dataset: str | None,
    data_dir: Path | None,
    epsilon: float,
    delta: float,
    lot_size: float,
    records: int,
    rounds: int,
    lr: float,
    inner_steps: int | None,
    adam: bool | None,
    seed: int,
    runs_each: float,
) -> Case:
    """Return the attack of curious neighbours on the worst record there is, or on a blank image."""
    rule = make_rule(algorithm, inner_steps, adam)
    at_least(1, records=records)
    links = make_graph(graph, agents, seed)
    watching = who_watches(links, target, observers)
    privacy = Privacy(epsilon=epsilon, delta=delta, clip=1.0, lot_size=lot_size)
    attack: Neighbor | NaturalNeighbor
    if canary == "worst":
        system: dict[str, Any] = {"privacy": privacy, "rounds": rounds, "lr": lr, "graph": links, "target": target}
        attack = Neighbor(world=dirac(rule, **system, records=records, seed=seed), observers=watching)
        if not attack.shows_signs_only:  # Adam's signs can be read along one axis only
            attack = replace(attack, world=dirac(rule, **system, records=records, seed=seed, dense=True))
        world, most = attack.world, None
        claim = Claim.of(attack.event, delta)
        attack.scores(1, present=False, seed=0)  # whatever cannot be played fails here, before a folder is made
    else:
        if target != 0:
            raise InvalidInput(
                f"--target is {target}; a blank image is labelled 0, and agent 0 has the images of class 0"
            )
        dataset = dataset or "mnist"
        data = load(dataset, data_dir)
        compiled = _worth_compiling(data, rounds, runs_each)
        world = images(
            data,
            rule,
            privacy=privacy,
            rounds=rounds,
            lr=lr,
            agents=len(links),
            records=records,
            graph=links,
            compile=compiled,
        )
        attack = NaturalNeighbor(world=world, observers=watching)
        claim = Claim.of(attack.event, delta)
        numbers = sum(each.numel() for each in convnet(data.input_shape, data.classes or 0).parameters())
        most = max(1, int(_MESSAGES / (8 * rounds * len(links) * numbers)))
    seen = None if isinstance(attack, Neighbor) and attack.shows_signs_only else attack.view
    on = "" if canary == "worst" else f" on {dataset}"
    told = {
        "kind": "neighbor",
        "title": "Curious neighbour" if len(watching) == 1 else "Curious neighbours",
        "about": f"{algorithm}{on} · {len(links)} agents · graph: {graph} · {rounds:,} rounds",
        "algorithm": algorithm,
        "dataset": None if canary == "worst" else f"{dataset}, {sum(world.data.sizes):,} images",
        "agents": len(links),
        "graph": graph,
        "target": target,
        "observers": watching,
        "queries": attack.event.count,
        "exact_answers": None if seen is None else int(seen.exact(target).sum()),
        "share_seen": None if seen is None else seen.share(target),
        "saw": _neighbor_saw(target, watching, signs=seen is None),
        "record": _RECORDS[canary],
    }
    settings = {
        "attack": "neighbor",
        "algorithm": algorithm,
        "agents": len(links),
        "graph": graph,
        "links": links_of(links),
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
    if canary != "worst":
        settings |= {"canary": canary, "dataset": dataset}
    if isinstance(rule, DiNNO):
        settings |= {"inner_steps": rule.inner_steps, "step": "adam" if adam else "plain"}
    return Case(attack=attack, claim=claim, settings=settings, told=told, most=most)


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
    compiled = _worth_compiling(data, rounds, runs_each) if compile == "auto" else compile == "true"
    cases = []
    for rule in SETTINGS if algorithm == "all" else (algorithm,):
        made = paper_attack(data, rule, epsilon=epsilon, delta=delta, rounds=rounds, lot_size=lot_size)
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
            "record": "The record is a blank image labelled 0. The paper names no step sizes for this. Here: "
            f"{SETTINGS[rule][2]}, {_SEARCHED if rule == 'dsgt' else _NOT_SEARCHED}; clipping norm {SETTINGS[rule][1]:g}.",
        }
        cases.append(Case(attack=attack, claim=Claim.of(attack.event, delta), settings=settings, told=told))
    return cases


def _worth_compiling(data: DataSet, rounds: int, runs_each: float) -> bool:
    return runs_each * rounds * math.prod(data.input_shape) > _WORTH_COMPILING


def _neighbor_saw(target: int, observers: Sequence[int], *, signs: bool) -> str:
    drawn = (
        "Adam's steps show the signs of the gradients and hardly their sizes, so it goes by signs"
        if signs
        else f"From this it works out the noisy gradients of agent {target} as well as can be"
    )
    return (
        f"{watchers(observers)} every message of neighbours, their final models, the graph and all settings; lots and "
        f"noise stay secret. {drawn}."
    )


def _people(count: int) -> str:
    return "all data in one place" if count == 1 else f"{count} agents"
