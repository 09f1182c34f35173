"""`centrality`: how fast node 0 comes along with the rest when it is at the edge of the graph, and when in its middle."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tacit.experiments.experiment import Experiment, Point, Profile, Row, Value, as_list, budget
from tacit.experiments.hyperparameters import DECENTRALIZED, MNIST, NAMES
from tacit.experiments.statistics import Summary, change_in_points, summarise, verdict
from tacit.experiments.trials import PROMISE, described, play_course, seconds, training_point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOOKS = 16
SLOWED = 0.02  # node 0 counts as slowed where it is more than two points behind, over all rounds on average
_CENTRALITIES = (0.05, 0.5)
_BUDGETS = (1.0, None)
_NAMES = {name: NAMES[name] for name in DECENTRALIZED}


def _points(profile: Profile) -> list[Point]:
    return [
        training_point(MNIST[profile], {"centrality": centrality}, algorithm=algorithm, epsilon=epsilon)
        for algorithm in DECENTRALIZED
        for epsilon in _BUDGETS
        for centrality in _CENTRALITIES
    ]


def lag(rows: Sequence[Row]) -> Summary | None:
    """Return how far node 0 is behind the rest, over all rounds on average, with the interval over trials."""
    by_trial: dict[int, list[float]] = {}
    for row in rows:
        if row["round"] > 0:
            by_trial.setdefault(row["trial"], []).append(row["others"] - row["node_0"])
    return summarise([float(np.mean(gaps)) for gaps in by_trial.values()]) if by_trial else None


def _select(rows: Sequence[Row], algorithm: str, epsilon: Value, centrality: float) -> list[Row]:
    wanted = (algorithm, epsilon, centrality)
    return [row for row in rows if (row["algorithm"], row["epsilon"], row["centrality"]) == wanted]


def _finding(rows: list[Row]) -> str:
    lines = [
        f"{described(rows)}. How many points node 0's accuracy is behind that of the others, over all rounds on average, "
        "with 95 % intervals:"
    ]
    for algorithm, name in _NAMES.items():
        for epsilon in _BUDGETS:
            low, high = (lag(_select(rows, algorithm, epsilon, value)) for value in _CENTRALITIES)
            if low is None or high is None:
                continue
            kind = verdict(low, SLOWED)
            slowed, claimed = kind == "different" and low.mean > 0, epsilon is not None and algorithm != "dsgt"
            words = "what low centrality does, these trials do not tell"
            if kind != "undecided":
                words = f"at low centrality node 0 is {'slowed' if slowed else 'hardly slowed'}, "
                words += "as claimed" if slowed == claimed else "against the claim"
            lines.append(
                f"{name}, {budget(epsilon)}: {change_in_points(low)} at centrality 0.05, {change_in_points(high)} at 0.5; "
                f"{words}; {_in_the_middle(high)}."
            )
    return as_list(lines[0], lines[1:])


def _in_the_middle(high: Summary) -> str:
    """Say whether a node 0 of high centrality and the others come along together."""
    kind = verdict(high, SLOWED)
    if kind == "undecided":
        return "what high centrality does, they do not tell"
    if kind == "same":
        return "at high centrality hardly anyone is slowed, as claimed"
    return f"at high centrality {'node 0 is' if high.mean > 0 else 'the others are'} slowed, against the claim"


def _draw(rows: list[Row]) -> "Figure":
    from tacit.experiments.drawing import accuracy_axis, legend_below, panels, style
    from tacit.report.palette import SERIES

    with style():
        figure, axes = panels(2, 3, sharex=True, sharey=True, height=2.4)
        for line, centrality in zip(axes, _CENTRALITIES, strict=True):
            for ax, (algorithm, name) in zip(line, _NAMES.items(), strict=True):
                for colour, epsilon in zip(SERIES, _BUDGETS, strict=False):
                    own = _select(rows, algorithm, epsilon, centrality)
                    for who, dashes, words in (("node_0", "-", "node 0"), ("others", (0, (3, 2)), "others")):
                        rounds, means, low, high = _course(own, who)
                        ax.plot(rounds, means, color=colour, ls=dashes, label=f"{words}, {budget(epsilon)}")
                        if who == "node_0":
                            ax.fill_between(rounds, low, high, color=colour, alpha=0.15, lw=0)
                ax.set_title(f"{name}, centrality of node 0: {centrality:g}")
            accuracy_axis(line[0], "accuracy on validation")
        for ax in axes[-1]:
            ax.set_xlabel("round")
        legend_below(figure, axes[0, 0], PROMISE)
        return figure


def _course(rows: Sequence[Row], who: str) -> tuple[list[int], list[float], list[float], list[float]]:
    rounds = sorted({row["round"] for row in rows})
    found = [summarise([row[who] for row in rows if row["round"] == round]) for round in rounds]
    margins = [each.margin or 0.0 for each in found]
    means = [each.mean for each in found]
    low, high = ([mean + sign * margin for mean, margin in zip(means, margins, strict=True)] for sign in (-1, 1))
    return rounds, means, low, high


EXPERIMENT = Experiment(
    name="centrality",
    title="Node 0 and the others, by centrality",
    claim="At (1, 1e-5), node 0 with eigenvector centrality 0.05 reaches consensus slowly under DP-DSGD and DP-DiNNO and hardly "
    "so under DP-DSGT; at 0.5 all are hardly affected. Without privacy, hardly anyone is.",
    varies=("algorithm", "epsilon", "centrality"),
    points=_points,
    play=partial(play_course, looks=LOOKS),
    draw=_draw,
    finding=_finding,
    seconds=lambda point: seconds(point, looks=LOOKS),
)
