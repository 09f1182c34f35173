"""`family`: every shipped rule at ε = 1, with its bytes; graphs that change, at equal bytes; robust means with and without nonsense; votes of
teachers on evenly divided data.

The step of every system is chosen from one grid, by accuracy on validation records, with one run of a seed that no trial has. Where the best is at
an edge of the grid, the grid is extended there. A step is chosen on the ring, or on random pairs for rules that need these, and used on all graphs.
Other options of a rule have their defaults, except for those at the top of `family_finding`.

Graphs that change have as many rounds as send the bytes of the ring, and noise for that number of queries.

A point with `first` has further trials of the point without it, from that number on. All points with the same `first` share their seeds.
"""

import json
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import networkx as nx

from tacit import DSGD, DSGT, DiNNO, LogSpaced, Result
from tacit.algorithms import (
    ADPSGD,
    D2,
    DPSRM,
    EXTRA,
    LEASGD,
    PATE,
    QDPSGD1,
    QDPSGD2,
    SDMDSGD,
    Algorithm,
    ChocoSGD,
    DeepSqueeze,
    LocalDSGD,
    Muffliato,
    Robust,
)
from tacit.experiments.experiment import Environment, Experiment, Point, Profile, ResultRow, Value
from tacit.experiments.family_drawing import draw
from tacit.experiments.family_finding import (
    BYTES,
    CHANGING,
    EPSILON,
    EXCHANGES,
    GRAPHS,
    LOCAL_STEPS,
    MASKS,
    MEANS,
    NONSENSE,
    RHO,
    ROUNDED,
    SCHEDULES,
    SENDERS,
    VOTES,
    write_finding,
)
from tacit.experiments.hyperparameters import AGENTS, MNIST, Setting
from tacit.experiments.nonsense import Nonsense
from tacit.experiments.trials import PIXELS, estimate_seconds, final_row, train_point
from tacit.graphs import build, measure
from tacit.networks import Codec, Topology, as_topology, find_codec, schedule
from tacit.ties import first_largest

_GRID = (0.0625, 0.25, 1.0, 4.0, 16.0)  # first η of a run; the last one is a fifth of it
_RATIO = 4.0  # between a step of the grid and the next, also where it is extended
_MOST = 10  # steps that are tried
_SMOKE_GRID = (1.0,)
_STUDENTS = (2.0,)  # whose gradients have no noise
_LAST, _ADAM = 0.2, 0.01  # DiNNO normalises its steps by Adam: a hundredth of the grid
_TUNING_SEED = 1000  # of no trial: a step that was lucky here is not lucky there
_PAIRED = ("leasgd", "ad-psgd")  # tuned on random pairs
_TUNED_AS = {ROUNDED: "q-dpsgd-1"}  # the same rule with other noise, for a tenth of the time
_SYSTEMS = (
    "dsgd",
    "dsgt",
    "dsgt, qsgd:8",
    "dsgt, qsgd:4",
    MASKS,
    "dinno",
    "local-dsgd",
    "d2",
    "extra",
    "muffliato",
    "choco",
    "deepsqueeze",
    "sdm-dsgd",
    "q-dpsgd-1",
    ROUNDED,
    "dp-srm",
    "leasgd",
)
_OPTIONS = ("peers", "reach", "window")
_TEACHERS = (5, 50)  # of each agent
_TEACHER_STEP = 1.2e-3  # seconds
# Seconds for a record besides those of its clipped gradient: two gradients by vmap, or rounding every number of one at random.
_RECORD = {"dp-srm": 1.8e-4, ROUNDED: 1.8e-4}
_ASKED = (200, 100, 30)  # public records, answers, and steps of a teacher
_TRIALS: dict[Profile, int] = {"smoke": 2, "laptop": 4, "paper": 5}
_AT_ONCE = 2  # trials of a point on a laptop, except for graphs that change: further trials are points of their own


def _points(profile: Profile) -> list[Point]:
    complete = _SYSTEMS[:5] if profile == "smoke" else _SYSTEMS
    points = [_point(profile, BYTES, system, "ring") for system in _SYSTEMS]
    points += [_point(profile, BYTES, system, "complete") for system in complete]
    points += [_point(profile, BYTES, system, "matchings") for system in ("dsgt", *_PAIRED)]
    points += [
        _equal_bytes(_point(profile, SCHEDULES, system, links, **more))
        for links, more in CHANGING.items()
        for system in (("dsgt", "d2") if profile == "paper" else ("dsgt",))
    ]
    points += [
        _point(profile, NONSENSE, "dsgd", graph, mixing=mixing, nonsense=senders)
        for graph in (GRAPHS if profile == "paper" else ("complete",))
        for mixing in MEANS
        for senders in (0, SENDERS[graph])
    ]
    for epsilon in (8.0,) if profile == "smoke" else (1.0, 8.0):
        points += [_point(profile, VOTES, "dsgt", "ring", t=0.0, epsilon=epsilon)]
        points += [
            _point(profile, VOTES, f"pate, {teachers} teachers", "ring", t=0.0, epsilon=epsilon, teachers=teachers)
            for teachers in ((3,) if profile == "smoke" else _TEACHERS)
        ]
    return [*points, *_further_trials(points)] if profile == "laptop" else points


def _further_trials(points: Sequence[Point]) -> list[Point]:
    """Return the points with the trials that these points do not have."""
    firsts = range(_AT_ONCE, _TRIALS["laptop"], _AT_ONCE)
    return [
        Point.of(**point.named | {"first": each}) for each in firsts for point in points if point["part"] != SCHEDULES
    ]


def _point(profile: Profile, part: str, system: str, links: str, **more: Value) -> Point:
    scale, smoke = MNIST[profile], profile == "smoke"
    kinds: dict[str, dict[str, Value]] = {MASKS: {"curious": 1}, ROUNDED: {"noise": "discrete"}}
    settings: dict[str, Value] = {
        "part": part,
        "system": system,
        "algorithm": system.partition(",")[0].partition(" ")[0],
        "links": links,
        "epsilon": EPSILON,
        "t": 1.0,
        "agents": AGENTS,
        "dataset": scale.dataset,
        "features": PIXELS,
        "model": "logistic" if profile == "laptop" else scale.model,
        "rounds": scale.rounds if smoke else {"laptop": 100, "paper": 1000}[profile],
        "lot": scale.lot,
        "clip": 1.0,
        "trials": _AT_ONCE if profile == "laptop" and part != SCHEDULES else _TRIALS[profile],
    }
    return Point.of(**settings | kinds.get(system, {}) | more)


def _equal_bytes(point: Point) -> Point:
    """Return a point with as many rounds as send what its number of rounds sends on a ring."""
    topologies = tuple(
        item for item in point.settings if item[0] in ("links", "agents", "trials", "exchanges", *_OPTIONS)
    )
    rounds = _rounds_for(topologies, messages=point["rounds"] * 2 * point["agents"])
    return Point.of(**point.named | {"rounds": rounds, "ring_rounds": point["rounds"]})


@lru_cache(maxsize=64)
def _rounds_for(topologies: tuple[tuple[str, Value], ...], messages: int) -> int:
    """Return after how many rounds the trials of a point have sent nearest to this many messages, on average."""
    point = Point(topologies)
    each = [as_topology(_links(point, trial)) for trial in range(point["trials"])]
    rounds, sent, before = 0, 0.0, 0.0
    while sent < messages:
        exchanges = range(rounds * point["exchanges"], (rounds + 1) * point["exchanges"])
        heard = sum(int(links.degrees.sum()) for one in each for number in exchanges for links in one.at(number))
        rounds, sent, before = rounds + 1, sent + heard / len(each), sent
    return rounds if sent - messages < messages - before else rounds - 1


def _rule(point: Point) -> Algorithm[Any]:
    if point["algorithm"] == "pate":
        smoke = point["dataset"] == MNIST["smoke"].dataset
        records, answers, steps = (60, 30, 5) if smoke else _ASKED
        return PATE(teachers=point["teachers"], records=records, answers=answers, teacher_steps=steps)
    codec: Codec = find_codec(point["system"].partition(", ")[2] or "dense")
    gap = measure(build("ring", AGENTS)).spectral_gap if point["links"] == "ring" else None
    rules: dict[str, Algorithm[Any]] = {
        "dsgd": DSGD(codec=codec),
        "dsgt": DSGT(codec=codec),
        "dinno": DiNNO(rho=RHO),
        "local-dsgd": LocalDSGD(local_steps=LOCAL_STEPS),
        "d2": D2(),
        "extra": EXTRA(),
        "choco": ChocoSGD(),
        "deepsqueeze": DeepSqueeze(),
        "sdm-dsgd": SDMDSGD(),
        "q-dpsgd-1": QDPSGD1(),
        ROUNDED: QDPSGD2(),
        "muffliato": Muffliato(exchanges=EXCHANGES if gap else 1, gap=gap),
        "dp-srm": DPSRM(),
        "leasgd": LEASGD(),
        "ad-psgd": ADPSGD(),
    }
    rule = rules[point["algorithm"]]
    if (mixing := point.named.get("mixing", "metropolis")) != "metropolis":
        rule = Robust(rule, mixing, point["nonsense"] or None if mixing == "trimmed" else None)
    senders = point.named.get("nonsense", 0)
    return Nonsense(rule, senders) if senders else rule


def _links(point: Point, trial: int) -> nx.Graph | Topology:
    if point["links"] in ("ring", "complete"):
        return build(point["links"], point["agents"])
    options = {name: point[name] for name in _OPTIONS if name in point.named}
    return schedule(point["links"], point["agents"], trial, **options)


def _run(point: Point, environment: Environment) -> list[ResultRow]:
    tried = _try_steps(point, environment)
    start = list(tried)[first_largest(tried.values())]
    steps: ResultRow = {"start": start, "finish": _LAST * start, "tried": json.dumps(tried)}
    rows, first = [], point.named.get("first", 0)
    for trial, result in enumerate(_train(point, environment, start, first), first):
        row = final_row(trial, result)
        if senders := point.named.get("nonsense", 0):
            accuracy = result.evaluate().accuracy
            assert accuracy is not None
            row |= {"accuracy": float(accuracy[senders:].mean()), "worst": float(accuracy[senders:].min())}
        rows.append(steps | row)
    return rows


def _train(point: Point, environment: Environment, start: float, seed: int = 0) -> list[Result]:
    setting = Setting(rule=_rule(point), lr=LogSpaced(start, _LAST * start), clip=point["clip"])
    first = point.named.get("first", 0)
    links = [_links(point, trial) for trial in range(first, first + point["trials"])]
    return train_point(point, environment, chosen=setting, graphs=links, seed=seed)


_scores: dict[tuple[str, float], float] = {}  # so that a system that is on several graphs is tuned once in a process


def _try_steps(point: Point, environment: Environment) -> dict[float, float]:
    """Return the accuracy on validation records with each step that was tried, of a system on the links on which it is tuned."""
    algorithm = _TUNED_AS.get(point["algorithm"], point["algorithm"])
    apart = {"part", "mixing", "nonsense", "exchanges", "noise", "ring_rounds", "first", *_OPTIONS}
    settings = {name: value for name, value in point.settings if name not in apart}
    if point["algorithm"] in _TUNED_AS:
        settings |= {"algorithm": algorithm, "system": algorithm}
    settings |= {"links": "matchings" if algorithm in _PAIRED else "ring", "trials": 1}
    settings |= {"rounds": point.named.get("ring_rounds", point["rounds"])}
    alone = Point.of(**settings)
    grid = [_ADAM * each if algorithm == "dinno" else each for each in _grid(point)]
    if len(grid) == 1:
        return {grid[0]: 0.0}

    def score(start: float) -> float:
        if (alone.key, start) not in _scores:
            found = float(_train(alone, environment, start, _TUNING_SEED)[0].accuracy.mean())
            _scores[alone.key, start] = 0.0 if math.isnan(found) else round(found, 4)  # NaN: models diverged
        return _scores[alone.key, start]

    return extend_grid(grid, score)


def extend_grid(grid: Sequence[float], score: Callable[[float], float]) -> dict[float, float]:
    """Return the score of every step of a grid, and of further ones at its ends until the best is not at an end."""
    tried = {start: score(start) for start in grid}
    while len(tried) < _MOST:
        best = list(tried)[first_largest(tried.values())]
        if best == max(tried):
            tried[best * _RATIO] = score(best * _RATIO)
        elif best == min(tried):
            tried[best / _RATIO] = score(best / _RATIO)
        else:
            break
    return dict(sorted(tried.items()))


def _grid(point: Point) -> tuple[float, ...]:
    if point["algorithm"] == "pate":
        return _STUDENTS
    return _SMOKE_GRID if point["dataset"] == MNIST["smoke"].dataset else _GRID


def _seconds(point: Point) -> float:
    steps = LOCAL_STEPS if point["algorithm"] == "local-dsgd" else 1
    tuned = point["algorithm"] not in _TUNED_AS
    first = (
        tuned
        and point["part"] == BYTES
        and "first" not in point.named
        and point["links"] == ("matchings" if point["algorithm"] in _PAIRED else "ring")
    )
    tried = len(_grid(point)) / point["trials"] if first and len(_grid(point)) > 1 else 0
    records = point["rounds"] * point["agents"] * point["lot"] * point["trials"]
    one = steps * estimate_seconds(point) + _RECORD.get(point["algorithm"], 0.0) * records
    teaching = 0.0
    if point["algorithm"] == "pate":
        teaching = _TEACHER_STEP * _ASKED[-1] * point["teachers"] * point["agents"] * point["trials"]
    return (1 + tried) * one + teaching


EXPERIMENT = Experiment(
    name="family",
    title="Accuracy and bytes of every rule",
    claim="LEASGD, SDM-DSGD, Q-DPSGD and Muffliato fall under the framework as well; which of them is better is not said.",
    varies=("part", "system", "links", "epsilon", "mixing", "nonsense", "first"),
    points=_points,
    run=_run,
    draw=draw,
    finding=write_finding,
    seconds=_seconds,
)
