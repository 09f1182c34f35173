"""The audit of one run, made from the options of its command. Every mistake in them is found here."""

from functools import partial
from pathlib import Path
from typing import Any

import networkx as nx
import torch

from tacit.algorithms import Algorithm
from tacit.audit.attacks.one_run import OneRun, Sees, dirac_canaries
from tacit.audit.attacks.world import World
from tacit.audit.bounds.one_run import Guesses
from tacit.audit.bounds.rates import check_terms
from tacit.cli.audit.once import Document, Single
from tacit.cli.audit.systems import AGENTS, at_least, make_rule
from tacit.data import AgentData, Records, load
from tacit.errors import InvalidInput
from tacit.models import mlp
from tacit.privacy import Privacy

_HIDDEN = 16

_SEEN = {
    "answers": "It sees all noisy gradients of agent 0, as any neighbour works them out on a complete graph; lots and noise "
    "stay secret.",
    "models": "It sees everyone's final models and nothing else, and asks how low their loss on each canary is.",
}


def one_run_case(
    *,
    algorithm: str,
    dataset: str | None,
    data_dir: Path | None,
    canaries: int,
    guesses: int | None,
    sees: Sees,
    epsilon: float,
    delta: float,
    sample_rate: float,
    records: int,
    rounds: int,
    lr: float,
    confidence: float,
    seed: int,
) -> Single:
    """Return the audit of one run by many canaries: the worst there are, or images with wrong labels."""
    at_least(1, records=records, rounds=rounds)
    at_least(2, canaries=canaries)
    check_terms(delta, confidence, positive=True)
    if not 0 < sample_rate <= 1:
        raise InvalidInput(f"sample rate is {sample_rate}; it must be above 0 and at most 1")
    rule, sizes = make_rule(algorithm), [records + canaries // 2] + [records] * (AGENTS - 1)
    privacy = Privacy(epsilon=epsilon, delta=delta, clip=1.0, lot_size=[sample_rate * size for size in sizes])
    system: dict[str, Any] = {"privacy": privacy, "rounds": rounds, "lr": lr, "graph": nx.complete_graph(AGENTS)}
    if dataset is None:
        attack = dirac_canaries(rule, canaries=canaries, records=records, **system)
        attack = OneRun(world=attack.world, canaries=attack.canaries, sees=sees)
    else:
        attack = _mislabelled(rule, dataset, data_dir, canaries, records, sees, system)
    chosen = attack.guesses if guesses is None else guesses
    at_least(1, guesses=chosen)
    Guesses(canaries=canaries, guesses=chosen, correct=0)  # complains where there are too many
    on = "" if dataset is None else f" on {dataset}"
    told = {
        "kind": "one-run",
        "title": "Canaries in one run",
        "about": f"{algorithm}{on} · {AGENTS} agents · graph: complete · {rounds:,} rounds",
        "algorithm": algorithm,
        "dataset": dataset,
        "agents": AGENTS,
        "graph": "complete",
        "target": 0,
        "saw": _SEEN[sees],
        "record": "Each canary is among agent 0's records or not, by a coin of its own. "
        + (
            "They are the worst that there are: each one's gradient is clipped to its full length and lies along an axis "
            "of its own, which the attacker knows."
            if dataset is None
            else "They are images with wrong labels. Worse records may show more."
        ),
    }
    settings = {
        "audit": "one-run",
        "algorithm": algorithm,
        "dataset": dataset,
        "canaries": canaries,
        "guesses": chosen,
        "sees": sees,
        "epsilon": epsilon,
        "delta": delta,
        "sample_rate": sample_rate,
        "records": records,
        "rounds": rounds,
        "lr": lr,
        "seed": seed,
    }

    def play() -> Document:
        found = attack.judge(attack.play(seed), guesses=chosen, confidence=confidence)
        return {**found.to_json(), "confidence": confidence}

    return Single(play=play, settings=settings, told=told)


def _mislabelled(
    rule: Algorithm[Any],
    dataset: str,
    data_dir: Path | None,
    canaries: int,
    records: int,
    sees: Sees,
    system: dict[str, Any],
) -> OneRun:
    """Agents hold the first images of a data set and train a small network; the next are the canaries."""
    data = load(dataset, data_dir)
    held, classes = AGENTS * records, data.classes
    if classes is None:
        raise InvalidInput(f"{dataset} has no classes, and so no labels that could be wrong")
    if len(data.train) < held + canaries:
        raise InvalidInput(
            f"{dataset} has {len(data.train):,} images; {held:,} records and {canaries:,} canaries need more"
        )
    parts = [data.train.take(torch.arange(records * agent, records * (agent + 1))) for agent in range(AGENTS)]
    images = data.train.take(torch.arange(held, held + canaries))
    wrong = torch.randint(1, classes, (canaries,), generator=torch.Generator().manual_seed(0))
    known = Records(images.inputs, (images.targets + wrong) % classes)
    world = World(
        algorithm=rule,
        model=partial(mlp, data.input_shape, classes, hidden=(_HIDDEN,)),
        data=AgentData.from_parts(parts, name=dataset, classes=classes, prepare=data.prepare),
        canary=known.take(torch.tensor([0])),
        target=0,
        compile=False,
        **system,
    )
    return OneRun(world=world, canaries=known, sees=sees)
