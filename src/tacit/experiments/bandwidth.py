"""`bandwidth`: accuracy against bytes sent. DSGT sends its tracker beside its model, twice the bytes of the others."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from tacit.experiments.drawing import COLOURS, Figure, add_legend_below, panels, show_accuracy
from tacit.experiments.experiment import Experiment, Point, Profile, ResultRow, write_budget, write_list
from tacit.experiments.hyperparameters import DECENTRALIZED, MNIST, NAMES
from tacit.experiments.statistics import select, subtract, summarise
from tacit.experiments.trials import (
    GUARANTEE,
    describe_steps,
    describe_training,
    estimate_seconds,
    run_course,
    training_point,
)

_EVALUATIONS = 10
_GRAPHS = ("ring", "complete")
_BUDGETS = (1.0, None)


def _points(profile: Profile) -> list[Point]:
    return [
        training_point(MNIST[profile], {"graph": graph}, algorithm=algorithm, epsilon=epsilon)
        for graph in _GRAPHS
        for epsilon in _BUDGETS
        for algorithm in DECENTRALIZED
    ]


def _course(rows: Sequence[ResultRow]) -> tuple[list[float], list[float]]:
    """Return the bytes sent by all agents together and the mean accuracy at each evaluation."""
    at = [select(rows, round=round) for round in sorted({row["round"] for row in rows})]
    sent, accuracy = (
        [float(np.mean([row[name] for row in each])) for each in at] for name in ("bytes_sent", "accuracy")
    )
    return sent, accuracy


def _at_bytes(rows: Sequence[ResultRow], sent: float) -> list[float]:
    """Return the accuracy of each trial after this many bytes, interpolated linearly between evaluations."""
    trials = sorted({row["trial"] for row in rows})
    return [float(np.interp(sent, *_course(select(rows, trial=trial)))) for trial in trials]


def _finding(rows: list[ResultRow]) -> str:
    begin = f"{describe_training(rows)}. Accuracies are on validation records, with 95 % intervals over trials."
    lines = []
    for graph in _GRAPHS:
        for epsilon in _BUDGETS:
            own = {name: select(rows, algorithm=name, epsilon=epsilon, graph=graph) for name in DECENTRALIZED}
            found = {name: each for name, each in own.items() if each}
            if not {"dsgd", "dsgt"} <= set(found):
                continue
            ends = {name: _course(each)[0][-1] for name, each in found.items()}
            ratio, sent = ends["dsgt"] / ends["dsgd"], min(ends.values())
            same = {name: _at_bytes(each, sent) for name, each in found.items()}
            last = {name: _at_bytes(each, ends[name]) for name, each in found.items()}
            lines.append(
                f"{graph} graph, {write_budget(epsilon)}: DSGT sends {ratio:.2f} times what DSGD sends, "
                f"{'as' if abs(ratio - 2) < 0.01 else 'against what is'} claimed. After {sent / 1e6:,.0f} MB of all agents: "
                f"{_list(same)}, so that for the same bytes DSGT is {subtract(same['dsgt'], same['dsgd']).points} from DSGD; after all "
                f"rounds: {_list(last)}."
            )
    return write_list(begin, [*lines, describe_steps(rows)])


def _list(found: dict[str, list[float]]) -> str:
    return ", ".join(f"{NAMES[name]} {summarise(values).percent}" for name, values in found.items())


def _draw(rows: list[ResultRow]) -> Figure:
    with panels(1, len(_GRAPHS), width=3.8, sharey=True) as (figure, axes):
        for ax, graph in zip(axes[0], _GRAPHS, strict=True):
            for epsilon, dashes in zip(_BUDGETS, ("-", (0, (3, 2))), strict=True):
                for name in DECENTRALIZED:
                    sent, accuracy = _course(select(rows, algorithm=name, epsilon=epsilon, graph=graph))
                    look = {"color": COLOURS[name], "ls": dashes, "label": f"{NAMES[name]}, {write_budget(epsilon)}"}
                    ax.plot([each / 1e6 for each in sent], accuracy, marker=".", **look)
            ax.set(title=f"{graph} graph", xlabel="MB sent by all agents together")
        show_accuracy(axes[0, 0], "accuracy on validation")
        add_legend_below(figure, axes[0, 0], GUARANTEE, ncols=3)
        return figure


EXPERIMENT = Experiment(
    name="bandwidth",
    title="Accuracy against bytes sent",
    claim="DP-DSGT needs messages twice as large as those of DP-DSGD and DP-DiNNO.",
    varies=("algorithm", "epsilon", "graph"),
    points=_points,
    run=partial(run_course, evaluations=_EVALUATIONS),
    draw=_draw,
    finding=_finding,
    seconds=partial(estimate_seconds, evaluations=_EVALUATIONS),
)
