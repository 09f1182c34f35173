"""What is drawn of runs, as plain data: lines with their axes. `html/charts.py` makes charts of it, `figures/axes.py` figures.

A plot of one run names what its lines are; a plot of several names the runs.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tacit.privacy.observers import EVERYBODY, Observer
from tacit.report.compared import ComparedRun, choose_measure, scores_by
from tacit.report.recorded import Measure, RecordedScores, Values
from tacit.report.spending import Spending
from tacit.report.wording import ADJACENCIES, number, score, write_epsilon

NOT_A_RELEASE = "not a release"
_VERY_DIFFERENT = 3  # times as many rounds


@dataclass(frozen=True, kw_only=True)
class Axis:
    """What an axis shows, and from where to where: from zero to what is needed if there are no ends."""

    title: str
    ends: tuple[float, float] | None = None
    percent: bool = False
    log: bool = False
    ticks: Mapping[float, str] = field(default_factory=dict)
    """Labels by place, instead of round numbers."""


@dataclass(frozen=True, kw_only=True)
class PlotLine:
    """A line, and a text about each of its points. What is not finite is a gap."""

    name: str
    remark: str = ""
    """Follows on the name, and is never cut off."""
    x: Sequence[float]
    y: Sequence[float] | Values
    hover: Sequence[str]
    series: int | None = 0
    """Which of the colours `SERIES` it has; None for grey."""
    dash: str = "solid"
    width: float = 2.5
    band: tuple[Values, Values] | None = None
    """The worst agent and the best, to fill the space between."""
    agents: Values | None = None
    """Every agent's values, [points, agents], to draw thin lines."""
    filled: bool = False
    """Whether the space below is filled."""
    labels: Sequence[str] = ()
    """Texts beside the points, which are then drawn large; `main` is the point that stands out."""
    main: int = 0


@dataclass(frozen=True, kw_only=True)
class Plot:
    """Lines on two axes, and a mark at each budget."""

    lines: Sequence[PlotLine]
    x: Axis
    y: Axis
    budgets: Sequence[float] = ()
    terms: str = ""
    """What every ε is stated with."""
    several: bool
    """Whether the lines are those of several runs."""

    @property
    def legend(self) -> bool:
        """Whether names have to be shown."""
        return self.several or len(self.lines) > 1 or any(line.band for line in self.lines)


def plot_scores(runs: Sequence[ComparedRun]) -> Plot | None:
    """Plot the mean score over the rounds with the band from the worst agent to the best; of one run, also every agent."""
    measure, several, (x, place) = choose_measure(runs), len(runs) > 1, _rounds(runs)
    lines = []
    for each, scores in scores_by(runs, measure):
        crowd = each.run.plan.agents > 1
        line = PlotLine(
            name="mean" if crowd else measure,
            x=place(each, scores.rounds),
            y=scores.mean,
            hover=[f"round {round}: {words}" for round, words in zip(scores.rounds, _spans(scores), strict=True)],
            band=(scores.low, scores.high) if crowd else None,
            agents=scores.values if crowd and not several else None,
        )
        lines.append(_of_run(each, line) if several else line)
    return Plot(lines=lines, x=x, y=score_axis(measure), several=several) if lines else None


def plot_distances(runs: Sequence[ComparedRun]) -> Plot | None:
    """Plot how far the models of each run are apart, on a logarithmic axis; None if they never are."""
    ticks = log_ticks([value for each in runs for value in each.run.distances])
    if not ticks:
        return None
    x, place = _rounds(runs)
    lines = []
    for each in filter(has_distance, runs):
        rounds = [snapshot.round for snapshot in each.run.history]
        y = [value if 0 < value < math.inf else math.nan for value in each.run.distances]
        hover = [f"round {s.round}: distance {number(s.consensus_distance)}" for s in each.run.history]
        lines.append(_of_run(each, PlotLine(name="", x=place(each, rounds), y=y, hover=hover)))
    labels = {tick: _label(tick) for tick in ticks}
    distance = Axis(title="consensus distance", ends=(ticks[0], ticks[-1]), log=True, ticks=labels)
    return Plot(lines=lines, x=x, y=distance, several=len(runs) > 1)


def plot_epsilons(runs: Sequence[ComparedRun]) -> Plot | None:
    """Plot ε over the rounds, and all budgets; of one run with masks, also ε against everybody else together."""
    several, (x, place) = len(runs) > 1, _rounds(runs)
    kept = [(each, each.spent) for each in runs if each.spent is not None and each.spent.moments]
    if not kept:
        return None
    lines = []
    for each, spent in kept:
        rounds = place(each, [moment.round for moment in spent.moments])
        line = PlotLine(
            name=f"against {spent.guarantee.observer}",
            x=rounds,
            y=spent.epsilons,
            hover=_queries(each, spent, spent.epsilons),
            filled=not several,
        )
        lines.append(_of_run(each, line, _remark(spent)) if several else line)
        if spent.masked and not several:
            hover, values = _queries(each, spent, spent.epsilons_everybody), spent.epsilons_everybody
            name = f"against {EVERYBODY}"
            lines.append(PlotLine(name=name, x=rounds, y=values, hover=hover, series=1, dash="dot"))
    spendings = [spent for _, spent in kept]
    budgets = sorted({spent.budget for spent in spendings if spent.budget is not None})
    y = _epsilon_axis(spendings, [*(value for line in lines for value in line.y), *budgets])
    named = len(lines) > 1 and not several  # by the lines themselves
    terms = _terms(spendings) if named else _terms(spendings, against=spendings[0].guarantee.observer)
    return Plot(lines=lines, x=x, y=y, budgets=budgets, terms=terms, several=several)


def plot_observers(spent: Spending) -> Plot:
    """Plot ε against the number of curious agents, and against everybody else together."""
    found, values = spent.exposures, [each.epsilon for each in spent.exposures]
    line = PlotLine(
        name="",
        x=range(len(found)),
        y=values,
        hover=[
            f"ε against {each.observer}, highest for agent {each.agent}: {write_epsilon(each.epsilon)}"
            for each in found
        ],
        series=None,
        dash="dot",
        width=1.5,
        labels=[write_epsilon(value) for value in values],
        main=[each.observer for each in found].index(spent.guarantee.observer),
    )
    names = ["everybody" if each.observer == EVERYBODY else str(each.observer.curious) for each in found]
    x = Axis(
        title="curious agents who pool what they know", ends=(-0.5, len(found) - 0.5), ticks=dict(enumerate(names))
    )
    return Plot(lines=[line], x=x, y=_epsilon_axis([spent], values), terms=_terms([spent]), several=False)


def plot_tradeoff(runs: Sequence[ComparedRun]) -> Plot | None:
    """Plot accuracy against ε. Runs without privacy are horizontal lines; None if no run has both."""
    scored = scores_by(runs, "accuracy")
    ends = [each.spent.guarantee.epsilon for each, _ in scored if each.spent is not None]
    if not ends:
        return None
    lines = []
    for each, scores in scored:
        if each.spent is None:
            mean = float(scores.mean[-1])
            hover = [f"without privacy: {score(mean, 'accuracy')}"] * 2
            line = PlotLine(name="", x=[0, max(ends)], y=[mean, mean], hover=hover, width=1.5)
        else:
            mean_of = dict(zip(scores.rounds, scores.mean, strict=True))
            pairs = zip(each.spent.moments, each.spent.epsilons, strict=True)
            points = [(value, mean_of[moment.round]) for moment, value in pairs if moment.round in mean_of]
            hover = [f"ε = {write_epsilon(value)}: {score(mean, 'accuracy')}" for value, mean in points]
            x, y = [value for value, _ in points], [mean for _, mean in points]
            line = PlotLine(name="", x=x, y=y, hover=hover)
        lines.append(_of_run(each, line, _remark(each.spent)))
    y_axis = replace(score_axis("accuracy"), title="mean accuracy")
    observers = {each.spent.guarantee.observer for each, _ in scored if each.spent is not None}
    against = str(observers.pop()) if len(observers) == 1 else "whom each run names"
    return Plot(lines=lines, x=Axis(title=f"ε spent, against {against}"), y=y_axis, several=True)


def has_distance(each: ComparedRun) -> bool:
    """Say whether there is a distance to draw."""
    return any(0 < value < math.inf for value in each.run.distances)


def score_axis(measure: Measure) -> Axis:
    """Return an axis of accuracies or losses."""
    return Axis(title=f"{measure} on validation", percent=measure == "accuracy")


def log_ticks(values: Sequence[float]) -> list[float]:
    """Return ticks around all positive values: powers of ten or, if these are few, 1, 2 and 5 times them; none for no values."""
    shown = [value for value in values if 0 < value < math.inf]
    if not shown:
        return []
    low, high = math.floor(math.log10(min(shown))), math.ceil(math.log10(max(shown)) + 1e-9)
    steps = (1,) if high - low > 3 else (1, 2, 5)
    ticks = [step * 10.0**power for power in range(low - 1, high + 2) for step in steps]
    below = max(tick for tick in ticks if tick <= min(shown) / 1.02)
    above = min(tick for tick in ticks if tick >= max(shown) * 1.02)
    return [tick for tick in ticks if below <= tick <= above]


def _label(tick: float) -> str:
    """Write a tick as a plain number if that is short."""
    return f"{tick:.10g}" if 1e-4 <= tick < 1e6 else f"{tick:.0e}"


def _rounds(runs: Sequence[ComparedRun]) -> tuple[Axis, Callable[[ComparedRun, Sequence[int]], list[float]]]:
    """Return the axis of all rounds, and a function that places those of a run on it.

    If the runs differ so much in length that short ones could not be seen, rounds are shares of a run's own.
    """
    lengths = [each.run.plan.total_rounds for each in runs]
    if max(lengths) > _VERY_DIFFERENT * min(lengths):
        shares = Axis(title="share of the run’s rounds", ends=(0, 1), percent=True)
        return shares, lambda each, rounds: [round / each.run.plan.total_rounds for round in rounds]
    return Axis(title="round", ends=(0, max(lengths))), lambda _, rounds: list(rounds)


def _spans(scores: RecordedScores) -> list[str]:
    """Return the mean, the lowest and the highest score at each snapshot as texts."""
    rows = ([score(value, scores.measure) for value in values] for values in (scores.mean, scores.low, scores.high))
    return [f"mean {mean}<br>from {low} to {high}" for mean, low, high in zip(*rows, strict=True)]


def _queries(each: ComparedRun, spent: Spending, values: Sequence[float]) -> list[str]:
    return [
        f"round {moment.round}: ε = {write_epsilon(value)} after {moment.queries:,} queries"
        for moment, value in zip(spent.moments, values, strict=True)
    ]


def _epsilon_axis(spent: Sequence[Spending], values: Sequence[float]) -> Axis:
    """Return an axis from zero to some way above all values."""
    deltas = {each.guarantee.delta for each in spent}
    title = f"ε at δ = {deltas.pop():g}" if len(deltas) == 1 else "ε"
    return Axis(title=title, ends=(0, 1.15 * max([*values, 1e-9])))


def _terms(spent: Sequence[Spending], against: Observer | None = None) -> str:
    """Say what the ε of these runs are stated with, or that they cannot be compared; `against` is the observer to name, if any."""
    kept = [each.guarantee for each in spent]
    terms = {(each.delta, each.adjacency, each.accountant) for each in kept}
    if len(terms) > 1:
        return "different δ, adjacency or accountant: not comparable"
    if len({each.observer for each in kept}) > 1:
        return "against different observers: not comparable"
    delta, adjacency, accountant = terms.pop()
    alone = f"; {NOT_A_RELEASE}" if len(kept) == 1 and not kept[0].release else ""
    named = "" if against is None else f", against {against}"
    return f"δ = {delta:g}, {ADJACENCIES[adjacency]}, {accountant}{named}{alone}"


def _of_run(each: ComparedRun, line: PlotLine, remark: str = "") -> PlotLine:
    """Return a line with the name and the look of a run."""
    return replace(line, name=each.name, remark=remark, series=each.series, dash=each.dash)


def _remark(spent: Spending | None) -> str:
    return "" if spent is None or spent.guarantee.release else f" ({NOT_A_RELEASE})"
