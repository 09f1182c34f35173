"""How models for the accuracy table are trained: as published, and with settings of our own that cost no privacy.

`published` has the paper's network, steps, clipping and lots, in an algorithm that mixes synchronously. `network` is the same
network with a smaller clipping norm and steps to match. `features` is a linear model of fixed wavelet features. The steps
of the last two are the best of those that `tuning` tries on validation records, see `docs/results/tuning`.
"""

from dataclasses import dataclass
from typing import Any

from tacit.algorithms import DSGD, DSGT, SGD, Algorithm, Averaged, DiNNO
from tacit.experiments.experiment import Point, Profile, Value
from tacit.experiments.hyperparameters import AGENTS, CENTRAL, DECENTRALIZED, MNIST, Setting, Steps, setting
from tacit.experiments.hyperparameters import steps as published_steps
from tacit.experiments.trials import PIXELS, SCATTERING
from tacit.training.schedules import LogSpaced

EPSILON = 1.0
PUBLISHED, NETWORK, FEATURES = "published", "network", "features"
ALGORITHMS = (CENTRAL, *DECENTRALIZED)
_RULES: dict[str, Algorithm[Any]] = {"central": SGD(), "dsgd": DSGD(), "dsgt": DSGT(), "dinno": DiNNO()}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One way to train all algorithms.

    tried: the starts and finishes of η that were tried, for each algorithm.
    chosen: those that are used.
    rho: DiNNO's penalty, tried at the steps that are used.
    """

    features: str
    model: str
    rounds: int
    lot: int
    clip: float
    tried: dict[str, tuple[Steps, ...]]
    chosen: dict[str, Steps]
    rho: float


RECIPES = {
    NETWORK: Recipe(
        features=PIXELS,
        model="convnet",
        rounds=1000,
        lot=256,
        clip=1.0,
        tried={
            "central": ((1.0, 0.2), (2.0, 0.4), (4.0, 0.8), (8.0, 1.6)),
            "dsgd": ((0.25, 0.025), (0.5, 0.05), (1.0, 0.1)),
            "dsgt": ((0.5, 0.05), (1.0, 0.1), (2.0, 0.2), (4.0, 0.4), (8.0, 0.8)),
            "dinno": ((0.003, 0.0005), (0.01, 0.0005), (0.03, 0.0005)),
        },
        chosen={
            "central": (4.0, 0.8),
            "dsgd": (0.5, 0.05),
            "dsgt": (4.0, 0.4),
            "dinno": (0.01, 0.0005),
        },
        rho=0.1,
    ),
    FEATURES: Recipe(
        features=SCATTERING,
        model="logistic",
        rounds=200,
        lot=256,
        clip=1.0,
        tried={
            "central": ((2.0, 0.5), (4.0, 1.0), (8.0, 2.0)),
            "dsgd": ((0.5, 0.05), (1.0, 0.1), (2.0, 0.2)),
            "dsgt": ((0.5, 0.125), (1.0, 0.25), (2.0, 0.5), (4.0, 1.0)),
            "dinno": ((0.003, 0.0003), (0.01, 0.001), (0.03, 0.003)),
        },
        chosen={
            "central": (4.0, 1.0),
            "dsgd": (1.0, 0.1),
            "dsgt": (2.0, 0.5),
            "dinno": (0.01, 0.001),
        },
        rho=0.1,
    ),
}


def recipe_point(profile: Profile, recipe: str, algorithm: str, graph: str, trials: int, **changed: Value) -> Point:
    """Return the point of an algorithm on a graph by a recipe, but for settings that are changed.

    Central training has all records and the lot of all agents together; by the published recipe it has that of one.
    """
    scale, smoke = MNIST[profile], profile == "smoke"
    central = algorithm == CENTRAL
    if recipe == PUBLISHED:
        start, finish = published_steps(algorithm, EPSILON, scale.dataset)
        features, model, lot, clip = PIXELS, scale.model, scale.lot, setting(algorithm, EPSILON, scale.dataset).clip
        rounds = scale.rounds if smoke else MNIST["paper"].rounds
    else:
        ours = RECIPES[recipe]
        start, finish = ours.chosen[algorithm]
        features, model, rounds, lot, clip = ours.features, ours.model, ours.rounds, ours.lot, ours.clip
        if smoke:
            model, rounds, lot = scale.model, scale.rounds, scale.lot
        lot *= AGENTS if central else 1
    settings: dict[str, Value] = {
        "recipe": recipe,
        "algorithm": algorithm,
        "graph": None if central else graph,
        "epsilon": EPSILON,
        "t": 1.0,
        "agents": AGENTS,
        "dataset": scale.dataset,
        "features": features,
        "model": model,
        "rounds": rounds,
        "lot": lot,
        "clip": clip,
        "start": start,
        "finish": finish,
        "trials": trials,
    }
    return Point.of(**{**settings, **changed})


def setting_of(point: Point) -> Setting:
    """Return how a point is trained."""
    lr = LogSpaced(point["start"], point["finish"])
    if point["recipe"] == PUBLISHED:
        return Setting(rule=setting(point["algorithm"], EPSILON, point["dataset"]).rule, lr=lr, clip=point["clip"])
    rule = _RULES[point["algorithm"]]
    if rho := point.named.get("rho"):
        rule = DiNNO(rho=rho)
    if averaging := point.named.get("averaging"):
        rule = Averaged(rule, averaging)
    return Setting(rule=rule, lr=lr, clip=point["clip"])
