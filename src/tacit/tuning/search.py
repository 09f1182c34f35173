"""Plain search and population-based training (Jaderberg et al., 2017), scored on public validation records.

Trials that differ in numbers of the rule or of its mechanism alone are stacked and played at once. On private records every trial is a run in the ledger, all of them
opened before the first query, so a search that does not fit its budget is refused before it has asked anything. On published records a
search costs nothing, and its ledger is thrown away.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tacit.errors import InvalidInput
from tacit.io.processes import spread
from tacit.privacy import Account, Ledger
from tacit.runs.config import RunConfig
from tacit.ties import in_order
from tacit.tuning.space import Parameter, draw_values
from tacit.tuning.stack import OF_MECHANISMS, STACKED, Stack, make_stack, stacked_names

Say = Callable[[str], None]


class SearchProgress(NamedTuple):
    """How many of the rounds of all stacks are played, and which stack is being played, counted from 1."""

    done: int
    total: int
    stack: int = 1
    stacks: int = 1


OnProgress = Callable[[SearchProgress], None]
_QUARTER = 4  # one in four trials of a population is replaced after each generation


@dataclass(frozen=True, kw_only=True)
class Search:
    """What is searched and how: `population` trials in one generation, or in several, after each of which the worst quarter continues from the best."""

    parameters: tuple[Parameter, ...]
    population: int = 8
    generations: int = 1

    def __post_init__(self) -> None:
        names = [parameter.name for parameter in self.parameters]
        if not names or len(set(names)) < len(names):
            raise InvalidInput(f"give each parameter once, and at least one; got {', '.join(names) or 'none'}")
        if self.population < 2 or self.generations < 1:
            raise InvalidInput(
                f"population is {self.population} and generations {self.generations}; they must be at least 2 and 1"
            )
        if self.generations > 1 and (others := [name for name in names if name not in STACKED]):
            raise InvalidInput(
                f"a population changes its trials while they are played, which is possible for {', '.join(STACKED)}, not for "
                f"{', '.join(others)}; leave these out, or search with --generations 1"
            )

    def check(self, config: RunConfig, *, charged: bool) -> None:
        """Refuse a population that would change what cannot change while such runs are played; `charged` says whether a ledger holds them."""
        if self.generations == 1:
            return
        names = [parameter.name for parameter in self.parameters]
        if charged and (kept := [name for name in names if name in OF_MECHANISMS]):
            raise InvalidInput(
                f"on private records the ledger holds lots, clipping norms and noise before the first query, so a population cannot change "
                f"{', '.join(kept)}; leave it out, or search with --generations 1"
            )
        if others := [name for name in names if name not in stacked_names(config)]:
            raise InvalidInput(
                f"a population changes {', '.join(others)} only where noise is local and has no bands; leave it out, or search with "
                "--generations 1"
            )


@dataclass(frozen=True, kw_only=True)
class TrialOutcome:
    """One trial: its values, in the last generation if there are several, its score, and how both came about."""

    number: int
    values: dict[str, float]
    score: float
    course: tuple[dict[str, float], ...] = ()
    """The values in each generation, of the trial and of those it took over."""
    scores: tuple[float, ...] = ()
    """The score after each generation."""


@dataclass(frozen=True, kw_only=True)
class SearchOutcome:
    """The outcome of a search, best trial first. `accounts` are those of its runs, if they were charged."""

    trials: tuple[TrialOutcome, ...]
    accounts: tuple[Account, ...] = field(default=(), repr=False)
    stopped: bool = False
    """Whether the search was stopped before its end: `trials` are then those that were scored by then, maybe none."""
    rounds: int | None = None
    """After how many rounds trials were scored, if they were stopped before their last."""

    @property
    def best(self) -> TrialOutcome:
        """The trial with the best score."""
        return self.trials[0]

    def settings(self, config: RunConfig) -> dict[str, float]:
        """Return the settings of the best trial, of a search from `config`.

        Of a population they are those of the last generation. But `lr` begins where it began, and ends where it ended unless `lr_final` says
        otherwise.
        """
        found, course = dict(self.best.values), self.best.course
        if len(course) > 1 and "lr" in found:
            if config.lr_final is None:
                found.setdefault("lr_final", found["lr"])
            found["lr"] = course[0]["lr"]
        return found


def tune(
    config: RunConfig,
    search: Search,
    *,
    ledger: Ledger | None = None,
    name: str = "tune",
    workers: int = 1,
    say: Say = lambda _: None,
    on_plan: Callable[[Sequence[Account]], None] = lambda _: None,
    on_progress: OnProgress = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> SearchOutcome:
    """Search, and return all trials. `ledger` is charged for every trial; without one, only published records are searched on.

    `on_plan` is called with all accounts before the first query, and `on_progress` after every round that is played in this process.
    `workers` processes share the trials of a plain search on public records that cannot be stacked. Once `stop()` is true the search ends
    after a round, with trials that were played to the end or, if there is none, with those that were being played, as they are.
    """
    check_scored(config, charged=ledger is not None)
    search.check(config, charged=ledger is not None)
    drawn = draw_values(search.parameters, search.population, config.seed)
    configs = [RunConfig.of(config.model_dump() | values) for values in drawn]
    groups = [] if search.generations > 1 else _groups(drawn, stacked_names(config))
    apart = ledger is None and len(groups) > 1
    if workers > 1 and not apart:
        say(
            "one process plays all trials: workers share stacks of a plain search on published records, but here "
            + ("records are private" if ledger is not None else "all trials are in one stack")
        )
    if search.generations > 1:
        return _train_population(configs, drawn, search, ledger, name, say, on_plan, on_progress, stop)
    if workers > 1 and apart:
        jobs = [[(number, configs[number]) for number in group] for group in groups]
        on_plan([])
        found = []
        with closing(spread(partial(_play_apart), jobs, workers)) as parts:
            for _, scores in parts:
                found += scores
                say(f"{len(found)} of {len(drawn)} trials are played")
                if stop():
                    break
        played = [TrialOutcome(number=number, values=drawn[number], score=score) for number, score in found]
        return replace(rank(played), stopped=len(played) < len(drawn))
    outcomes: list[TrialOutcome] = []
    rounds = None
    with _opened(configs, groups, ledger, name, config.total_rounds) as stacks:
        accounts = [account for stack in stacks for account in stack.session.accounts]
        on_plan(accounts)
        before, total = 0, sum(stack.session.training.total_rounds for stack in stacks)
        for place, stack in enumerate(stacks, 1):
            count = len(stack.numbers)
            say(f"stack {place} of {len(stacks)}: {'one trial' if count == 1 else f'{count} trials side by side'}")
            report = partial(_report, on_progress, SearchProgress(before, total, place, len(stacks)))
            stack.play(stop=stop, on_round=report)
            before += stack.session.training.total_rounds
            if not stack.session.finished:
                if outcomes or not stack.session.round:
                    break  # those that were played to the end are not compared with others
                rounds = stack.session.round
            outcomes += [
                TrialOutcome(number=number, values=drawn[number], score=score)
                for number, score in zip(stack.numbers, stack.scores(), strict=True)
            ]
            if rounds is not None:
                break
    stopped = rounds is not None or len(outcomes) < len(drawn)
    return replace(rank(outcomes, accounts if ledger is not None else []), stopped=stopped, rounds=rounds)


def _report(on_progress: OnProgress, start: SearchProgress, round: int) -> None:
    """Report a round of a stack that began at `start`."""
    on_progress(start._replace(done=start.done + round))


def check_scored(config: RunConfig, *, charged: bool) -> None:
    """Refuse records that a search cannot be scored on, and private ones that no ledger is charged for."""
    data = config.load_data().dataset
    if data.validation is None:
        raise InvalidInput(f"{config.dataset} has no validation records to score trials on")
    if not (charged or data.published):
        raise InvalidInput(
            f"{config.dataset} is not published, so every trial of a search is a run that costs; give the ledger that is charged for it"
        )


def rank(outcomes: Sequence[TrialOutcome], accounts: Sequence[Account] = ()) -> SearchOutcome:
    """Return the outcome with its trials in order: the best first, and of equal ones the lowest number."""
    trials = sorted(outcomes, key=lambda trial: trial.number)
    order = in_order([trial.score for trial in trials], descending=True)
    return SearchOutcome(trials=tuple(trials[place] for place in order), accounts=tuple(accounts))


def _groups(drawn: Sequence[dict[str, float]], stacked: Collection[str]) -> list[list[int]]:
    """Return the numbers of trials that differ only in what may differ in a stack, group by group."""
    found: dict[tuple[Any, ...], list[int]] = {}
    for number, values in enumerate(drawn):
        apart = tuple(sorted((name, value) for name, value in values.items() if name not in stacked))
        found.setdefault(apart, []).append(number)
    return list(found.values())


@contextmanager
def _opened(
    configs: Sequence[RunConfig], groups: Sequence[Sequence[int]], ledger: Ledger | None, name: str, every: int
) -> Iterator[list[Stack]]:
    """Open all stacks before any is played; close those that were opened if one is refused, or if a search is stopped."""
    stacks: list[Stack] = []
    try:
        for place, group in enumerate(groups):
            own = name if len(groups) == 1 else f"{name}-{place}"
            chosen = [configs[number] for number in group]
            stacks.append(make_stack(chosen, group, name=own, ledger=ledger, every=every))
        yield stacks
    finally:
        for stack in stacks:
            stack.session.close()


def _play_apart(job: Sequence[tuple[int, RunConfig]]) -> list[tuple[int, float]]:
    """Play one group of trials on public records in this process."""
    numbers, configs = [number for number, _ in job], [config for _, config in job]
    stack = make_stack(configs, numbers, name="tune", ledger=None, every=configs[0].total_rounds)
    with stack.session:
        stack.play()
        return list(zip(numbers, stack.scores(), strict=True))


def _train_population(
    configs: Sequence[RunConfig],
    drawn: Sequence[dict[str, float]],
    search: Search,
    ledger: Ledger | None,
    name: str,
    say: Say,
    on_plan: Callable[[Sequence[Account]], None],
    on_progress: OnProgress,
    stop: Callable[[], bool],
) -> SearchOutcome:
    """Play all trials at once; after each generation, the worst quarter continues from the best quarter's states with changed values."""
    base, chance = configs[0], np.random.default_rng([configs[0].seed, 1])
    length = -(-base.rounds // search.generations)
    values = [dict(each) for each in drawn]
    courses, seen = [[dict(each)] for each in drawn], [list[float]() for _ in drawn]
    with _opened(configs, [range(len(configs))], ledger, name, length) as (stack,):
        on_plan(stack.session.accounts)
        report = partial(_report, on_progress, SearchProgress(0, base.total_rounds))
        while True:
            until = stack.session.round + length
            last = until >= base.rounds
            stack.play(None if last else until, stop, report)
            last, stopped = last or stop(), not stack.session.finished and stop()
            scores = stack.scores()
            for history, score in zip(seen, scores, strict=True):
                history.append(score)
            say(
                f"round {stack.session.round} of {base.total_rounds}: best score {max(scores):.4g}, worst {min(scores):.4g}"
            )
            if last:
                break
            pairs = _succession(scores)
            stack.copy_trials(pairs)
            for source, target in pairs:
                courses[target] = list(courses[source])
                values[target] = {
                    each.name: each.near(values[source][each.name], bool(chance.integers(2)))
                    for each in search.parameters
                }
            for course, own in zip(courses, values, strict=True):
                course.append(dict(own))
            stack.change([RunConfig.of(base.model_dump() | own) for own in values])
        accounts, rounds = stack.session.accounts, stack.session.round
    if stopped and not rounds:
        return SearchOutcome(trials=(), accounts=tuple(accounts) if ledger is not None else (), stopped=True)
    found = rank(
        [
            TrialOutcome(
                number=number,
                values=values[number],
                score=scores[number],
                course=tuple(courses[number]),
                scores=tuple(seen[number]),
            )
            for number in range(len(configs))
        ],
        accounts if ledger is not None else [],
    )
    return replace(found, stopped=stopped, rounds=rounds if stopped else None)


def _succession(scores: Sequence[float]) -> list[tuple[int, int]]:
    """Return which trials of the best quarter are continued by which of the worst."""
    order = in_order(scores, descending=True)
    quarter = max(1, len(order) // _QUARTER)
    return list(zip(order[:quarter], order[-quarter:], strict=True))
