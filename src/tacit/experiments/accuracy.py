"""`accuracy`: what the published code reaches at nominal ε=1, and what the same budget buys when it is spent well.

Local noise leaves decentralized training behind central training with the same total lot. The part "without a centre" measures
how much of that gap closes where noise cancels between agents, against one and two curious ones.
"""

from tacit.experiments.accuracy_drawing import draw
from tacit.experiments.accuracy_elsewhere import points_elsewhere
from tacit.experiments.accuracy_finding import BUDGETS, EXCHANGES, FIEDLER, LATER, MARGINS, write_finding
from tacit.experiments.experiment import Environment, Experiment, Point, Profile, ResultRow, Value
from tacit.experiments.hyperparameters import CENTRAL, DECENTRALIZED, MNIST
from tacit.experiments.recipes import ALGORITHMS, FEATURES, MASKS, NETWORK, PUBLISHED, Try, recipe_point, setting_of
from tacit.experiments.trials import estimate_seconds, final_row, train_point

_TRIALS = 5  # of what is compared trial by trial
# The network with more rounds: settings that differ, and steps.
_LONG: dict[str, tuple[dict[str, Value], Try]] = {
    CENTRAL: ({}, Try(4.0, 0.8, 1000)),
    "dsgt": ({}, Try(2.0, 0.2, 1000)),
    "dinno": ({"rho": 0.1, "growth": None}, Try(0.01, 0.0005, 1000)),
}
_LONG_MASKS = {"complete": Try(4.0, 0.8, 1000), "ring": Try(2.0, 0.4, 1000), "random": Try(2.0, 0.4, 1000)}
_PLAIN_DINNO = Try(1.0, 0.05, 1000)  # with the plain inner steps of the recipe


def _points(profile: Profile) -> list[Point]:
    found = []
    for recipe in (FEATURES, NETWORK, PUBLISHED):
        several, compared = MNIST[profile].trials, 2 if profile == "smoke" else _TRIALS
        long = recipe == PUBLISHED and profile == "laptop"  # 2,000 rounds, run once, as the references were
        rings = DECENTRALIZED if recipe == FEATURES else ("dsgt",)
        for system, graph in [*((name, "complete") for name in ALGORITHMS), *((name, "ring") for name in rings)]:
            paired = recipe != PUBLISHED and (system in (CENTRAL, "dsgt") or (recipe, system) == (NETWORK, "dinno"))
            trials = 1 if long else compared if paired else several
            found.append(recipe_point(profile, recipe, system, graph, trials))
            if recipe == NETWORK and profile != "smoke" and system in _LONG and graph == "complete":
                count = several if system == "dinno" else trials
                found.append(recipe_point(profile, recipe, system, graph, count, *_LONG[system]))
        if recipe == PUBLISHED:
            continue
        for graph in MARGINS[recipe]:
            found.append(recipe_point(profile, recipe, MASKS, graph, compared, _like(graph)))
            if (recipe, graph) == (FEATURES, "ring"):
                often: dict[str, Value] = {"exchanges": EXCHANGES}
                found.append(recipe_point(profile, recipe, MASKS, graph, compared, often))
                found.append(recipe_point(profile, recipe, MASKS, graph, compared, often | {"seed": LATER}))
                found.append(recipe_point(profile, recipe, CENTRAL, graph, compared, {"seed": LATER}))
        found.append(recipe_point(profile, recipe, MASKS, "complete", compared, {"curious": 2}))
        if recipe == FEATURES:
            for epsilon in BUDGETS:
                for system, curious in ((CENTRAL, {}), ("dsgt", {}), (MASKS, {}), (MASKS, {"curious": 2})):
                    changed: dict[str, Value] = {"epsilon": epsilon, **curious}
                    found.append(recipe_point(profile, recipe, system, "complete", compared, changed))
        if recipe == NETWORK and profile != "smoke":
            found.append(recipe_point(profile, recipe, "dinno", "complete", several, {}, _PLAIN_DINNO))
            for graph, steps in _LONG_MASKS.items():
                found.append(recipe_point(profile, recipe, MASKS, graph, compared, _like(graph), steps))
    return list(dict.fromkeys([*found, *points_elsewhere(profile)]))


def _like(graph: str) -> dict[str, Value]:
    """Return what a graph must be like."""
    return {"fiedler": FIEDLER} if graph == "random" else {}


def _run(point: Point, environment: Environment) -> list[ResultRow]:
    results = train_point(point, environment, chosen=setting_of(point), seed=point.named.get("seed", 0))
    return [
        final_row(trial, result) | {"round_seconds": result.seconds / point["rounds"]}
        for trial, result in enumerate(results)
    ]


EXPERIMENT = Experiment(
    name="accuracy",
    title="Accuracy at ε = 1",
    claim="The published code reaches 91.5 % (central DP-SGD), 88.1 % (DP-DSGD), 89.3 % (DP-DSGT) and 89.7 % (DP-DiNNO) after 2,000 "
    "rounds on the complete graph, at a nominal (1, 1e-5).",
    varies=("dataset", "recipe", "algorithm", "graph", "epsilon", "curious", "exchanges", "rounds", "start", "seed"),
    points=_points,
    run=_run,
    draw=draw,
    finding=write_finding,
    seconds=estimate_seconds,
)
