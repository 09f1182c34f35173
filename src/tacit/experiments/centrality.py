"""`centrality`: how fast node 0 comes along with the rest when it is at the edge of the graph, and when in its middle."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tacit.experiments.experiment import Experiment, Point, Profile, Row, Value, as_list, budget
from tacit.experiments.hyperparameters import DECENTRALIZED, MNIST, NAMES
from tacit.experiments.statistics import change_in_points, difference, falling, summarise, verdict
from tacit.experiments.telling import PROMISE, described, described_graphs, described_steps
from tacit.experiments.trials import play_course, seconds, training_point

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


def lags(rows: Sequence[Row]) -> list[float]:
    """Return how far node 0 is behind the rest, over all rounds on average, for each trial."""
    trials = sorted({row["trial"] for row in rows})
    own = [[row for row in rows if row["trial"] == trial and row["round"] > 0] for trial in trials]
    return [float(np.mean([row["others"] - row["node_0"] for row in each])) for each in own]


def _select(rows: Sequence[Row], algorithm: str, epsilon: Value, centrality: float) -> list[Row]:
    wanted = (algorithm, epsilon, centrality)
    return [row for row in rows if (row["algorithm"], row["epsilon"], row["centrality"]) == wanted]


def _finding(rows: list[Row]) -> str:
    lines = [
        f"{described(rows)}. How many points node 0's accuracy on validation records is behind that of the others, over all rounds "
        "on average and in brackets at the end, with 95 % intervals over trials:"
    ]
    for algorithm, name in _NAMES.items():
        for epsilon in _BUDGETS:
            low, high = (lags(_select(rows, algorithm, epsilon, value)) for value in _CENTRALITIES)
            if low and high:
                lines.append(
                    f"{name}, {budget(epsilon)}: {_told(rows, algorithm, epsilon, 0)}, {_told(rows, algorithm, epsilon, 1)}; at low "
                    f"centrality {_slowed(algorithm, epsilon, low)}; at high centrality {_in_the_middle(high)}."
                )
        private, free = (lags(_select(rows, algorithm, epsilon, _CENTRALITIES[0])) for epsilon in _BUDGETS)
        if private and free:
            lines.append(f"{name}: at low centrality privacy adds {_added(algorithm, private, free)}.")
    lines += [
        f"{described_graphs(rows, 'centrality')} Nothing but the centrality was asked for: the others' accuracies at 0.05 and at "
        "0.5 are not those of one kind of graph.",
        f"{described_steps(rows)} They differ with and without privacy, and so have a part in what privacy adds.",
    ]
    return as_list(lines[0], lines[1:])


def _told(rows: Sequence[Row], algorithm: str, epsilon: Value, place: int) -> str:
    """Say how far behind node 0 is at one of the centralities."""
    own = _select(rows, algorithm, epsilon, _CENTRALITIES[place])
    last = max(row["round"] for row in own)
    end = lags([row for row in own if row["round"] == last])
    return f"{change_in_points(summarise(lags(own)))} ({change_in_points(summarise(end))}) at centrality {_CENTRALITIES[place]:g}"


def _slowed(algorithm: str, epsilon: Value, behind: Sequence[float]) -> str:
    """Say whether node 0 at the edge is slowed, and whether the paper says so."""
    found, claimed = summarise(behind), epsilon is not None and algorithm != "dsgt"
    kind = verdict(found, SLOWED)
    if kind == "undecided":
        return f"undecided, whether it is {'' if claimed else 'hardly '}slowed, as is claimed"
    slowed = kind == "different" and found.mean > 0
    return (
        f"it is {'slowed' if slowed else 'hardly slowed'}, {'as claimed' if slowed == claimed else 'against the claim'}"
    )


def _in_the_middle(behind: Sequence[float]) -> str:
    """Say whether node 0 in the middle is slowed; that it is ahead of the others is no claim of the paper, and not against one."""
    found = summarise(behind)
    if found.margin is not None and found.mean + found.margin < 0:
        return "it is ahead of the others, and so not slowed, as claimed"
    kind = verdict(found, SLOWED)
    if kind == "undecided":
        return "undecided"
    return "it is hardly slowed, as claimed" if kind == "same" else "it is slowed, against the claim"


def _added(algorithm: str, private: Sequence[float], free: Sequence[float]) -> str:
    """Say how much more node 0 is behind with privacy than without, and whether the paper says so."""
    change = difference(private, free)
    if algorithm == "dsgt":
        kind: str = verdict(change, SLOWED)
        hardly = "as hardly any is claimed"
        words = {"same": hardly, "different": "against the claim" if change.mean > 0 else hardly}
    else:
        kind = falling(difference(free, private), SLOWED)
        words = {"falls": "as claimed", "does not": "against the claim"}
    return f"{change_in_points(change)} to that, {words.get(kind, kind)}"


def _draw(rows: list[Row]) -> "Figure":
    from tacit.experiments.drawing import accuracy_axis, legend_below, panels, style
    from tacit.report.figures.palette import SERIES

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
    "so under DP-DSGT; at 0.5 the impact on training is minor. Without privacy node 0 is hardly affected, and comes to the "
    "others' accuracy faster than with it.",
    varies=("algorithm", "epsilon", "centrality"),
    points=_points,
    play=partial(play_course, looks=LOOKS),
    draw=_draw,
    finding=_finding,
    seconds=lambda point: seconds(point, looks=LOOKS),
)
