"""`bandwidth`: accuracy against what was sent. DSGT sends its tracker beside its model, twice the bytes of the others."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tacit.experiments.experiment import Experiment, Point, Profile, Row, Value, as_list, budget
from tacit.experiments.hyperparameters import DECENTRALIZED, MNIST, NAMES
from tacit.experiments.statistics import change_in_points, difference, summarise
from tacit.experiments.telling import PROMISE, described, described_steps
from tacit.experiments.trials import play_course, seconds, training_point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOOKS = 10
_GRAPHS = ("ring", "complete")
_BUDGETS = (1.0, None)


def _points(profile: Profile) -> list[Point]:
    return [
        training_point(MNIST[profile], {"graph": graph}, algorithm=algorithm, epsilon=epsilon)
        for graph in _GRAPHS
        for epsilon in _BUDGETS
        for algorithm in DECENTRALIZED
    ]


def course(rows: Sequence[Row]) -> tuple[list[float], list[float]]:
    """Return bytes sent by all agents together and the mean accuracy at each look."""
    rounds = sorted({row["round"] for row in rows})
    at = [[row for row in rows if row["round"] == round] for round in rounds]
    return (
        [float(np.mean([row["bytes_sent"] for row in each])) for each in at],
        [summarise([row["accuracy"] for row in each]).mean for each in at],
    )


def _select(rows: Sequence[Row], algorithm: str, epsilon: Value, graph: str) -> list[Row]:
    wanted = (algorithm, epsilon, graph)
    return [row for row in rows if (row["algorithm"], row["epsilon"], row["graph"]) == wanted]


def at_bytes(rows: Sequence[Row], sent: float) -> list[float]:
    """Return the accuracy of each trial when so much was sent, between the looks by a straight line."""
    trials = [[row for row in rows if row["trial"] == trial] for trial in sorted({row["trial"] for row in rows})]
    return [float(np.interp(sent, *course(each))) for each in trials]


def _finding(rows: list[Row]) -> str:
    lines = [f"{described(rows)}. Accuracies are on validation records, with 95 % intervals over trials."]
    for graph in _GRAPHS:
        for epsilon in _BUDGETS:
            own = {name: _select(rows, name, epsilon, graph) for name in DECENTRALIZED}
            found = {name: each for name, each in own.items() if each}
            if not {"dsgd", "dsgt"} <= set(found):
                continue
            ends = {name: course(each)[0][-1] for name, each in found.items()}
            ratio, sent = ends["dsgt"] / ends["dsgd"], min(ends.values())
            same = {name: at_bytes(each, sent) for name, each in found.items()}
            last = {name: at_bytes(each, ends[name]) for name, each in found.items()}
            gap = difference(same["dsgt"], same["dsgd"])
            lines.append(
                f"{graph} graph, {budget(epsilon)}: DSGT sends {ratio:.2f} times what DSGD sends, "
                f"{'as' if abs(ratio - 2) < 0.01 else 'against what is'} claimed. After {sent / 1e6:,.0f} MB of all agents: "
                f"{_listed(same)}, so that for the same bytes DSGT is {change_in_points(gap)} from DSGD; after all rounds: "
                f"{_listed(last)}."
            )
    return as_list(lines[0], [*lines[1:], described_steps(rows)])


def _listed(found: dict[str, list[float]]) -> str:
    return ", ".join(f"{NAMES[name]} {summarise(values).percent}" for name, values in found.items())


def _draw(rows: list[Row]) -> "Figure":
    from tacit.experiments.drawing import COLOURS, accuracy_axis, legend_below, panels, style

    with style():
        figure, axes = panels(1, len(_GRAPHS), width=3.8, sharey=True)
        for ax, graph in zip(axes[0], _GRAPHS, strict=True):
            for epsilon, dashes in zip(_BUDGETS, ("-", (0, (3, 2))), strict=True):
                for name in DECENTRALIZED:
                    sent, accuracy = course(_select(rows, name, epsilon, graph))
                    label = f"{NAMES[name]}, {budget(epsilon)}"
                    ax.plot(
                        [each / 1e6 for each in sent], accuracy, color=COLOURS[name], ls=dashes, marker=".", label=label
                    )
            ax.set(title=f"{graph} graph", xlabel="MB sent by all agents together")
        accuracy_axis(axes[0, 0], "accuracy on validation")
        legend_below(figure, axes[0, 0], PROMISE, ncols=3)
        return figure


EXPERIMENT = Experiment(
    name="bandwidth",
    title="Accuracy against bytes sent",
    claim="DP-DSGT needs messages twice as large as those of DP-DSGD and DP-DiNNO.",
    varies=("algorithm", "epsilon", "graph"),
    points=_points,
    play=partial(play_course, looks=LOOKS),
    draw=_draw,
    finding=_finding,
    seconds=lambda point: seconds(point, looks=LOOKS),
)
