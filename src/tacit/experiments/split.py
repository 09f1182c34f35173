"""`split`: accuracy over t of A(t), from classes spread evenly to classes of one's own, on the complete graph."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tacit.experiments.experiment import Experiment, Point, Profile, Row, Value, as_list, budget, shown
from tacit.experiments.hyperparameters import CENTRAL, DECENTRALIZED, NAMES, SPLIT
from tacit.experiments.statistics import change_in_points, difference, doubt, falling, summarise, verdict, within
from tacit.experiments.telling import PROMISE, described, described_steps
from tacit.experiments.topology import INVARIANT, levels_of, play_final
from tacit.experiments.trials import accuracies, needs_gpu, seconds, training_point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CLOSE = 0.06
_BUDGETS = (None, 10.0)
_ALL = (0.0, 0.25, 0.5, 0.75, 1.0)


def _points(profile: Profile) -> list[Point]:
    scale = SPLIT[profile]
    found = []
    for epsilon in _BUDGETS:
        found.append(training_point(scale, {"graph": None}, algorithm=CENTRAL, epsilon=epsilon))
        found += [
            training_point(scale, {"graph": "complete"}, algorithm=algorithm, epsilon=epsilon, t=t)
            for algorithm in DECENTRALIZED
            for t in (_ALL if profile != "smoke" else (0.0, 1.0))
        ]
    return found


def _finding(rows: list[Row]) -> str:
    small = ", in the place of the paper's CIFAR-100 with ResNet-9" if rows[0]["dataset"] != "cifar100" else ""
    lines = [
        f"{described(rows)}{small}. Complete graph; at t = 0 every agent has the same share of all classes, at t = 1 classes of its "
        "own. Means on test records with 95 % intervals; differences are taken trial by trial."
    ]
    for algorithm in DECENTRALIZED:
        for epsilon in levels_of(rows, "epsilon"):
            lines += _of_one(rows, algorithm, epsilon)
    for epsilon in levels_of(rows, "epsilon"):
        lines += _beside_central(rows, epsilon)
    lines.append(described_steps(rows))
    return as_list(lines[0], lines[1:])


def _of_one(rows: Sequence[Row], algorithm: str, epsilon: Value) -> list[str]:
    own = [row for row in rows if row["algorithm"] == algorithm and row["epsilon"] == epsilon]
    shares = levels_of(own, "t")
    if len(shares) < 2:
        return []
    listed = ", ".join(f"{summarise(accuracies(own, t=t)).percent} at t={shown(t)}" for t in shares)
    change = difference(accuracies(own, t=shares[-1]), accuracies(own, t=shares[0]))
    words = f"{NAMES[algorithm]}, {budget(epsilon)}: {listed}; from t={shown(shares[0])} to {shown(shares[-1])} "
    words += f"it changes by {change_in_points(change)}, "
    if algorithm == "dsgt":
        said = {
            "same": "so t does not matter, as claimed",
            "different": "so t matters, against the claim",
            "undecided": doubt(change, INVARIANT),
        }
        return [f"{words}{said[verdict(change, INVARIANT)]}."]
    said = {
        "falls": "a fall, as claimed",
        "does not": f"no fall of {100 * INVARIANT:.0f} points, against the claim",
        "undecided": doubt(change, INVARIANT),
    }
    return [f"{words}{said[falling(change, INVARIANT)]}."]


def _beside_central(rows: Sequence[Row], epsilon: Value) -> list[str]:
    central = accuracies(rows, algorithm=CENTRAL, epsilon=epsilon)
    own = [row for row in rows if row["algorithm"] == "dsgt" and row["epsilon"] == epsilon]
    if not central or not own:
        return []
    gaps = {t: difference(accuracies(own, t=t), central) for t in levels_of(own, "t")}
    worst = min(gaps, key=lambda t: gaps[t].mean)
    words = (
        f"Central training, with a lot of {own[0]['lot']} as large as one agent's, has {summarise(central).percent}, "
    )
    words += f"{budget(epsilon)}; DSGT is furthest from it at t={shown(worst)}, by {change_in_points(gaps[worst])}"
    if epsilon is not None:
        words += f", {within(gaps[worst], _CLOSE)} of the claim"
    return [f"{words}."]


def _draw(rows: list[Row]) -> "Figure":
    from tacit.experiments.drawing import (
        COLOURS,
        GREY,
        MARKERS,
        accuracy_axis,
        draw_summaries,
        legend_below,
        panels,
        style,
    )

    budgets = [epsilon for epsilon in _BUDGETS if any(row["epsilon"] == epsilon for row in rows)]
    with style():
        figure, axes = panels(1, len(budgets), width=3.6, sharey=True)
        for ax, epsilon in zip(axes[0], budgets, strict=True):
            for algorithm in DECENTRALIZED:
                own = [row for row in rows if row["algorithm"] == algorithm and row["epsilon"] == epsilon]
                shares = levels_of(own, "t")
                means = [summarise(accuracies(own, t=t)) for t in shares]
                look = {"color": COLOURS[algorithm], "marker": MARKERS[algorithm], "label": NAMES[algorithm]}
                draw_summaries(ax, [float(t or 0) for t in shares], means, **look)
            if central := accuracies(rows, algorithm=CENTRAL, epsilon=epsilon):
                ax.axhline(summarise(central).mean, color=GREY, ls=(0, (4, 3)), lw=1, label="central")
            ax.set(title=budget(epsilon), xlabel="t of A(t)")
        accuracy_axis(axes[0, 0])
        legend_below(figure, axes[0, 0], PROMISE)
        return figure


EXPERIMENT = Experiment(
    name="split",
    title="Accuracy over how data are split",
    claim="On CIFAR-100, DP-DSGT does not depend on t and stays within 6 points of central DP-SGD at (10, 1e-5); DP-DSGD and "
    "DP-DiNNO fall as t goes to 1.",
    varies=("algorithm", "epsilon", "t"),
    points=_points,
    play=play_final,
    draw=_draw,
    finding=_finding,
    seconds=seconds,
    needs_gpu=needs_gpu,
)
