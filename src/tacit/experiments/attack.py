"""`attack`: the paper's table of empirical ε, by the membership attack of `tacit.audit`, with bounds that hold.

A point is a batch of runs with the record and as many without. Their scores are judged together.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tacit.audit import LEAST_RUNS, Claim, Collected, Findings, judge, paper_attack
from tacit.data import load
from tacit.experiments.drawing import DASHED, INK, SERIES, Figure, panels
from tacit.experiments.experiment import Environment, Experiment, Point, Profile, ResultRow, write_list
from tacit.experiments.statistics import select
from tacit.experiments.trials import read_event, write_event
from tacit.report.wording import lower_bound, write_guarantee

PUBLISHED = {"sgd": 0.230, "dsgd": 0.173, "dsgt": 0.129, "dinno": 0.165}
_NAMES = {"sgd": "DP-SGD", "dsgd": "DP-DSGD", "dsgt": "DP-DSGT", "dinno": "DP-DiNNO"}
_EPSILON, _DELTA, _CONFIDENCE = 1.0, 1e-2, 0.95
# Data set, rounds, runs in a batch on each side, batches.
_SIZES: dict[Profile, tuple[str, int, int, int]] = {
    "smoke": ("digits", 5, 10, 1),
    "laptop": ("mnist", 100, 100, 5),
    "paper": ("mnist", 100, 250, 20),
}
_RUN = {"digits": 0.05, "mnist": 0.4}  # seconds of a run of 100 rounds with three agents


def _points(profile: Profile) -> list[Point]:
    dataset, rounds, runs, batches = _SIZES[profile]
    return [
        Point.of(algorithm=rule, batch=batch, dataset=dataset, rounds=rounds, runs=runs, epsilon=_EPSILON, delta=_DELTA)
        for rule in _NAMES
        for batch in range(batches)
    ]


def _run(point: Point, environment: Environment) -> list[ResultRow]:
    settings = {name: point[name] for name in ("epsilon", "delta", "rounds")}
    attack = paper_attack(load(point["dataset"], environment.data), point["algorithm"], **settings)
    if point["rounds"] * point["runs"] < 1000:  # too short for compiling to pay off
        attack = replace(attack, world=replace(attack.world, compile=False))
    mechanism, runs = write_event(attack.event), point["runs"]
    rows: list[ResultRow] = []
    for present in (False, True):
        scores = attack.scores(runs, present=present, seed=point["batch"] * runs)["loss"]
        rows += [
            {"present": present, "run": run, "score": float(score), **mechanism} for run, score in enumerate(scores)
        ]
    return rows


def judge_scores(rows: Sequence[ResultRow], rule: str) -> Findings | None:
    """Return what the scores of one algorithm prove, or None where there are too few.

    The algorithms share the risk, as in `tacit audit membership --algorithm all`: all bounds hold together.
    """
    own = select(rows, algorithm=rule)
    sides = [np.array([row["score"] for row in select(own, present=side)]) for side in (False, True)]
    if min(map(len, sides)) < LEAST_RUNS:
        return None
    one = own[0]
    collected = Collected({"loss": sides[0]}, {"loss": sides[1]})
    return judge(collected, Claim.of(read_event(one), one["delta"]), confidence=1 - (1 - _CONFIDENCE) / len(_NAMES))


def _finding(rows: list[ResultRow]) -> str:
    begin = f"{rows[0]['dataset']}, {rows[0]['rounds']} rounds, claimed: {write_guarantee(_EPSILON, _DELTA)}."
    lines = []
    for rule, name in _NAMES.items():
        if (found := judge_scores(rows, rule)) is None:
            continue
        first = found.thresholds[0]
        verdict = "the claim is broken" if found.verdict == "broken" else "no violation is found, as claimed"
        lines.append(
            f"{name}: the estimate is {first.estimate:.3f}, from {first.interval[0]:.2f} to {first.interval[1]:.2f} by "
            f"{found.runs:,} runs a side; {_beside(PUBLISHED[rule], first.interval)}. "
            f"ε is at least {lower_bound(found.epsilon)} ({lower_bound(found.epsilon_whatever)}): {verdict}."
        )
    lines += [
        f"All these lower bounds together have a confidence of {100 * _CONFIDENCE:.0f} %, and so have all intervals of estimates "
        "together. A bound holds if only the amount of noise may be wrong, the one in brackets whatever is.",
        "An estimate by itself proves nothing. It is that at a threshold chosen on the first fifth of the runs; "
        "another threshold gives another estimate. The paper names neither its thresholds nor its steps and gives no intervals: where a "
        "published value lies outside the interval here, any of these may be the reason.",
        "Step sizes are our own. For DSGT some were tried, and the one that moves the loss on the record most was taken; for the "
        "others none were searched.",
        "Final models reveal little to an attacker: `tacit audit neighbor` reads every message.",
    ]
    return write_list(begin, lines)


def _beside(published: float, interval: tuple[float, float]) -> str:
    """Say where a published estimate lies relative to the interval found here."""
    low, high = interval
    where = "below that interval" if published < low else "above that interval" if published > high else "within it"
    return f"the published {published:.3f} lies {where}"


def _draw(rows: list[ResultRow]) -> Figure:
    found = {rule: each for rule in _NAMES if (each := judge_scores(rows, rule)) is not None}
    with panels(1, 1, width=5.8) as (figure, axes):
        ax = axes[0, 0]
        estimates = [each.thresholds[0].estimate for each in found.values()]
        ends = np.array([each.thresholds[0].interval for each in found.values()]).reshape(-1, 2)
        reach = np.abs(ends.T - estimates)
        drawn = {
            "published estimate": [PUBLISHED[rule] for rule in found],
            "estimate here, interval": estimates,
            "lower bound": [each.epsilon for each in found.values()],
        }
        for shift, (colour, (label, values)) in enumerate(zip(SERIES, drawn.items(), strict=False)):
            places = [place + 0.27 * (shift - 1) for place in range(len(found))]
            ax.bar(places, values, width=0.25, color=colour, label=label)
            if values is estimates:
                ax.errorbar(places, values, yerr=reach, fmt="none", ecolor=INK, elinewidth=1, capsize=3)
        ax.axhline(_EPSILON, color=INK, **DASHED, label=f"claimed: {write_guarantee(_EPSILON, _DELTA)}")
        ax.set(ylabel=f"ε at δ = {_DELTA:g}")
        ax.set_xticks(range(len(found)), [_NAMES[rule] for rule in found])
        ax.grid(axis="x", visible=False)
        ax.axhline(0, color=INK, lw=0.7)
        figure.legend(loc="outside lower center", ncols=2)
        return figure


EXPERIMENT = Experiment(
    name="attack",
    title="Empirical ε by membership inference",
    claim="An attacker who sees the final models gets empirical ε of 0.230 (DP-SGD), 0.173 (DP-DSGD), 0.129 (DP-DSGT) and 0.165 "
    "(DP-DiNNO) at nominal ε=1, δ=1e-2: no violation.",
    varies=("algorithm", "batch"),
    points=_points,
    run=_run,
    draw=_draw,
    finding=_finding,
    seconds=lambda point: 1.0 + 2 * point["runs"] * _RUN[point["dataset"]] * point["rounds"] / 100,
)
