"""Accuracy without a centre on data sets other than MNIST, with the steps that were chosen on MNIST."""

from collections.abc import Sequence

from tacit.experiments.experiment import Point, Profile, ResultRow, Value
from tacit.experiments.hyperparameters import CENTRAL
from tacit.experiments.recipes import FEATURES, MASKS, recipe_point
from tacit.experiments.statistics import accuracies, select, subtract, summarise
from tacit.experiments.trials import PIXELS

_EPSILON = 2.0
_FASHION, _CIFAR = "fashion-mnist", "cifar100-small"
ELSEWHERE = (_FASHION, _CIFAR)
_MODELS = {_FASHION: "a linear model of scattering features", _CIFAR: "a linear model of pixels"}
_SYSTEMS: tuple[tuple[str, str, str, dict[str, Value]], ...] = (
    (_FASHION, CENTRAL, "complete", {}),
    (_FASHION, "dsgt", "complete", {}),
    (_FASHION, MASKS, "complete", {}),
    (_FASHION, MASKS, "complete", {"curious": 2}),
    (_FASHION, MASKS, "ring", {}),
    (_CIFAR, CENTRAL, "complete", {}),
    (_CIFAR, "dsgt", "complete", {}),
    (_CIFAR, MASKS, "complete", {}),
)
_TRIALS = {_FASHION: 5, _CIFAR: 3}


def points_elsewhere(profile: Profile) -> list[Point]:
    """Return the points on other data sets; the smoke profile has none."""
    if profile == "smoke":
        return []
    found = []
    for dataset, system, graph, more in _SYSTEMS:
        changed: dict[str, Value] = {"dataset": dataset, "epsilon": _EPSILON, **more}
        if dataset == _CIFAR:  # its scattering features have 1.5 million weights in a linear model
            changed["features"] = PIXELS
        found.append(recipe_point(profile, FEATURES, system, graph, _TRIALS[dataset], changed))
    return found


def find_elsewhere(rows: Sequence[ResultRow]) -> list[str]:
    """Compare masks with central training and with local noise on each of the other data sets."""
    lines = []
    for dataset in ELSEWHERE:
        own = select(rows, dataset=dataset)
        central, local = (
            accuracies(own, algorithm=CENTRAL),
            accuracies(own, algorithm="dsgt", graph="complete", curious=None),
        )
        parts = [f"central training has {summarise(central).percent}"] if central else []
        parts += [f"DSGT with local noise {summarise(local).percent} on the complete graph"] if local else []
        for graph, curious in (("complete", 1), ("complete", 2), ("ring", 1)):
            masked = select(own, algorithm="dsgt", graph=graph, curious=curious)
            if not masked:
                continue
            values = accuracies(masked)
            worst = max(row["epsilon_against_all"] for row in masked)
            words = f"with masks {summarise(values).percent} on the {graph} graph"
            words += f", {subtract(values, central).points} from central" if central else ""
            words += f" (ε = {_EPSILON:g} against any {curious}, {worst:.3g} against everybody else)"
            parts.append(words)
        if parts:
            lines.append(
                f"{dataset}, t = 1, {_MODELS[dataset]}, ε = {_EPSILON:g}, steps as chosen on MNIST: {'; '.join(parts)}."
            )
    return lines
