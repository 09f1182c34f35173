"""`tuning`: which steps are best on validation records, for the accuracy table, and what trying them would cost."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from tacit import DiNNO, Observer
from tacit.experiments.drawing import (
    COLOURS,
    MARKERS,
    Figure,
    add_legend_below,
    make_logarithmic,
    panels,
    show_accuracy,
)
from tacit.experiments.experiment import Environment, Experiment, Point, Profile, ResultRow, Value, write_list
from tacit.experiments.hyperparameters import AGENTS, CENTRAL, DECENTRALIZED, DELTA, NAMES
from tacit.experiments.recipes import (
    ALGORITHMS,
    EPSILON,
    FEATURES,
    MASKS,
    NETWORK,
    RECIPES,
    recipe_point,
    setting_of,
    tries,
)
from tacit.experiments.statistics import Summary, select, summarise
from tacit.experiments.trials import estimate_seconds, read_event, train_point, write_event
from tacit.models import CROSS
from tacit.privacy import epsilon
from tacit.report.wording import counted, write_guarantee
from tacit.ties import in_order

STEPS, CHANGES, SEEDS = "steps", "changes", "seeds"
_SEEDS_TRIED = 3


class OverSeeds(NamedTuple):
    """A system on a graph, whose steps for a number of rounds are tried with several seeds."""

    recipe: str
    system: str
    rounds: int
    graph: str = "complete"


_OVER_SEEDS: dict[OverSeeds, tuple[tuple[float, float], ...]] = {
    OverSeeds(NETWORK, "central", 300): ((4.0, 0.8), (2.0, 0.4)),
    OverSeeds(NETWORK, MASKS, 300): ((4.0, 0.8), (2.0, 0.4)),
    OverSeeds(NETWORK, "dsgt", 300): ((2.0, 0.2), (4.0, 0.4), (1.0, 0.1)),
    OverSeeds(NETWORK, MASKS, 1000): ((4.0, 0.8), (2.0, 0.4)),
    OverSeeds(NETWORK, MASKS, 1000, "ring"): ((4.0, 0.8), (4.0, 0.2), (2.0, 0.4)),
    OverSeeds(NETWORK, "central", 1000): ((4.0, 0.8), (8.0, 1.6)),
    OverSeeds(NETWORK, "dsgt", 1000): ((2.0, 0.2), (4.0, 0.4)),
    OverSeeds(NETWORK, "dinno", 300): ((1.0, 0.05), (2.0, 0.1)),
    OverSeeds(FEATURES, "central", 200): ((2.0, 0.5), (4.0, 1.0), (8.0, 2.0)),
    OverSeeds(FEATURES, MASKS, 200): ((2.0, 0.5), (4.0, 1.0), (8.0, 2.0)),
    OverSeeds(FEATURES, "dsgt", 200): ((1.0, 0.25), (2.0, 0.5), (4.0, 1.0)),
    OverSeeds(FEATURES, "dsgd", 200): ((0.5, 0.05), (1.0, 0.1), (2.0, 0.2)),
}
"""Steps that are tried with several seeds: near where training gets unstable, one seed says little."""
_SYSTEMS = {**NAMES, MASKS: "DSGT with masks against one curious agent"}
_SEED = 1000  # of no trial of the accuracy table: what was chosen for being lucky here is not lucky there

# What else could be changed at no cost in privacy; steps follow where a step's size changes.
_USUAL: dict[str, Value] = {"start": 1.0, "finish": 0.25}
_LONG: dict[str, Value] = {"rounds": 1000}
_ADAM: dict[str, Value] = {"rounds": 1000, "start": 0.01, "finish": 0.0005, "growth": None}
_CHANGED: tuple[tuple[str, str, dict[str, Value]], ...] = (
    ("dsgt", FEATURES, {"clip": 0.1, "start": 10.0, "finish": 2.5}),  # nearly all are clipped: normalised gradients
    ("dsgt", FEATURES, {"rounds": 100, **_USUAL}),
    ("dsgt", FEATURES, {"rounds": 400, **_USUAL}),
    ("dsgt", FEATURES, {"lot": 1024, "rounds": 50, **_USUAL}),
    ("dsgt", FEATURES, {"averaging": 0.9, "start": 2.0, "finish": 0.5}),
    ("dsgt", FEATURES, {"averaging": 0.9, "start": 2.0, "finish": 2.0}),  # averages instead of smaller steps
    ("dsgt", NETWORK, {"averaging": 0.98, "start": 1.0, "finish": 0.1, **_LONG}),
    ("dsgt", NETWORK, {"views": len(CROSS), "start": 1.0, "finish": 0.1, **_LONG}),
    ("dsgt", NETWORK, {"views": len(CROSS), "start": 4.0, "finish": 0.4, **_LONG}),
    ("dinno", FEATURES, {"rho": 0.02}),
    ("dinno", FEATURES, {"rho": 0.1}),
    ("dinno", FEATURES, {"rho": 2.0}),
    *(("dinno", NETWORK, {**_ADAM, "rho": rho}) for rho in (0.02, 0.1, 2.0)),
    *(("dinno", NETWORK, {**_ADAM, "start": start, "rho": None}) for start in (0.003, 0.01, 0.03)),
)


def _points(profile: Profile) -> list[Point]:
    smoke, points = profile == "smoke", []
    for recipe, ours in RECIPES.items():
        for system, tuned in ours.systems.items():
            for each in tuned.tried[: 1 if smoke else None]:
                points.append(recipe_point(profile, recipe, system, "complete", 1, {"part": STEPS}, each))
    for system, recipe, change in _CHANGED:
        if smoke and "lot" in change:
            continue
        used = RECIPES[recipe].systems[system].used
        settings = {name: value for name, value in change.items() if not (smoke and name == "rounds")}
        points.append(recipe_point(profile, recipe, system, "complete", 1, settings | {"part": CHANGES}, used))
    for (recipe, system, rounds, graph), tried in _OVER_SEEDS.items():
        if smoke and (recipe, system) != (FEATURES, MASKS):
            continue
        for each in tries(rounds, *tried)[: 1 if smoke else None]:
            points.append(recipe_point(profile, recipe, system, graph, _SEEDS_TRIED, {"part": SEEDS}, each))
    return list(dict.fromkeys(points))


def _run(point: Point, environment: Environment) -> list[ResultRow]:
    """Train and score on validation records alone: test records are for what is chosen in the end."""
    results = train_point(point, environment, chosen=setting_of(point), seed=_SEED)
    event = write_event(results[0].plan.event(0))
    return [
        {"trial": trial, "validation": float(result.accuracy.mean()), **event} for trial, result in enumerate(results)
    ]


def list_tries(rows: Sequence[ResultRow], recipe: str, algorithm: str) -> list[ResultRow]:
    """List the steps that were tried for an algorithm, the best first."""
    found = select(rows, recipe=recipe, algorithm=algorithm, part=STEPS)
    return [found[place] for place in in_order([row["validation"] for row in found], descending=True)]


def _finding(rows: list[ResultRow]) -> str:
    lines = []
    for recipe, ours in RECIPES.items():
        for algorithm in ours.systems:
            if own := list_tries(rows, recipe, algorithm):
                listed = ", ".join(
                    f"{100 * row['validation']:.1f} % with η from {row['start']:g} to {row['finish']:g} in {row['rounds']:,} rounds"
                    for row in own
                )
                cost = f"These tries and one more run would cost {_cost([*own, own[0]])}."
                lines.append(f"{recipe}, {NAMES[algorithm]}: {listed}. {cost}")
    lines += [
        f"{row['recipe']}, {NAMES[row['algorithm']]}, {_describe_change(row)} and η from {row['start']:g} to {row['finish']:g}: "
        f"{100 * row['validation']:.1f} %."
        for row in select(rows, part=CHANGES)
    ]
    lines += _list_seeds(rows)
    lines.append(
        "These tries are made on public records, where they cost nobody anything. Clip, lot, rounds and features were chosen "
        "before, by some twenty runs that were not kept, so that choice cannot be repeated. On private records all of it would "
        "have to be counted."
    )
    begin = (
        f"{rows[0]['dataset']}, {rows[0]['agents']} agents with classes of their own (t = 1), complete graph and one run each unless named otherwise, "
        f"scored on validation records; {write_guarantee(EPSILON, DELTA)}, for each run. "
        f"{_describe_recipes()} {_state_choice(rows)} For DiNNO on features the accuracy table uses the best ρ. It does not use views, "
        "which multiply the time of a round by their number."
    )
    return write_list(begin, [*lines, *_totals(rows)])


def _state_choice(rows: Sequence[ResultRow]) -> str:
    """Say for which systems the accuracy table uses the best steps that were tried with as many rounds, and for which not."""
    others = []
    for recipe, ours in RECIPES.items():
        for system, tuned in ours.systems.items():
            used = (tuned.used.start, tuned.used.finish)
            over_seeds = _over_seeds(rows, OverSeeds(recipe, system, tuned.used.rounds))
            if used in over_seeds:  # several seeds decide
                best, tried = next(iter(over_seeds)) == used, True
            else:
                found = select(list_tries(rows, recipe, system), rounds=tuned.used.rounds)
                best = bool(found) and (found[0]["start"], found[0]["finish"]) == used
                tried = bool(select(found, start=tuned.used.start))
            if not best:
                why = "which is not the best here" if tried else "which was not tried here"
                others.append(f"{recipe}, {NAMES[system]}, η from {tuned.used.start:g} to {tuned.used.finish:g}, {why}")
    begin = "The accuracy table uses the best steps of those tried with its number of rounds"
    return f"{begin}, except: {'; '.join(others)}." if others else f"{begin}."


def _over_seeds(rows: Sequence[ResultRow], tried: OverSeeds) -> dict[tuple[float, float], Summary]:
    """Return what steps give with several seeds, the best mean first."""
    where = None if tried.system == CENTRAL else tried.graph
    own = _rows_of(rows, tried.system, part=SEEDS, recipe=tried.recipe, rounds=tried.rounds, graph=where)
    found = {}
    for start, finish in _OVER_SEEDS.get(tried, ()):
        if scores := [row["validation"] for row in select(own, start=start, finish=finish)]:
            found[start, finish] = summarise(scores)
    each = list(found.items())
    return dict(each[place] for place in in_order([summary.mean for _, summary in each], descending=True))


def _list_seeds(rows: Sequence[ResultRow]) -> list[str]:
    """List what steps give with several seeds, a line for each system."""
    lines = []
    for tried in _OVER_SEEDS:
        if found := _over_seeds(rows, tried):
            listed = ", ".join(
                f"{summary.percent} with η from {start:g} to {finish:g}" for (start, finish), summary in found.items()
            )
            where = "" if tried.graph == "complete" else f", {tried.graph}"
            lines.append(
                f"{tried.recipe}, {_SYSTEMS[tried.system]}{where}, {tried.rounds:,} rounds, {_SEEDS_TRIED} seeds: {listed}."
            )
    return lines


def _rows_of(rows: Sequence[ResultRow], system: str, **settings: Value) -> list[ResultRow]:
    """Return the rows of a system; those of DSGT with masks are a system of their own."""
    algorithm, curious = ("dsgt", 1) if system == MASKS else (system, None)
    return select(rows, algorithm=algorithm, curious=curious, **settings)


def _describe_recipes() -> str:
    """Say what each recipe is where nothing is changed."""
    parts = [
        f"{name} is {ours.model} on {ours.features}: lots of {ours.lot} ({AGENTS * ours.lot:,} for central training), C = {ours.clip:g}"
        for name, ours in RECIPES.items()
    ]
    plain = RECIPES[NETWORK].systems["dinno"].settings
    return (
        f"Unless it is changed, {'; '.join(parts)}. DiNNO on features takes Adam's steps with ρ = {DiNNO().rho:g}; on network it takes "
        f"plain steps with ρ = {plain['rho']:g}, which grows by a factor of {plain['growth']:g} each round."
    )


def _describe_change(row: ResultRow) -> str:
    """Say what differs from the recipe, except steps."""
    ours = RECIPES[row["recipe"]]
    parts = [f"C = {row['clip']:g}"] if row["clip"] != ours.clip else []
    parts += [f"lots of {row['lot']:,}"] if row["lot"] != ours.lot else []
    parts += [f"{row['rounds']:,} rounds"] if row["rounds"] != ours.systems[row["algorithm"]].used.rounds else []
    parts += [f"models averaged with a decay of {row['averaging']:g}"] if row.get("averaging") else []
    parts += [f"{row['views']} views of each record before clipping"] if row.get("views") else []
    if row["algorithm"] == "dinno":
        parts += ["Adam's steps"] if row["recipe"] == NETWORK else []
        parts.append(f"ρ = {row.get('rho') or DiNNO().rho:g}")
    return f"with {', '.join(parts)}"


def _totals(rows: list[ResultRow]) -> list[str]:
    """Say what all tries together would cost an agent, for one algorithm and for all of them."""
    own = {name: _rows_of(rows, name) for name in (*DECENTRALIZED, MASKS)}
    whose = {f"of {_SYSTEMS[name]}": each for name, each in own.items()}
    whose["between agents"] = [row for each in own.values() for row in each]
    return [
        f"All that is listed {words}, {counted(len(each), 'run')}, would cost {_cost(each)}{_against(each)}."
        for words, each in whose.items()
        if each
    ]


def _against(runs: Sequence[ResultRow]) -> str:
    """Say against whom an ε with masks in it holds."""
    return f", against {Observer(1)}" if any(row.get("curious") for row in runs) else ""


def _cost(runs: Sequence[ResultRow]) -> str:
    """Write the ε of all runs on the same records together, rounded up."""
    events = [replace(event, count=times * event.count) for event, times in Counter(map(read_event, runs)).items()]
    return write_guarantee(epsilon(events, delta=DELTA), DELTA)


def _draw(rows: list[ResultRow]) -> Figure:
    shown = [recipe for recipe in RECIPES if select(rows, recipe=recipe)]
    with panels(1, len(shown), width=4.2) as (figure, axes):
        for ax, recipe in zip(axes[0], shown, strict=True):
            for algorithm in ALGORITHMS:
                tries = list_tries(rows, recipe, algorithm)
                own = select(tries, rounds=min((row["rounds"] for row in tries), default=0))
                pairs = sorted((row["start"], row["validation"]) for row in own)
                look = {"color": COLOURS[algorithm], "marker": MARKERS[algorithm], "label": NAMES[algorithm]}
                ax.plot([start for start, _ in pairs], [validation for _, validation in pairs], **look)
            make_logarithmic(ax.xaxis)
            ax.set(title=recipe, xlabel="η in the first round")
            show_accuracy(ax, "accuracy on validation")
        add_legend_below(figure, axes[0, 0], write_guarantee(EPSILON, DELTA))
        return figure


EXPERIMENT = Experiment(
    name="tuning",
    title="Step sizes for the accuracy table",
    claim="The paper tunes too, and does not say what that costs.",
    varies=(
        "part",
        "recipe",
        "algorithm",
        "start",
        "finish",
        "clip",
        "lot",
        "rounds",
        "averaging",
        "views",
        "rho",
        "growth",
        "curious",
        "graph",
    ),
    points=_points,
    run=_run,
    draw=_draw,
    finding=_finding,
    seconds=estimate_seconds,
)
