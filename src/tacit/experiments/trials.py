"""Runs a point that trains models: several trials side by side, with the paper's settings unless others are given.

A point's settings are `algorithm`, `epsilon` (None without privacy), `t` of A(t), its graph, and the profile's scale. Where
`curious` is given, noise cancels between agents and ε holds against so many of them. Trial k takes its start, lots, noise and
graph from seed k. Points share seeds, so comparisons are made on the same starts and graphs. `central` trains on the pooled
records, with the lot of its point.
"""

from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache, partial
from pathlib import Path

import networkx as nx
import numpy as np
from torch import nn

from tacit import Cancelling, Fast, NoPrivacy, Observer, Privacy, Result, train_trials
from tacit.data import AgentData, ByClass, DataSet, load, scattered
from tacit.experiments.experiment import Environment, Point, ResultRow, Value
from tacit.experiments.hyperparameters import AGENTS, CENTRAL, DELTA, Scale, Setting, setting
from tacit.graphs import build, find_graph
from tacit.models import CROSS, Views, cross_entropy, views_cross_entropy
from tacit.models import build as build_model

PIXELS, SCATTERING = "pixels", "scattering"  # the inputs of a model

_TOLERANCE = 0.015  # of searched graphs; a link of ten agents is 0.022 of the density
# Seconds of one core for a record's clipped gradient and for its evaluation, and to compile; measured, but for ResNet-9's last two.
_COSTS = {
    "logistic": (4e-6, 2e-6, 0.0),
    "convnet": (4e-5, 4e-5, 45.0),
    "resnet9": (6e-2, 1.5e-2, 300.0),
    "scattering": (4e-5, 2e-5, 0.0),
}
_HELD_OUT = {"digits": 360}  # records that models are scored on, 10,000 for the others
_OVERHEAD = 0.006  # seconds a round
_STARTING, _CALIBRATING = 0.2, 1.0  # seconds a point; noise that was calibrated before costs nothing


def training_point(
    scale: Scale, graph: Mapping[str, Value], *, algorithm: str, epsilon: float | None, t: float = 1.0
) -> Point:
    """Return a point; `graph` describes its graph, with None for a value where there is no graph."""
    return Point.of(algorithm=algorithm, epsilon=epsilon, **graph, t=t, agents=AGENTS, **asdict(scale))


def train_point(
    point: Point, environment: Environment, *, looks: int = 1, chosen: Setting | None = None, seed: int = 0
) -> list[Result]:
    """Train all trials of a point and return their results, with so many evaluations on the way.

    chosen: how it is trained; as published by default.
    seed: that of the first trial's start, lots and noise.
    """
    features, rounds, trials = point.named.get("features", PIXELS), point["rounds"], point["trials"]
    data = _deal(point["dataset"], environment.data, point["t"], point["agents"], features)
    central = point["algorithm"] == CENTRAL
    chosen = chosen or setting(point["algorithm"], point["epsilon"], point["dataset"])
    return train_trials(
        trials,
        chosen.rule,
        model=partial(_model, point, data.dataset),
        loss=views_cross_entropy if point.named.get("views") else cross_entropy,
        data=data.pooled() if central else data,
        graph=None if central else [graph_of(point, trial) for trial in range(trials)],
        privacy=_privacy(point, chosen.clip),
        rounds=rounds,
        lr=chosen.lr,
        exchanges_per_query=point.named.get("exchanges", 1),
        seed=seed,
        sources=Fast(seed),
        evaluate_every=max(1, rounds // looks),
        device=environment.device,
        progress=environment.progress,
    )


def _privacy(point: Point, clip: float) -> Privacy | NoPrivacy:
    if point["epsilon"] is None:
        return NoPrivacy(lot_size=point["lot"])
    curious = point.named.get("curious")
    noise = None if curious is None else Cancelling(curious=curious)
    return Privacy(epsilon=point["epsilon"], delta=DELTA, clip=clip, lot_size=point["lot"], noise=noise)


def _model(point: Point, data: DataSet) -> nn.Module:
    model = build_model(point["model"], data.input_shape, data.classes or 0)
    return Views(model, CROSS[:views]) if (views := point.named.get("views")) else model


def graph_of(point: Point, trial: int) -> nx.Graph:
    """Return the graph of one trial of a point."""
    agents = point["agents"]
    if wanted := {name: point[name] for name in ("fiedler", "density", "centrality") if name in point.named}:
        return find_graph(agents, **wanted, tolerance=_TOLERANCE, seed=trial)
    return build(point["graph"], agents, seed=trial)


def final_row(trial: int, result: Result) -> ResultRow:
    """Return the outcome of one trial: accuracies on the test half, and the ε that the ledger derives."""
    accuracy, plan = result.evaluate().accuracy, result.plan
    assert accuracy is not None
    private = plan.privacy is not None
    row: ResultRow = {
        "trial": trial,
        "accuracy": float(accuracy.mean()),
        "worst": float(accuracy.min()),
        "validation": float(result.accuracy.mean()),
        "consensus_distance": result.consensus_distance,
        "bytes_sent": result.bytes_sent,
        "noise_multiplier": max(plan.noise_multipliers) if private else None,
        "epsilon_spent": max(each.epsilon for each in result.guarantees()) if private else None,
    }
    if plan.masks is not None:
        row["epsilon_against_all"] = max(each.epsilon for each in result.guarantees(Observer()))
        row["mask_multiplier"] = plan.masks.size * plan.lot_sizes[0] / plan.clips[0]
    return row


def run_final(
    point: Point, environment: Environment, *, chosen: Setting | None = None, seed: int = 0
) -> list[ResultRow]:
    """Train a point and return one row for each trial."""
    results = train_point(point, environment, chosen=chosen, seed=seed)
    return [final_row(trial, result) for trial, result in enumerate(results)]


def run_course(point: Point, environment: Environment, *, looks: int) -> list[ResultRow]:
    """Train a point and return one row for each trial and evaluation, with accuracies on the validation half."""
    rows = []
    for trial, result in enumerate(train_point(point, environment, looks=looks)):
        for snapshot in result.history:
            accuracy = np.asarray(snapshot.accuracy)
            rows.append(
                {
                    "trial": trial,
                    "round": snapshot.round,
                    "node_0": float(accuracy[0]),
                    "others": float(accuracy[1:].mean()) if len(accuracy) > 1 else float(accuracy[0]),
                    "accuracy": float(accuracy.mean()),
                    "bytes_sent": int(snapshot.bytes_sent.sum()),
                }
            )
    return rows


def estimate_seconds(point: Point, *, looks: int = 1) -> float:
    """Estimate how long a training point takes on one core."""
    features = point.named.get("features", PIXELS)
    gradient, score, compiling = _COSTS[point["model"] if features == PIXELS else features]
    agents = 1 if point["algorithm"] == CENTRAL else point["agents"]
    models, rounds = agents * point["trials"], point["rounds"]
    inner = 2 if point["algorithm"] == "dinno" and point["dataset"] == "cifar100" else 1
    held_out = _HELD_OUT.get(point["dataset"], 10_000)
    views = point.named.get("views", 1)
    training = rounds * inner * (_OVERHEAD + models * point["lot"] * views * gradient)
    starting = _STARTING + compiling + (0.0 if point["epsilon"] is None else _CALIBRATING)
    return starting + training + (1 + looks / 2) * models * held_out * score


def needs_gpu(point: Point) -> bool:
    """Return whether a training point is too large for a CPU: one of ResNet-9 at the paper's size takes months of a core."""
    return bool(point["model"] == "resnet9")


@lru_cache(maxsize=2)
def _data_set(name: str, folder: Path | None, features: str) -> DataSet:
    return scattered(load(name, folder)) if features == SCATTERING else load(name, folder)


@lru_cache(maxsize=8)
def _deal(name: str, folder: Path | None, t: float, agents: int, features: str) -> AgentData:
    return _data_set(name, folder, features).split(agents, ByClass(t=t), seed=0)
