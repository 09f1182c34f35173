"""The page's charts of several runs, laid over each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.report.figures.palette import DASHES, SERIES
from tacit.report.html.charts import (
    Chart,
    band,
    budget_lines,
    chart,
    distances,
    log_axis,
    numbers,
    positive,
    rounds_axis,
    score_axis,
    title,
)
from tacit.report.reading import Run, Scores
from tacit.report.spent import Spending
from tacit.report.wording import epsilon as spelled
from tacit.report.wording import number, score

_VERY_DIFFERENT = 3  # times as many rounds
# The page has a key of its own for narrow screens, which then stands in for the legend.
_KEYED: Chart = {"showlegend": True, "meta": {"keyed": True}}


@dataclass(frozen=True, kw_only=True, eq=False)
class Entry:
    """One run of a comparison, with a name that no other has."""

    place: int
    name: str
    label: str
    """The name as plotly may read it: escaped and short."""
    run: Run
    spent: Spending | None

    @property
    def claim(self) -> str:
        """The label for where an ε is shown."""
        return self.label if self.spent is None or self.spent.guarantee.release else f"{self.label} (not a release)"

    @property
    def unknown(self) -> bool:
        """Whether the run has an ε that could not be derived."""
        return self.spent is None and self.run.plan.private

    @property
    def colour(self) -> str:
        """A variable of the page's style sheet."""
        return f"--series-{self.place % len(SERIES) + 1}"

    @property
    def dash(self) -> str:
        """One of `DASHES`, another for a run of the same colour."""
        return DASHES[(self.place // len(SERIES) + self.place) % len(DASHES)]

    @property
    def line(self) -> Chart:
        """How the run's lines look."""
        return {"color": self.colour, "width": 2.5, "dash": self.dash}


def _trace(entry: Entry, **fields: Any) -> Chart:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": entry.label,
        "legendgroup": str(entry.place),
        "line": entry.line,
        **fields,
    }


@dataclass(frozen=True)
class Scale:
    """Where the rounds of each run stand on the common axis: at their numbers, or at their share of all its rounds."""

    longest: int
    by_share: bool

    @staticmethod
    def of(entries: Sequence[Entry]) -> "Scale":
        """Choose shares for runs of so different a length that the short ones would not be seen."""
        lengths = [entry.run.plan.rounds for entry in entries]
        return Scale(max(lengths), max(lengths) > _VERY_DIFFERENT * min(lengths))

    def length(self, run: Run) -> int:
        """Return how many of a run's rounds make one unit of the axis."""
        return run.plan.rounds if self.by_share else 1

    def places(self, run: Run, rounds: Sequence[int]) -> list[float]:
        """Return where these rounds of a run stand."""
        return [round / self.length(run) for round in rounds] if self.by_share else list(rounds)

    @property
    def axis(self) -> Chart:
        """The axis of a chart."""
        if not self.by_share:
            return rounds_axis(self.longest)
        return rounds_axis(1) | {"title": title("share of the run’s rounds"), "tickformat": ".0%"}


def accuracy(entries: Sequence[Entry], measure: str) -> Chart | None:
    """Every run's mean over the rounds, with the band from its worst agent to its best."""
    data: list[Chart] = []
    scale = Scale.of(entries)
    for entry, scores in _scored(entries, measure):
        rounds = list(scores.rounds)
        x = scale.places(entry.run, rounds)
        if entry.run.plan.agents > 1:
            edges = band(x, numbers(scores.low), numbers(scores.high), f"{entry.colour}@0.13", "")
            data += [edge | {"legendgroup": str(entry.place)} for edge in edges]
        hover = [
            f"<b>{entry.label}</b><br>round {r}: mean {score(m, measure)}<br>"
            f"from {score(a, measure)} to {score(b, measure)}"
            for r, m, a, b in zip(rounds, scores.mean, scores.low, scores.high, strict=True)
        ]
        data.append(_trace(entry, x=x, y=numbers(scores.mean), text=hover, hovertemplate="%{text}<extra></extra>"))
    if not data:
        return None
    return chart(data, x=scale.axis, y=score_axis(measure), **_KEYED)


def consensus(entries: Sequence[Entry]) -> Chart | None:
    """How far each run's models are apart."""
    axis = log_axis([value for entry in entries for value in distances(entry.run)])
    if axis is None:
        return None
    data, scale = [], Scale.of(entries)
    for entry in entries:
        apart = distances(entry.run)
        if any(value is not None for value in positive(apart)):
            text = [
                f"<b>{entry.label}</b><br>round {s.round}: {number(s.consensus_distance)}" for s in entry.run.history
            ]
            x = scale.places(entry.run, [s.round for s in entry.run.history])
            data.append(_trace(entry, x=x, y=positive(apart), text=text, hovertemplate="%{text}<extra></extra>"))
    return chart(data, x=scale.axis, y=axis, **_KEYED)


def epsilon(entries: Sequence[Entry]) -> Chart | None:
    """ε of each private run over the rounds, with all budgets there are."""
    data, top, scale = [], 0.0, Scale.of(entries)
    budgets = sorted({entry.spent.budget for entry in entries if entry.spent and entry.spent.budget is not None})
    for entry in entries:
        if entry.spent is not None and entry.spent.snapshots:
            rounds = [look.round for look in entry.spent.snapshots]
            text = [
                f"<b>{entry.claim}</b><br>round {r}: ε = {spelled(e)}"
                for r, e in zip(rounds, entry.spent.epsilons, strict=True)
            ]
            x, y = scale.places(entry.run, rounds), list(entry.spent.epsilons)
            data.append(_trace(entry, name=entry.claim, x=x, y=y, text=text, hovertemplate="%{text}<extra></extra>"))
            top = max([top, *y])
    if not data:
        return None
    axis = {"title": title("ε"), "range": [0, 1.15 * max([top, *budgets, 1e-9])]}
    return chart(data, x=scale.axis, y=axis, **_KEYED, **budget_lines(budgets, "--soft"))


def bought(entries: Sequence[Entry]) -> Chart | None:
    """Accuracy against ε: what each run got for what it spent. Runs without privacy are level lines."""
    data: list[Chart] = []
    scored = _scored(entries, "accuracy")
    private = [(entry, scores) for entry, scores in scored if entry.spent is not None]
    if not private:
        return None
    furthest = max(entry.spent.guarantee.epsilon for entry, _ in private if entry.spent is not None)
    for entry, scores in scored:
        if entry.spent is None:
            end = float(scores.mean[-1])
            data.append(
                _trace(
                    entry,
                    x=[0, furthest],
                    y=numbers([end, end]),
                    line=entry.line | {"width": 1.5},
                    text=[f"<b>{entry.label}</b><br>without privacy: {score(end, 'accuracy')}"] * 2,
                    hovertemplate="%{text}<extra></extra>",
                )
            )
            continue
        mean_of = dict(zip(scores.rounds, scores.mean, strict=True))
        points = [
            (e, mean_of[look.round])
            for look, e in zip(entry.spent.snapshots, entry.spent.epsilons, strict=True)
            if look.round in mean_of
        ]
        text = [f"<b>{entry.claim}</b><br>ε = {spelled(e)}: {score(mean, 'accuracy')}" for e, mean in points]
        data.append(
            _trace(
                entry,
                name=entry.claim,
                mode="lines+markers",
                x=[e for e, _ in points],
                y=numbers([mean for _, mean in points]),
                text=text,
                hovertemplate="%{text}<extra></extra>",
            )
        )
    x = {"title": title("ε spent"), "rangemode": "tozero", "showgrid": False, "ticks": "outside"}
    return chart(data, x=x, y=score_axis("accuracy") | {"title": title("mean accuracy")}, **_KEYED)


def spread(entries: Sequence[Entry], measure: str) -> Chart | None:
    """Every agent's last score as a dot, one row for each run, with the mean as a stroke."""
    data: list[Chart] = []
    scored = _scored(entries, measure)
    for row, (entry, scores) in enumerate(scored):
        final, mean = scores.final, float(scores.mean[-1])
        # A fixed pattern of offsets keeps equal dots apart.
        offsets = 0.3 * (np.arange(len(final)) * 0.618034 % 1 - 0.5)
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": numbers(final),
                "y": (row + offsets).tolist(),
                "marker": {"size": 9 if len(final) <= 60 else 5, "color": f"{entry.colour}@0.55", "line": {"width": 0}},
                "text": [f"<b>{entry.label}</b><br>agent {i}: {score(v, measure)}" for i, v in enumerate(final)],
                "hovertemplate": "%{text}<extra></extra>",
            }
        )
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": numbers([mean, mean]),
                "y": [row - 0.3, row + 0.3],
                "line": {"color": entry.colour, "width": 3},
                "text": [f"<b>{entry.label}</b><br>mean {score(mean, measure)}"] * 2,
                "hovertemplate": "%{text}<extra></extra>",
            }
        )
    if not data:
        return None
    rows = {
        "tickvals": list(range(len(scored))),
        "ticktext": [entry.label for entry, _ in scored],
        "range": [len(scored) - 0.5, -0.5],
        "showgrid": False,
    }
    x = score_axis(measure) | {
        "title": title(measure),
        "rangemode": "normal",
    }
    return chart(data, x=x, y=rows, showlegend=False)


def _scored(entries: Sequence[Entry], measure: str) -> list[tuple[Entry, Scores]]:
    return [
        (entry, entry.run.scores)
        for entry in entries
        if entry.run.scores is not None and entry.run.scores.measure == measure
    ]
