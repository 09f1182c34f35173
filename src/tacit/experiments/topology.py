"""What `connectivity` and `density` share: accuracy over a measure of the graph, for all algorithms and budgets."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tacit.experiments.experiment import Experiment, Place, Point, Profile, Row, Value, as_list, budget
from tacit.experiments.hyperparameters import CENTRAL, DECENTRALIZED, MNIST, NAMES
from tacit.experiments.statistics import change_in_points, difference, doubt, falling, summarise, verdict, within
from tacit.experiments.telling import PROMISE, described, described_graphs, described_steps
from tacit.experiments.trials import accuracies, final_row, seconds, train_point, training_point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CLOSE = 0.03
INVARIANT = 0.02  # accuracies that surely differ by less than two points are called the same
Levels = dict[Profile, tuple[tuple[float, ...], tuple[float | None, ...]]]
"""The values of the measure and of ε, for each profile."""


def topology_experiment(
    *, name: str, title: str, claim: str, measure: str, label: str, threshold: float, levels: Levels
) -> Experiment:
    """Return the experiment; `threshold` is the value above which the paper says that all stay the same."""

    def grid(profile: Profile) -> list[Point]:
        values, budgets = levels[profile]
        scale = MNIST[profile]
        found = []
        for epsilon in budgets:
            found.append(training_point(scale, {measure: None}, algorithm=CENTRAL, epsilon=epsilon))
            for algorithm in DECENTRALIZED:
                found += [
                    training_point(scale, {measure: value}, algorithm=algorithm, epsilon=epsilon) for value in values
                ]
        return found

    return Experiment(
        name=name,
        title=title,
        claim=claim,
        varies=("algorithm", "epsilon", measure),
        points=grid,
        play=play_final,
        draw=lambda rows: _draw(rows, measure, label),
        finding=lambda rows: _finding(rows, measure, threshold),
        seconds=seconds,
    )


def play_final(point: Point, place: Place) -> list[Row]:
    """Train a point and return one row for each trial."""
    return [final_row(trial, result) for trial, result in enumerate(train_point(point, place))]


def levels_of(rows: Sequence[Row], name: str) -> list[Value]:
    """Return the values of a setting, nothing last."""
    found = {row[name] for row in rows}
    return [*sorted(value for value in found if value is not None), *([None] if None in found else [])]


def _finding(rows: list[Row], measure: str, threshold: float) -> str:
    sentences = [
        f"{described(rows)}. Means over agents and trials on test records, with 95 % intervals; differences are taken trial by "
        f"trial, and are called none where they surely are within {100 * INVARIANT:.0f} points."
    ]
    for algorithm in DECENTRALIZED:
        for epsilon in levels_of(rows, "epsilon"):
            sentences += _of_one(rows, algorithm, epsilon, measure, threshold)
    sentences += _beside_central(rows, measure)
    sentences += [described_graphs(rows, measure), described_steps(rows)]
    return as_list(sentences[0], sentences[1:])


def _of_one(rows: list[Row], algorithm: str, epsilon: Value, measure: str, threshold: float) -> list[str]:
    own = [row for row in rows if row["algorithm"] == algorithm and row["epsilon"] == epsilon]
    found = {
        float(value): accuracies(own, **{measure: value}) for value in levels_of(own, measure) if value is not None
    }
    if not found:
        return []
    listed = ", ".join(f"{summarise(values).percent} at {value:g}" for value, values in found.items())
    words = f"{NAMES[algorithm]}, {budget(epsilon)}: {listed}."
    claimed = epsilon is not None  # the paper's claims are of private training
    if len(found) == 1:
        return [words]
    if algorithm == "dsgt":
        return [f"{words} Over all of them {_span(found, claimed=claimed)}."]
    above = {value: values for value, values in found.items() if value >= threshold}
    if len(above) > 1:
        words += f" From {min(above):g} up {_span(above, claimed=claimed)}."
    if min(found) < threshold:
        words += f" From {max(found):g} to {min(found):g} {_decline(found, claimed=claimed)}."
    return [words]


def _span(found: dict[float, list[float]], *, claimed: bool) -> str:
    """Say how far the best and the worst are apart, and what follows."""
    means = {value: summarise(values).mean for value, values in found.items()}
    best, worst = max(means, key=lambda value: means[value]), min(means, key=lambda value: means[value])
    change = difference(found[best], found[worst])
    said = {
        "same": "so it is the same" + (", as claimed" if claimed else ""),
        "different": "so it is not the same" + (", against the claim" if claimed else ""),
        "undecided": doubt(change, INVARIANT),
    }
    return f"best and worst differ by {change_in_points(change)}, {said[verdict(change, INVARIANT)]}"


def _decline(found: dict[float, list[float]], *, claimed: bool) -> str:
    change = difference(found[min(found)], found[max(found)])
    said = {
        "falls": "a decline" + (", as claimed" if claimed else ""),
        "does not": f"no decline of {100 * INVARIANT:.0f} points" + (", against the claim" if claimed else ""),
        "undecided": doubt(change, INVARIANT),
    }
    return f"it changes by {change_in_points(change)}, {said[falling(change, INVARIANT)]}"


def _beside_central(rows: list[Row], measure: str) -> list[str]:
    sentences = []
    for epsilon in levels_of(rows, "epsilon"):
        own = [row for row in rows if row["epsilon"] == epsilon]
        central = accuracies(own, algorithm=CENTRAL)
        tracking = [row for row in own if row["algorithm"] == "dsgt"]
        if not central or not tracking:
            continue
        by_graph = [accuracies(tracking, **{measure: value}) for value in levels_of(tracking, measure)]
        gap = difference([float(np.mean(trial)) for trial in zip(*by_graph, strict=True)], central)
        words = (
            f"DSGT, over all graphs, is {change_in_points(gap)} from central training with a lot of {own[0]['lot']}, "
        )
        words += f"as large as one agent's, {budget(epsilon)} ({summarise(central).percent})"
        if epsilon == 1.0:
            words += f", {within(gap, _CLOSE)} of the claim"
        sentences.append(f"{words}.")
    return sentences


def _draw(rows: list[Row], measure: str, label: str) -> "Figure":
    from tacit.experiments.drawing import GREY, accuracy_axis, draw_summaries, legend_below, panels, style
    from tacit.report.figures.palette import SERIES

    budgets = levels_of(rows, "epsilon")
    shown_algorithms = [name for name in DECENTRALIZED if any(row["algorithm"] == name for row in rows)]
    with style():
        figure, axes = panels(1, max(1, len(shown_algorithms)), sharey=True)
        for ax, algorithm in zip(axes[0], shown_algorithms, strict=False):
            own = [row for row in rows if row["algorithm"] == algorithm]
            for colour, epsilon in zip(SERIES, budgets, strict=False):
                values = levels_of([row for row in own if row["epsilon"] == epsilon], measure)
                means = [summarise(accuracies(own, epsilon=epsilon, **{measure: value})) for value in values]
                look = {"color": colour, "marker": "o", "label": budget(epsilon)}
                draw_summaries(ax, [float(value or 0) for value in values], means, **look)
                if central := accuracies(rows, algorithm=CENTRAL, epsilon=epsilon):
                    ax.axhline(summarise(central).mean, color=colour, ls=(0, (4, 3)), lw=1)
            ax.set(title=NAMES[algorithm], xlabel=label)
        accuracy_axis(axes[0, 0])
        axes[0, 0].plot([], [], color=GREY, ls=(0, (4, 3)), lw=1, label="central")
        legend_below(figure, axes[0, 0], PROMISE)
        return figure
