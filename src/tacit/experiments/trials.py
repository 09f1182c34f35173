"""Plays a point that trains models: several trials side by side, on the paper's settings.

A point's settings are `algorithm`, `epsilon` (None without privacy), `t` of A(t), what its graph is like, and the profile's
scale. Trial k has its own start, lots, noise and graph, all from seed k: points share seeds, and whatever is compared is
compared on the same starts and graphs. `central` trains on the pooled records, with a lot of the size that its point names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache, partial
from pathlib import Path

import networkx as nx
import numpy as np
from torch import nn

from tacit.api import train_trials
from tacit.data import AgentData, ByClass, DataSet, load, scattered
from tacit.experiments.experiment import Place, Point, Row, Value
from tacit.experiments.hyperparameters import AGENTS, CENTRAL, DELTA, Scale, Setting, setting
from tacit.graphs import build, find_graph
from tacit.models import CROSS, Views, cross_entropy, views_cross_entropy
from tacit.models import build as build_model
from tacit.privacy import Fast, NoPrivacy, Privacy
from tacit.training.results import Result

PIXELS, SCATTERING = "pixels", "scattering"  # what a model reads of an image

_TOLERANCE = 0.015  # of searched graphs; a link of ten agents is 0.022 of the density
# Seconds of one core for a record's clipped gradient and for its evaluation, and to compile; measured, but for ResNet-9's last two.
_COSTS = {
    "logistic": (4e-6, 2e-6, 0.0),
    "convnet": (4e-5, 4e-5, 45.0),
    "resnet9": (6e-2, 1.5e-2, 300.0),
    "scattering": (1e-4, 2e-5, 0.0),
}
_HELD_OUT = {"digits": 360}  # records that models are scored on, 10,000 for the others
_OVERHEAD = 0.006  # seconds a round
_STARTING, _CALIBRATING = 0.2, 1.0  # seconds a point; noise that was calibrated before costs nothing


def training_point(
    scale: Scale, graph: Mapping[str, Value], *, algorithm: str, epsilon: float | None, t: float = 1.0
) -> Point:
    """Return a point; `graph` says what its graph is like, with None for a value where there is no graph."""
    return Point.of(algorithm=algorithm, epsilon=epsilon, **graph, t=t, agents=AGENTS, **asdict(scale))


def train_point(
    point: Point, place: Place, *, looks: int = 1, chosen: Setting | None = None, seed: int = 0
) -> list[Result]:
    """Train all trials of a point and return their results, with so many looks at the models on the way.

    chosen: how it is trained, as published unless given.
    seed: that of the first trial's start, lots and noise.
    """
    data = _dealt(point["dataset"], place.data, point["t"], point["agents"], point.named.get("features", PIXELS))
    central = point["algorithm"] == CENTRAL
    chosen = chosen or setting(point["algorithm"], point["epsilon"], point["dataset"])
    lot, rounds = point["lot"], point["rounds"]
    return train_trials(
        point["trials"],
        chosen.rule,
        model=partial(_model, point, data.dataset),
        loss=views_cross_entropy if point.named.get("views") else cross_entropy,
        data=data.pooled() if central else data,
        graph=None if central else [graph_of(point, trial) for trial in range(point["trials"])],
        privacy=NoPrivacy(lot_size=lot)
        if point["epsilon"] is None
        else Privacy(epsilon=point["epsilon"], delta=DELTA, clip=chosen.clip, lot_size=lot),
        rounds=rounds,
        lr=chosen.lr,
        seed=seed,
        sources=Fast(seed),
        evaluate_every=max(1, rounds // looks),
        device=place.device,
        progress=place.progress,
    )


def _model(point: Point, data: DataSet) -> nn.Module:
    model = build_model(point["model"], data.input_shape, data.classes or 0)
    return Views(model, CROSS[:views]) if (views := point.named.get("views")) else model


def graph_of(point: Point, trial: int) -> nx.Graph:
    """Return the graph of one trial of a point."""
    agents = point["agents"]
    if kind := point.named.get("graph"):
        return build(kind, agents, seed=trial)
    wanted = {name: point[name] for name in ("fiedler", "density", "centrality") if name in point.named}
    return find_graph(agents, **wanted, tolerance=_TOLERANCE, seed=trial)


def final_row(trial: int, result: Result) -> Row:
    """Return what came of one trial: accuracies on the test half, and the ε that the ledger derives."""
    accuracy = result.evaluate().accuracy
    assert accuracy is not None
    private = result.plan.privacy is not None
    return {
        "trial": trial,
        "accuracy": float(accuracy.mean()),
        "worst": float(accuracy.min()),
        "validation": float(result.accuracy.mean()),
        "consensus_distance": result.consensus_distance,
        "bytes_sent": result.bytes_sent,
        "noise_multiplier": max(result.plan.noise_multipliers) if private else None,
        "epsilon_spent": max(each.epsilon for each in result.guarantees()) if private else None,
    }


def course_rows(trial: int, result: Result) -> list[Row]:
    """Return one row for each look on the way, with accuracies on the validation half."""
    rows = []
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


def seconds(point: Point, *, looks: int = 1) -> float:
    """Roughly how long a training point takes on one core."""
    read = point.named.get("features", PIXELS)
    gradient, score, compiling = _COSTS[point["model"] if read == PIXELS else read]
    agents = 1 if point["algorithm"] == CENTRAL else point["agents"]
    models, rounds = agents * point["trials"], point["rounds"]
    inner = 2 if point["algorithm"] == "dinno" and point["dataset"] == "cifar100" else 1
    held_out = _HELD_OUT.get(point["dataset"], 10_000)
    views = point.named.get("views", 1)
    training = rounds * inner * (_OVERHEAD + models * point["lot"] * views * gradient)
    starting = _STARTING + compiling + (0.0 if point["epsilon"] is None else _CALIBRATING)
    return starting + training + (1 + looks / 2) * models * held_out * score


def needs_gpu(point: Point) -> bool:
    """Tell whether a training point is too large for a processor: one of ResNet-9 at the paper's size takes months of a core."""
    return bool(point["model"] == "resnet9")


def play_course(point: Point, place: Place, *, looks: int) -> list[Row]:
    """Train a point and return one row for each trial and look on the way."""
    results = train_point(point, place, looks=looks)
    return [row for trial, result in enumerate(results) for row in course_rows(trial, result)]


def accuracies(rows: Sequence[Row], **settings: Value) -> list[float]:
    """Return the final accuracies of the trials of one point."""
    return [row["accuracy"] for row in rows if all(row[name] == value for name, value in settings.items())]


@lru_cache(maxsize=2)
def _data_set(name: str, folder: Path | None, features: str) -> DataSet:
    return scattered(load(name, folder)) if features == SCATTERING else load(name, folder)


@lru_cache(maxsize=8)
def _dealt(name: str, folder: Path | None, t: float, agents: int, features: str) -> AgentData:
    return _data_set(name, folder, features).split(agents, ByClass(t=t), seed=0)
