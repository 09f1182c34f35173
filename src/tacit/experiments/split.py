"""`split`: accuracy over t of A(t), from classes spread evenly to classes of one's own, on the complete graph."""

from tacit.experiments.drawing import COLOURS, DASHED, GREY, MARKERS, Figure, add_legend_below, panels, show_accuracy
from tacit.experiments.experiment import Experiment, Point, Profile, ResultRow, write, write_budget, write_list
from tacit.experiments.hyperparameters import CENTRAL, DECENTRALIZED, NAMES, SPLIT
from tacit.experiments.statistics import (
    accuracies,
    judge_margin,
    list_levels,
    select,
    state_change,
    subtract,
    summarise,
)
from tacit.experiments.topology import INVARIANT, draw_levels
from tacit.experiments.trials import (
    GUARANTEE,
    describe_steps,
    describe_training,
    estimate_seconds,
    needs_gpu,
    run_final,
    training_point,
)
from tacit.ties import first_smallest

_CLOSE = 0.06
_BUDGETS = (None, 10.0)
_ALL = (0.0, 0.25, 0.5, 0.75, 1.0)


def _points(profile: Profile) -> list[Point]:
    shares = _ALL if profile != "smoke" else (0.0, 1.0)
    systems = [(CENTRAL, None, 1.0), *((algorithm, "complete", t) for algorithm in DECENTRALIZED for t in shares)]
    return [
        training_point(SPLIT[profile], {"graph": graph}, algorithm=algorithm, epsilon=epsilon, t=t)
        for epsilon in _BUDGETS
        for algorithm, graph, t in systems
    ]


def _finding(rows: list[ResultRow]) -> str:
    small = ", instead of the paper's CIFAR-100 with ResNet-9" if rows[0]["dataset"] != "cifar100" else ""
    begin = (
        f"{describe_training(rows)}{small}. Complete graph; at t = 0 every agent has the same share of all classes, at t = 1 classes "
        "of its own. Means on test records with 95 % intervals; differences are paired by trial."
    )
    budgets = list_levels(rows, "epsilon")
    lines = [
        _describe_one(select(rows, algorithm=algorithm, epsilon=epsilon))
        for algorithm in DECENTRALIZED
        for epsilon in budgets
    ]
    lines += [_beside_central(select(rows, epsilon=epsilon)) for epsilon in budgets]
    return write_list(begin, [*filter(None, lines), describe_steps(rows)])


def _describe_one(own: list[ResultRow]) -> str:
    shares = list_levels(own, "t")
    if len(shares) < 2:
        return ""
    algorithm, first, last = own[0]["algorithm"], shares[0], shares[-1]
    listed = ", ".join(f"{summarise(accuracies(own, t=t)).percent} at t={write(t)}" for t in shares)
    change = subtract(accuracies(own, t=last), accuracies(own, t=first))
    words = "a fall", f"no fall of {100 * INVARIANT:.0f} points"
    if invariant := algorithm == "dsgt":
        words = "so t does not matter", "so t matters"
    return (
        f"{NAMES[algorithm]}, {write_budget(own[0]['epsilon'])}: {listed}; from t={write(first)} to {write(last)} it changes by "
        f"{change.points}, {state_change(change, INVARIANT, words, falls=not invariant)}."
    )


def _beside_central(own: list[ResultRow]) -> str:
    central, tracking = accuracies(own, algorithm=CENTRAL), select(own, algorithm="dsgt")
    if not central or not tracking:
        return ""
    gaps = {t: subtract(accuracies(tracking, t=t), central) for t in list_levels(tracking, "t")}
    worst = list(gaps)[first_smallest((gap.mean for gap in gaps.values()), scale=1.0)]
    epsilon = own[0]["epsilon"]
    claim = "" if epsilon is None else f", {judge_margin(gaps[worst], _CLOSE)} of the claim"
    return (
        f"Central training, with a lot of {own[0]['lot']} as large as one agent's, has {summarise(central).percent}, "
        f"{write_budget(epsilon)}; DSGT is furthest from it at t={write(worst)}, by {gaps[worst].points}{claim}."
    )


def _draw(rows: list[ResultRow]) -> Figure:
    budgets = [epsilon for epsilon in _BUDGETS if select(rows, epsilon=epsilon)]
    with panels(1, len(budgets), width=3.6, sharey=True) as (figure, axes):
        for ax, epsilon in zip(axes[0], budgets, strict=True):
            for algorithm in DECENTRALIZED:
                look = {"color": COLOURS[algorithm], "marker": MARKERS[algorithm], "label": NAMES[algorithm]}
                draw_levels(ax, select(rows, algorithm=algorithm, epsilon=epsilon), "t", **look)
            if central := accuracies(rows, algorithm=CENTRAL, epsilon=epsilon):
                ax.axhline(summarise(central).mean, color=GREY, label="central", **DASHED)
            ax.set(title=write_budget(epsilon), xlabel="t of A(t)")
        show_accuracy(axes[0, 0])
        add_legend_below(figure, axes[0, 0], GUARANTEE)
        return figure


EXPERIMENT = Experiment(
    name="split",
    title="Accuracy over how data are split",
    claim="On CIFAR-100, DP-DSGT does not depend on t and stays within 6 points of central DP-SGD at (10, 1e-5); DP-DSGD and "
    "DP-DiNNO fall as t goes to 1.",
    varies=("algorithm", "epsilon", "t"),
    points=_points,
    run=run_final,
    draw=_draw,
    finding=_finding,
    seconds=estimate_seconds,
    needs_gpu=needs_gpu,
)
