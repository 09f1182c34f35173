"""What `connectivity` and `density` share: accuracy over a measure of the graph, for all algorithms and budgets."""

from collections.abc import Sequence

import numpy as np

from tacit.experiments.drawing import (
    DASHED,
    GREY,
    SERIES,
    Figure,
    add_legend_below,
    draw_summaries,
    panels,
    show_accuracy,
)
from tacit.experiments.experiment import Experiment, Point, Profile, ResultRow, Value, write_budget, write_list
from tacit.experiments.hyperparameters import CENTRAL, DECENTRALIZED, MNIST, NAMES
from tacit.experiments.statistics import (
    accuracies,
    judge_margin,
    list_levels,
    select,
    state_change,
    subtract,
    summarise,
)
from tacit.experiments.trials import (
    GUARANTEE,
    describe_graphs,
    describe_steps,
    describe_training,
    estimate_seconds,
    run_final,
    training_point,
)
from tacit.ties import first_largest, first_smallest

_CLOSE = 0.03
INVARIANT = 0.02  # accuracies that surely differ by less than two points are called the same
Levels = dict[Profile, tuple[tuple[float, ...], tuple[float | None, ...]]]
"""The values of the measure and of ε, for each profile."""


def topology_experiment(
    *, name: str, title: str, claim: str, measure: str, label: str, threshold: float, levels: Levels
) -> Experiment:
    """Return the experiment; the paper says that accuracy stays the same where the measure is above `threshold`."""

    def points(profile: Profile) -> list[Point]:
        values, budgets = levels[profile]
        systems = [(CENTRAL, None), *((algorithm, value) for algorithm in DECENTRALIZED for value in values)]
        return [
            training_point(MNIST[profile], {measure: value}, algorithm=algorithm, epsilon=epsilon)
            for epsilon in budgets
            for algorithm, value in systems
        ]

    return Experiment(
        name=name,
        title=title,
        claim=claim,
        varies=("algorithm", "epsilon", measure),
        points=points,
        run=run_final,
        draw=lambda rows: _draw(rows, measure, label),
        finding=lambda rows: _finding(rows, measure, threshold),
        seconds=estimate_seconds,
    )


def _finding(rows: list[ResultRow], measure: str, threshold: float) -> str:
    begin = (
        f"{describe_training(rows)}. Means over agents and trials on test records, with 95 % intervals. Differences are paired by "
        f"trial; accuracies count as the same where they surely differ by at most {100 * INVARIANT:.0f} points."
    )
    budgets = list_levels(rows, "epsilon")
    lines = [
        _describe_one(select(rows, algorithm=algorithm, epsilon=epsilon), measure, threshold)
        for algorithm in DECENTRALIZED
        for epsilon in budgets
    ]
    lines += [_beside_central(select(rows, epsilon=epsilon), measure) for epsilon in budgets]
    return write_list(begin, [*filter(None, lines), describe_graphs(rows, measure), describe_steps(rows)])


def _describe_one(own: list[ResultRow], measure: str, threshold: float) -> str:
    found = {float(value): accuracies(own, **{measure: value}) for value in list_levels(own, measure) if value}
    if not found:
        return ""
    algorithm, epsilon = own[0]["algorithm"], own[0]["epsilon"]
    listed = ", ".join(f"{summarise(values).percent} at {value:g}" for value, values in found.items())
    words = f"{NAMES[algorithm]}, {write_budget(epsilon)}: {listed}."
    claimed = epsilon is not None  # the paper's claims are about private training
    if len(found) == 1:
        return words
    if algorithm == "dsgt":
        return f"{words} Over all of them {_span(found, claimed=claimed)}."
    above = {value: values for value, values in found.items() if value >= threshold}
    if len(above) > 1:
        words += f" From {min(above):g} up {_span(above, claimed=claimed)}."
    if min(found) < threshold:
        words += f" From {max(found):g} to {min(found):g} {_decline(found, claimed=claimed)}."
    return words


def _span(found: dict[float, list[float]], *, claimed: bool) -> str:
    """Say how far the best and the worst are apart, and what follows."""
    means = {value: summarise(values).mean for value, values in found.items()}
    best, worst = (list(means)[choose(means.values())] for choose in (first_largest, first_smallest))
    change = subtract(found[best], found[worst])
    words = "so it is the same", "so it is not the same"
    return f"best and worst differ by {change.points}, {state_change(change, INVARIANT, words, claimed=claimed)}"


def _decline(found: dict[float, list[float]], *, claimed: bool) -> str:
    change = subtract(found[min(found)], found[max(found)])
    words = "a decline", f"no decline of {100 * INVARIANT:.0f} points"
    return f"it changes by {change.points}, {state_change(change, INVARIANT, words, falls=True, claimed=claimed)}"


def _beside_central(own: list[ResultRow], measure: str) -> str:
    central, tracking = accuracies(own, algorithm=CENTRAL), select(own, algorithm="dsgt")
    if not central or not tracking:
        return ""
    by_graph = [accuracies(tracking, **{measure: value}) for value in list_levels(tracking, measure)]
    gap = subtract([float(np.mean(trial)) for trial in zip(*by_graph, strict=True)], central)
    epsilon = own[0]["epsilon"]
    return (
        f"DSGT, over all graphs, is {gap.points} from central training with a lot of {own[0]['lot']}, as large as one agent's, "
        f"{write_budget(epsilon)} ({summarise(central).percent})"
        f"{f', {judge_margin(gap, _CLOSE)} of the claim' if epsilon == 1.0 else ''}."
    )


def draw_levels(ax: "object", rows: Sequence[ResultRow], name: str, **look: object) -> None:
    """Draw the accuracy of one system over the levels of a setting."""
    levels: list[Value] = list_levels(rows, name)
    means = [summarise(accuracies(rows, **{name: level})) for level in levels]
    draw_summaries(ax, [float(level or 0) for level in levels], means, **look)  # type: ignore[arg-type]


def _draw(rows: list[ResultRow], measure: str, label: str) -> Figure:
    algorithms = [name for name in DECENTRALIZED if select(rows, algorithm=name)]
    with panels(1, max(1, len(algorithms)), sharey=True) as (figure, axes):
        for ax, algorithm in zip(axes[0], algorithms, strict=False):
            for colour, epsilon in zip(SERIES, list_levels(rows, "epsilon"), strict=False):
                own = select(rows, algorithm=algorithm, epsilon=epsilon)
                draw_levels(ax, own, measure, color=colour, marker="o", label=write_budget(epsilon))
                if central := accuracies(rows, algorithm=CENTRAL, epsilon=epsilon):
                    ax.axhline(summarise(central).mean, color=colour, **DASHED)
            ax.set(title=NAMES[algorithm], xlabel=label)
        show_accuracy(axes[0, 0])
        axes[0, 0].plot([], [], color=GREY, label="central", **DASHED)
        add_legend_below(figure, axes[0, 0], GUARANTEE)
        return figure
