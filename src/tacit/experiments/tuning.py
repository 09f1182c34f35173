"""`tuning`: which steps are best on validation records, for the accuracy table, and what trying them would cost."""

from collections import Counter
from typing import TYPE_CHECKING

from tacit.algorithms import DiNNO
from tacit.experiments.experiment import Experiment, Place, Point, Profile, Row, Value, as_list
from tacit.experiments.hyperparameters import AGENTS, DECENTRALIZED, DELTA, NAMES
from tacit.experiments.recipes import ALGORITHMS, EPSILON, FEATURES, NETWORK, RECIPES, recipe_point, setting_of
from tacit.experiments.trials import seconds, train_point
from tacit.models import CROSS
from tacit.report.wording import counted, promised

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEPS, CHANGES = "steps", "changes"
_SEED = 1000  # of no trial of the accuracy table: what was chosen for being lucky here is not lucky there


# What else could be changed at no cost in privacy; steps follow where a step's size changes.
_USUAL: dict[str, Value] = {"start": 1.0, "finish": 0.25}
_FOR_DSGT: tuple[tuple[str, dict[str, Value]], ...] = (
    (FEATURES, {"clip": 0.1, "start": 10.0, "finish": 2.5}),  # nearly all are clipped: normalised gradients
    (FEATURES, {"rounds": 100, **_USUAL}),
    (FEATURES, {"rounds": 400, **_USUAL}),
    (FEATURES, {"lot": 1024, "rounds": 50, **_USUAL}),
    (FEATURES, {"averaging": 0.9, "start": 2.0, "finish": 0.5}),
    (FEATURES, {"averaging": 0.9, "start": 2.0, "finish": 2.0}),  # averages in the place of smaller steps
    (NETWORK, {"averaging": 0.98, "start": 1.0, "finish": 0.1}),
    (NETWORK, {"views": len(CROSS), "start": 1.0, "finish": 0.1}),
    (NETWORK, {"views": len(CROSS), "start": 4.0, "finish": 0.4}),
)
_FOR_DINNO: tuple[tuple[str, dict[str, Value]], ...] = tuple(
    (recipe, {"rho": rho}) for recipe in (FEATURES, NETWORK) for rho in (0.02, 0.1, 2.0)
)


def _points(profile: Profile) -> list[Point]:
    smoke = profile == "smoke"
    steps = [
        recipe_point(profile, recipe, algorithm, "complete", 1, start=start, finish=finish, part=STEPS)
        for recipe, ours in RECIPES.items()
        for algorithm in ALGORITHMS
        for start, finish in ours.tried[algorithm][: 1 if smoke else None]
    ]
    changes = [
        recipe_point(profile, recipe, algorithm, "complete", 1, **change, part=CHANGES)
        for algorithm, changed in (("dsgt", _FOR_DSGT), ("dinno", _FOR_DINNO))
        for recipe, change in changed
        if not (smoke and "rounds" in change)
    ]
    return steps + changes


def _play(point: Point, place: Place) -> list[Row]:
    """Train once and score on validation records alone: test records are for what is chosen in the end."""
    (result,) = train_point(point, place, chosen=setting_of(point), seed=_SEED)
    event = result.plan.event(0)
    return [
        {
            "trial": 0,
            "validation": float(result.accuracy.mean()),
            "sample_rate": event.sample_rate,
            "noise_multiplier": event.noise_multiplier,
            "queries": event.count,
        }
    ]


def tries(rows: list[Row], recipe: str, algorithm: str) -> list[Row]:
    """Return which steps were tried for an algorithm, the best first."""
    wanted = recipe, algorithm, STEPS
    own = [row for row in rows if (row["recipe"], row["algorithm"], row["part"]) == wanted]
    return sorted(own, key=lambda row: -row["validation"])


def _finding(rows: list[Row]) -> str:
    lines = []
    for recipe in RECIPES:
        for algorithm in ALGORITHMS:
            if not (own := tries(rows, recipe, algorithm)):
                continue
            listed = ", ".join(
                f"{100 * row['validation']:.1f} % with η from {row['start']:g} to {row['finish']:g}" for row in own
            )
            lines.append(
                f"{recipe}, {NAMES[algorithm]}: {listed}. These tries and one run more would cost {_cost([*own, own[0]])}."
            )
    lines += [
        f"{row['recipe']}, {NAMES[row['algorithm']]}, {_changed(row)} and η from {row['start']:g} to {row['finish']:g}: "
        f"{100 * row['validation']:.1f} %."
        for row in rows
        if row["part"] == CHANGES
    ]
    begin = (
        f"{rows[0]['dataset']}, {rows[0]['agents']} agents with classes of their own (t = 1), complete graph, one run each, scored on "
        f"validation records; {promised(EPSILON, DELTA)}, for each run. {_bases()} The accuracy table uses the best steps, and for "
        "DiNNO the best ρ. It does not use views, which make each round as many times as long."
    )
    lines.append(
        "These tries are made on public records, where they cost nobody anything. Clip, lot, rounds and features were settled "
        "before, by some twenty runs that were not kept, so that this choice cannot be repeated. On private records all of it would "
        "have to be counted."
    )
    lines += _totals(rows)
    return as_list(begin, lines)


def _bases() -> str:
    """Say what each recipe is where nothing else is said."""
    told = [
        f"{name} is {ours.model} on {ours.features}: lots of {ours.lot} ({AGENTS * ours.lot:,} for central training), {ours.rounds:,} "
        f"rounds, C = {ours.clip:g} and ρ = {DiNNO().rho:g} for DiNNO"
        for name, ours in RECIPES.items()
    ]
    return f"Unless it is changed, {'; '.join(told)}."


def _changed(row: Row) -> str:
    """Say what differs from the recipe, but for steps."""
    ours = RECIPES[row["recipe"]]
    parts = [f"C = {row['clip']:g}"] if row["clip"] != ours.clip else []
    parts += [f"lots of {row['lot']:,}"] if row["lot"] != ours.lot else []
    parts += [f"{row['rounds']:,} rounds"] if row["rounds"] != ours.rounds else []
    parts += [f"models averaged with a decay of {row['averaging']:g}"] if row.get("averaging") else []
    parts += [f"{row['views']} views of each record before clipping"] if row.get("views") else []
    parts += [f"ρ = {row['rho']:g}"] if row.get("rho") else []
    return f"with {', '.join(parts)}"


def _totals(rows: list[Row]) -> list[str]:
    """Say what all tries together would cost an agent, for one algorithm and for all of them."""
    own = {name: [row for row in rows if row["algorithm"] == name] for name in DECENTRALIZED}
    whose = {f"of {NAMES[name]}": each for name, each in own.items()}
    whose["between agents"] = [row for each in own.values() for row in each]
    return [
        f"All that is listed {words}, {counted(len(each), 'run')}, would cost {_cost(each)}."
        for words, each in whose.items()
        if each
    ]


def _cost(runs: list[Row]) -> str:
    """Say what ε runs on the same records have together, rounded up."""
    from tacit.privacy.accounting import Event, ceil_digits, epsilon

    kinds = Counter((row["sample_rate"], row["noise_multiplier"], row["queries"]) for row in runs)
    events = [
        Event(sample_rate=rate, noise_multiplier=noise, count=times * queries)
        for (rate, noise, queries), times in kinds.items()
    ]
    return promised(ceil_digits(epsilon(events, delta=DELTA)), DELTA)


def _draw(rows: list[Row]) -> "Figure":
    from tacit.experiments.drawing import COLOURS, MARKERS, accuracy_axis, legend_below, log_axis, panels, style

    with style():
        played = [recipe for recipe in RECIPES if any(row["recipe"] == recipe for row in rows)]
        figure, axes = panels(1, len(played), width=4.2)
        for ax, recipe in zip(axes[0], played, strict=True):
            for algorithm in ALGORITHMS:
                own = sorted(tries(rows, recipe, algorithm), key=lambda row: row["start"])
                look = {"color": COLOURS[algorithm], "marker": MARKERS[algorithm], "label": NAMES[algorithm]}
                ax.plot([row["start"] for row in own], [row["validation"] for row in own], **look)
            log_axis(ax.xaxis)
            ax.set(title=recipe, xlabel="η in the first round")
            accuracy_axis(ax, "accuracy on validation")
        legend_below(figure, axes[0, 0], promised(EPSILON, DELTA))
        return figure


EXPERIMENT = Experiment(
    name="tuning",
    title="Step sizes for the accuracy table",
    claim="The paper tunes too, and does not say what that costs.",
    varies=("recipe", "algorithm", "start", "finish", "clip", "lot", "rounds", "averaging", "views", "rho"),
    points=_points,
    play=_play,
    draw=_draw,
    finding=_finding,
    seconds=seconds,
)
