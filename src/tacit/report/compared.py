"""The runs of a comparison: a name, a colour and a kind of line for each, and one axis for the rounds of all."""

import html
from collections.abc import Sequence
from dataclasses import dataclass

from tacit.errors import InvalidInput
from tacit.privacy.guarantees import format_epsilon
from tacit.privacy.mechanisms import EVERYBODY
from tacit.report.figures.palette import DASHES, SERIES
from tacit.report.recorded import Measure, RecordedRun, Scores
from tacit.report.spending import Spending, derive_spending

_LONGEST = 28  # letters of a label
_VERY_DIFFERENT = 3  # times as many rounds


@dataclass(frozen=True, kw_only=True, eq=False)
class ComparedRun:
    """One run of a comparison, with a name that no other has."""

    place: int
    name: str
    run: RecordedRun
    spent: Spending | None

    @property
    def label(self) -> str:
        """The name for plotly, which reads tags: escaped, and short."""
        return html.escape(self.name if len(self.name) <= _LONGEST else f"{self.name[: _LONGEST - 1]}…")

    @property
    def claim(self) -> str:
        """The label to show with an ε."""
        return self.label if self.spent is None or self.spent.guarantee.release else f"{self.label} (not a release)"

    @property
    def unknown(self) -> bool:
        """Whether the run is private and its ε could not be derived."""
        return self.spent is None and self.run.plan.private

    @property
    def series(self) -> int:
        """Which of the colours `SERIES` it has."""
        return self.place % len(SERIES)

    @property
    def colour(self) -> str:
        """Its colour as a variable of the page's style sheet."""
        return f"--series-{self.series + 1}"

    @property
    def dash(self) -> str:
        """One of `DASHES`; runs of the same colour have different ones."""
        return DASHES[(self.place // len(SERIES) + self.place) % len(DASHES)]


@dataclass(frozen=True)
class RoundsScale:
    """Where the rounds of each run are on the common axis: at their numbers, or at their share of all its rounds."""

    longest: int
    by_share: bool

    @staticmethod
    def of(runs: Sequence[ComparedRun]) -> "RoundsScale":
        """Choose shares if the runs differ so much in length that the short ones could not be seen."""
        lengths = [each.run.plan.total_rounds for each in runs]
        return RoundsScale(max(lengths), max(lengths) > _VERY_DIFFERENT * min(lengths))

    def place(self, run: RecordedRun, rounds: Sequence[int]) -> list[float]:
        """Return where these rounds of a run are."""
        return [round / run.plan.total_rounds for round in rounds] if self.by_share else list(rounds)


def name_runs(runs: Sequence[RecordedRun]) -> list[ComparedRun]:
    """Give every run a name that no other has, and derive what it spent."""
    if not runs:
        raise InvalidInput("there is no run to compare; name one or more run folders")
    names: list[str] = []
    for run in runs:
        count = 1
        while (name := run.name if count == 1 else f"{run.name} ({count})") in names:
            count += 1
        names.append(name)
    return [
        ComparedRun(place=place, name=name, run=run, spent=derive_spending(run))
        for place, (name, run) in enumerate(zip(names, runs, strict=True))
    ]


def describe_observers(runs: Sequence[ComparedRun]) -> str:
    """Say so if the runs promise ε against different observers, with what each promises; empty if all promise it against the same."""
    kept = [(each, each.spent) for each in runs if each.spent is not None]
    if len({spent.guarantee.observer for _, spent in kept}) < 2:
        return ""
    each = "; ".join(
        f"{run.name}: {format_epsilon(spent.guarantee.epsilon)} against {spent.guarantee.observer}"
        + (f", {format_epsilon(spent.everybody.epsilon)} against {EVERYBODY}" if spent.masked else "")
        for run, spent in kept
    )
    return f"These runs promise ε against different observers, so that one ε is not comparable with another: {each}."


def choose_measure(runs: Sequence[ComparedRun]) -> Measure:
    """Return what the runs are compared by: accuracy, if any of them has it."""
    return "accuracy" if any(each.run.scores and each.run.scores.measure == "accuracy" for each in runs) else "loss"


def scores_by(runs: Sequence[ComparedRun], measure: Measure) -> list[tuple[ComparedRun, Scores]]:
    """Return the runs that have scores of this measure, with these."""
    return [(each, each.run.scores) for each in runs if each.run.scores and each.run.scores.measure == measure]
