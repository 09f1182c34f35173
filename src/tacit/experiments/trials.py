"""Runs and describes points that train models: several trials side by side, with the paper's settings unless others are given.

A point's settings are `algorithm`, `epsilon` (None without privacy), `t` of A(t), its graph, and the profile's scale. Where
`curious` is given, noise cancels between agents and ε holds against that number of them; where `noise` is discrete, records are rounded to a
grid, with ε by the rdp accountant. Trial k takes its start, lots, noise and graph from seed k. Points share seeds, so comparisons are made
on the same starts and graphs. `central` trains on the pooled records, with the lot of its point.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache, partial
from pathlib import Path

import networkx as nx
import numpy as np
from torch import nn

from tacit import Cancelling, Discrete, Fast, NoPrivacy, Observer, Privacy, Result, train_trials
from tacit.data import AgentData, ByClass, DataSet, load, scattered
from tacit.experiments.experiment import Environment, Point, ResultRow, Value, write_budget
from tacit.experiments.hyperparameters import AGENTS, CENTRAL, DELTA, NAMES, Scale, Setting, setting, steps
from tacit.experiments.statistics import select
from tacit.graphs import build, find_graph, measure
from tacit.models import CROSS, Views, cross_entropy, views_cross_entropy
from tacit.models import build as build_model
from tacit.networks import Topology
from tacit.privacy import Event
from tacit.report.wording import counted, span

PIXELS, SCATTERING = "pixels", "scattering"  # the inputs of a model

GUARANTEE = f"ε at δ = {DELTA:g}, add-or-remove-one adjacency"
"""What every ε of a figure or finding means."""

_TOLERANCE = 0.015  # of searched graphs; a link of ten agents is 0.022 of the density
# Seconds of one core for a record's clipped gradient and for its evaluation, and to compile; measured, except ResNet-9's last two.
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
    point: Point,
    environment: Environment,
    *,
    evaluations: int = 1,
    chosen: Setting | None = None,
    graphs: Sequence[nx.Graph | Topology] | None = None,
    seed: int = 0,
) -> list[Result]:
    """Train all trials of a point and return their results, with this many evaluations on the way.

    chosen: how it is trained; as published by default.
    graphs: who talks to whom in each trial; what the point says by default.
    seed: that of the first trial's start, lots and noise.
    """
    features, rounds, trials = point.named.get("features", PIXELS), point["rounds"], point["trials"]
    data = _split(point["dataset"], environment.data, point["t"], point["agents"], features)
    central = point["algorithm"] == CENTRAL
    chosen = chosen or setting(point["algorithm"], point["epsilon"], point["dataset"])
    return train_trials(
        trials,
        chosen.rule,
        model=partial(_model, point, data.dataset),
        loss=views_cross_entropy if point.named.get("views") else cross_entropy,
        data=data.pooled() if central else data,
        graph=None if central else list(graphs or [graph_of(point, trial) for trial in range(trials)]),
        privacy=_privacy(point, chosen.clip),
        rounds=rounds,
        lr=chosen.lr,
        exchanges_per_query=point.named.get("exchanges", 1),
        seed=seed,
        sources=Fast(seed),
        evaluate_every=max(1, rounds // evaluations),
        device=environment.device,
        progress=environment.progress,
    )


def _privacy(point: Point, clip: float) -> Privacy | NoPrivacy:
    if point["epsilon"] is None:
        return NoPrivacy(lot_size=point["lot"])
    settings = {"epsilon": point["epsilon"], "delta": DELTA, "clip": clip, "lot_size": point["lot"]}
    if point.named.get("noise") == "discrete":
        return Privacy(**settings, noise=Discrete(), accountant="rdp")
    curious = point.named.get("curious")
    return Privacy(**settings, noise=None if curious is None else Cancelling(curious=curious))


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


def write_event(event: Event) -> ResultRow:
    """Return an agent's mechanism as part of a row."""
    row: ResultRow = {
        "sample_rate": event.sample_rate,
        "noise_multiplier": event.noise_multiplier,
        "queries": event.count,
    }
    return row | {"discrete": True} if event.discrete else row


def read_event(row: ResultRow) -> Event:
    """Return the mechanism that a row holds."""
    return Event(
        sample_rate=row["sample_rate"],
        noise_multiplier=row["noise_multiplier"],
        count=row["queries"],
        discrete=row.get("discrete", False),
    )


def run_final(point: Point, environment: Environment) -> list[ResultRow]:
    """Train a point and return one row for each trial."""
    return [final_row(trial, result) for trial, result in enumerate(train_point(point, environment))]


def run_course(point: Point, environment: Environment, *, evaluations: int) -> list[ResultRow]:
    """Train a point and return one row for each trial and evaluation, with accuracies on the validation half."""
    rows = []
    for trial, result in enumerate(train_point(point, environment, evaluations=evaluations)):
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


def estimate_seconds(point: Point, *, evaluations: int = 1) -> float:
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
    return starting + training + (1 + evaluations / 2) * models * held_out * score


def needs_gpu(point: Point) -> bool:
    """Return whether a training point is too large for a CPU: one of ResNet-9 at the paper's size takes months of a core."""
    return bool(point["model"] == "resnet9")


@lru_cache(maxsize=2)
def _data_set(name: str, folder: Path | None, features: str) -> DataSet:
    return scattered(load(name, folder)) if features == SCATTERING else load(name, folder)


@lru_cache(maxsize=8)
def _split(name: str, folder: Path | None, t: float, agents: int, features: str) -> AgentData:
    return _data_set(name, folder, features).split(agents, ByClass(t=t), seed=0)


def describe_training(rows: Sequence[ResultRow]) -> str:
    """Say what was trained, how often, and what ε means."""
    one = rows[0]
    own = " with classes of their own (t = 1)" if all(row["t"] == 1.0 for row in rows) else ""
    return (
        f"{one['dataset']}, {one['model']}, {one['agents']} agents{own}, lots of {one['lot']}, {one['rounds']:,} rounds, "
        f"{counted(one['trials'], 'trial')}; {GUARANTEE}"
    )


def describe_steps(rows: Sequence[ResultRow]) -> str:
    """Say with which steps and clipping norms the rows were trained: the published ones."""
    parts = []
    for algorithm in dict.fromkeys(row["algorithm"] for row in rows):
        budgets = dict.fromkeys(row["epsilon"] for row in select(rows, algorithm=algorithm))
        every = {epsilon: steps(algorithm, epsilon, rows[0]["dataset"]) for epsilon in budgets}
        listed = ", ".join(f"{_write_steps(*each)} ({write_budget(epsilon)})" for epsilon, each in every.items())
        clip = setting(algorithm, next(iter(budgets)), rows[0]["dataset"]).clip
        parts.append(f"{NAMES[algorithm]} η {listed}, C = {clip:g}")
    whose = "the published ones" if rows[0]["dataset"] in ("mnist", "cifar100") else "the published ones of MNIST"
    return f"Steps are {whose}, not tuned again: {'; '.join(parts)}."


def _write_steps(start: float, finish: float) -> str:
    return f"{start:g}" if start == finish else f"{start:g} to {finish:g}"


def describe_graphs(rows: Sequence[ResultRow], asked: str) -> str:
    """Say which properties the graphs of the trials really have, for each value of the one that was `asked` for."""
    parts = []
    for value in sorted({row[asked] for row in rows} - {None}):
        own = select(rows, **{asked: value})
        point = Point.of(agents=own[0]["agents"], **{asked: value})
        found = [measure(graph_of(point, trial)) for trial in sorted({row["trial"] for row in own})]
        kinds = {
            "a Fiedler value / N of": [each.normalized_fiedler for each in found],
            "a density of": [each.density for each in found],
        }
        if asked == "centrality":
            kinds["a centrality of node 0 of"] = [each.centrality[0] for each in found]
        listed = ", ".join(f"{name} {span(values, '{:.2g}'.format)}" for name, values in kinds.items())
        parts.append(f"at {value:g} {listed}")
    return f"The graphs of the trials have {'; '.join(parts)}."
