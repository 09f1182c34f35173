"""`centrality`: how fast node 0 keeps up with the rest when it is at the edge of the graph, and when in its middle."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from tacit.experiments.drawing import SERIES, Figure, add_legend_below, panels, show_accuracy
from tacit.experiments.experiment import Experiment, Point, Profile, ResultRow, Value, write_budget, write_list
from tacit.experiments.hyperparameters import DECENTRALIZED, MNIST, NAMES
from tacit.experiments.statistics import judge_change, judge_fall, select, subtract, summarise
from tacit.experiments.trials import (
    GUARANTEE,
    describe_graphs,
    describe_steps,
    describe_training,
    estimate_seconds,
    run_course,
    training_point,
)

_EVALUATIONS = 16
_SLOWED = 0.02  # node 0 counts as slowed where it is more than two points behind, averaged over all rounds
_CENTRALITIES = (0.05, 0.5)
_BUDGETS = (1.0, None)


def _points(profile: Profile) -> list[Point]:
    return [
        training_point(MNIST[profile], {"centrality": centrality}, algorithm=algorithm, epsilon=epsilon)
        for algorithm in DECENTRALIZED
        for epsilon in _BUDGETS
        for centrality in _CENTRALITIES
    ]


def _lags(rows: Sequence[ResultRow]) -> list[float]:
    """Return how far node 0 is behind the rest, averaged over all rounds, for each trial."""
    own = [select(rows, trial=trial) for trial in sorted({row["trial"] for row in rows})]
    return [float(np.mean([row["others"] - row["node_0"] for row in each if row["round"] > 0])) for each in own]


def _finding(rows: list[ResultRow]) -> str:
    begin = (
        f"{describe_training(rows)}. How many points node 0's accuracy on validation records is behind that of the others, averaged "
        "over all rounds and in brackets at the end, with 95 % intervals over trials:"
    )
    lines = []
    for algorithm in DECENTRALIZED:
        own = select(rows, algorithm=algorithm)
        for epsilon in _BUDGETS:
            low, high = (select(own, epsilon=epsilon, centrality=value) for value in _CENTRALITIES)
            if low and high:
                lines.append(
                    f"{NAMES[algorithm]}, {write_budget(epsilon)}: {_write_lag(low)}, {_write_lag(high)}; at low centrality "
                    f"{_at_the_edge(algorithm, epsilon, _lags(low))}; at high centrality {_in_the_middle(_lags(high))}."
                )
        private, free = (_lags(select(own, epsilon=epsilon, centrality=_CENTRALITIES[0])) for epsilon in _BUDGETS)
        if private and free:
            lines.append(f"{NAMES[algorithm]}: at low centrality privacy adds {_added(algorithm, private, free)}.")
    lines += [
        f"{describe_graphs(rows, 'centrality')} Only the centrality was asked for, so the graphs at 0.05 and at 0.5 differ in other "
        "ways, too, and the others' accuracies cannot be compared between them.",
        f"{describe_steps(rows)} They differ with and without privacy, which is part of what privacy adds.",
    ]
    return write_list(begin, lines)


def _write_lag(own: Sequence[ResultRow]) -> str:
    """Say how far behind node 0 is at one of the centralities."""
    last = max(row["round"] for row in own)
    whole, end = summarise(_lags(own)), summarise(_lags(select(own, round=last)))
    return f"{whole.points} ({end.points}) at centrality {own[0]['centrality']:g}"


def _at_the_edge(algorithm: str, epsilon: Value, behind: Sequence[float]) -> str:
    """Say whether node 0 at the edge is slowed, and whether the paper says so."""
    found, claimed = summarise(behind), epsilon is not None and algorithm != "dsgt"
    verdict = judge_change(found, _SLOWED)
    if verdict == "inconclusive":
        return f"inconclusive whether it is {'' if claimed else 'hardly '}slowed, as is claimed"
    slowed = verdict == "different" and found.mean > 0
    return (
        f"it is {'slowed' if slowed else 'hardly slowed'}, {'as claimed' if slowed == claimed else 'against the claim'}"
    )


def _in_the_middle(behind: Sequence[float]) -> str:
    """Say whether node 0 in the middle is slowed; that it is ahead of the others is not a claim of the paper, nor against one."""
    found = summarise(behind)
    if found.margin is not None and found.mean + found.margin < 0:
        return "it is ahead of the others, and so not slowed, as claimed"
    words = {"same": "it is hardly slowed, as claimed", "different": "it is slowed, against the claim"}
    verdict = judge_change(found, _SLOWED)
    return words.get(verdict, verdict)


def _added(algorithm: str, private: Sequence[float], free: Sequence[float]) -> str:
    """Say how much more node 0 is behind with privacy than without, and whether the paper says so."""
    change = subtract(private, free)
    if algorithm == "dsgt":
        verdict: str = judge_change(change, _SLOWED)
        hardly = "as hardly any is claimed"
        words = {"same": hardly, "different": "against the claim" if change.mean > 0 else hardly}
    else:
        verdict = judge_fall(subtract(free, private), _SLOWED)
        words = {"falls": "as claimed", "does not": "against the claim"}
    return f"{change.points} to that, {words.get(verdict, verdict)}"


def _draw(rows: list[ResultRow]) -> Figure:
    with panels(2, 3, sharex=True, sharey=True, height=2.4) as (figure, axes):
        for line, centrality in zip(axes, _CENTRALITIES, strict=True):
            for ax, algorithm in zip(line, DECENTRALIZED, strict=True):
                for colour, epsilon in zip(SERIES, _BUDGETS, strict=False):
                    own = select(rows, algorithm=algorithm, epsilon=epsilon, centrality=centrality)
                    for who, dashes, words in (("node_0", "-", "node 0"), ("others", (0, (3, 2)), "others")):
                        rounds = sorted({row["round"] for row in own})
                        found = [summarise([row[who] for row in select(own, round=round)]) for round in rounds]
                        means, margins = np.array([(each.mean, each.margin or 0.0) for each in found]).reshape(-1, 2).T
                        ax.plot(rounds, means, color=colour, ls=dashes, label=f"{words}, {write_budget(epsilon)}")
                        if who == "node_0":
                            ax.fill_between(rounds, means - margins, means + margins, color=colour, alpha=0.15, lw=0)
                ax.set_title(f"{NAMES[algorithm]}, centrality of node 0: {centrality:g}")
            show_accuracy(line[0], "accuracy on validation")
        for ax in axes[-1]:
            ax.set_xlabel("round")
        add_legend_below(figure, axes[0, 0], GUARANTEE)
        return figure


EXPERIMENT = Experiment(
    name="centrality",
    title="Node 0 and the others, by centrality",
    claim="At (1, 1e-5), node 0 with eigenvector centrality 0.05 reaches consensus slowly under DP-DSGD and DP-DiNNO and hardly "
    "so under DP-DSGT; at 0.5 the impact on training is minor. Without privacy node 0 is hardly affected, and comes to the "
    "others' accuracy faster than with it.",
    varies=("algorithm", "epsilon", "centrality"),
    points=_points,
    run=partial(run_course, evaluations=_EVALUATIONS),
    draw=_draw,
    finding=_finding,
    seconds=partial(estimate_seconds, evaluations=_EVALUATIONS),
)
