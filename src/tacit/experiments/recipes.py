"""How models for the accuracy table are trained: as published, and with settings of our own that cost no privacy.

`published` has the paper's network, steps, clipping and lots, in an algorithm that mixes synchronously. `network` is the same
network with a smaller clipping norm and steps to match. `features` is a linear model of fixed wavelet features. The steps
of the last two were chosen among those that `tuning` lists, on validation records and with one seed each unless it says otherwise. Not all
of these tries are on record, and masks take the steps of central training; `docs/results/tuning` says what was tried.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tacit import DSGD, DSGT, SGD, Averaged, DiNNO, LogSpaced, Plain
from tacit.algorithms import Algorithm
from tacit.experiments.experiment import Point, Profile, Value
from tacit.experiments.hyperparameters import AGENTS, CENTRAL, DECENTRALIZED, MNIST, Setting, setting
from tacit.experiments.hyperparameters import steps as published_steps
from tacit.experiments.trials import PIXELS, SCATTERING

EPSILON = 1.0
PUBLISHED, NETWORK, FEATURES = "published", "network", "features"
MASKS = "masks"  # DSGT with noise that cancels, against one curious agent, with the steps of central training
ALGORITHMS = (CENTRAL, *DECENTRALIZED)
_NOTHING: Mapping[str, Value] = {}
_RULES: dict[str, Algorithm[Any]] = {"central": SGD(), "dsgd": DSGD(), "dsgt": DSGT(), "dinno": DiNNO()}


@dataclass(frozen=True)
class Try:
    """Step sizes from `start` to `finish`, over `rounds` rounds."""

    start: float
    finish: float
    rounds: int


@dataclass(frozen=True, kw_only=True)
class TriedSteps:
    """The steps of one system: all that were tried, and those that are used.

    settings: further settings of all tries.
    later: settings that were chosen afterwards, with the steps that are used.
    """

    used: Try
    tried: tuple[Try, ...]
    settings: Mapping[str, Value] = field(default_factory=dict)
    later: Mapping[str, Value] = field(default_factory=dict)


def _tuned(used: int, *tried: Try, **more: Any) -> TriedSteps:
    return TriedSteps(used=tried[used], tried=tried, **more)


def tries(rounds: int, *steps: tuple[float, float]) -> tuple[Try, ...]:
    """Return steps with the same number of rounds."""
    return tuple(Try(start, finish, rounds) for start, finish in steps)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One way to train all systems."""

    features: str
    model: str
    lot: int
    clip: float
    systems: dict[str, TriedSteps]


RECIPES = {
    NETWORK: Recipe(
        features=PIXELS,
        model="convnet",
        lot=256,
        clip=1.0,
        systems={
            "central": _tuned(
                4,
                *tries(1000, (1.0, 0.2), (2.0, 0.4), (4.0, 0.8), (8.0, 1.6)),
                *tries(300, (4.0, 0.8), (8.0, 0.8), (16.0, 0.8)),
            ),
            "dsgd": _tuned(1, *tries(1000, (0.25, 0.025), (0.5, 0.05), (1.0, 0.1))),
            "dsgt": _tuned(
                7,
                *tries(1000, (0.5, 0.05), (1.0, 0.1), (2.0, 0.2), (4.0, 0.4), (8.0, 0.8)),
                *tries(300, (1.0, 0.1), (2.0, 0.2), (4.0, 0.4)),
            ),
            "dinno": _tuned(
                2,
                *tries(300, (0.5, 0.05), (1.0, 0.05), (2.0, 0.1), (4.0, 0.2)),
                settings={"rho": 0.05, "growth": 1.001},
            ),
        },
    ),
    FEATURES: Recipe(
        features=SCATTERING,
        model="logistic",
        lot=256,
        clip=1.0,
        systems={
            "central": _tuned(1, *tries(200, (2.0, 0.5), (4.0, 1.0), (8.0, 2.0))),
            "dsgd": _tuned(1, *tries(200, (0.5, 0.05), (1.0, 0.1), (2.0, 0.2))),
            "dsgt": _tuned(2, *tries(200, (0.5, 0.125), (1.0, 0.25), (2.0, 0.5), (4.0, 1.0))),
            "dinno": _tuned(1, *tries(200, (0.003, 0.0003), (0.01, 0.001), (0.03, 0.003)), later={"rho": 0.1}),
        },
    ),
}


def recipe_point(
    profile: Profile,
    recipe: str,
    system: str,
    graph: str,
    trials: int,
    changed: Mapping[str, Value] = _NOTHING,
    tried: Try | None = None,
) -> Point:
    """Return the point of a system on a graph by a recipe, with some settings changed.

    Central training has all records and the lot of all agents together; by the published recipe it has that of one.

    tried: steps other than those that are used.
    """
    scale, smoke = MNIST[profile], profile == "smoke"
    algorithm = "dsgt" if system == MASKS else system
    tuned: dict[str, Value] = {"curious": 1} if system == MASKS else {}
    if recipe == PUBLISHED:
        steps = Try(*published_steps(algorithm, EPSILON, scale.dataset), MNIST["paper"].rounds)
        features, model, lot, clip = PIXELS, scale.model, scale.lot, setting(algorithm, EPSILON, scale.dataset).clip
    else:
        ours = RECIPES[recipe]
        found = ours.systems[CENTRAL if system == MASKS else system]
        steps, features, model, lot, clip = found.used, ours.features, ours.model, ours.lot, ours.clip
        tuned |= {**found.settings, **({} if tried else found.later)}
        if smoke:
            model, lot = scale.model, scale.lot
        lot *= AGENTS if algorithm == CENTRAL else 1
    steps = tried or steps
    settings: dict[str, Value] = {
        "recipe": recipe,
        "algorithm": algorithm,
        "graph": None if algorithm == CENTRAL else graph,
        "epsilon": EPSILON,
        "t": 1.0,
        "agents": AGENTS,
        "dataset": scale.dataset,
        "features": features,
        "model": model,
        "rounds": scale.rounds if smoke else steps.rounds,
        "lot": lot,
        "clip": clip,
        "start": steps.start,
        "finish": steps.finish,
        "trials": trials,
        **tuned,
        **changed,
    }
    return Point.of(**{name: value for name, value in settings.items() if value is not None or name == "graph"})


def setting_of(point: Point) -> Setting:
    """Return how a point is trained."""
    lr = LogSpaced(point["start"], point["finish"])
    if point["recipe"] == PUBLISHED:
        return Setting(rule=setting(point["algorithm"], EPSILON, point["dataset"]).rule, lr=lr, clip=point["clip"])
    rule = _RULES[point["algorithm"]]
    if growth := point.named.get("growth"):
        rule = DiNNO(rho=point["rho"], rho_growth=growth, step=Plain())
    elif rho := point.named.get("rho"):
        rule = DiNNO(rho=rho)
    if averaging := point.named.get("averaging"):
        rule = Averaged(rule, averaging)
    return Setting(rule=rule, lr=lr, clip=point["clip"])
