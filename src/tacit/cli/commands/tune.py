"""`tacit tune`: search for settings of a run: free on public records, and at the price of all trials on private ones."""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.terminal.budgets import BudgetAgainst, BudgetOfRuns, make_budget
from tacit.cli.terminal.command import NOT_RECORDED, Json, Options, Plot, RunsFolder, command_of, option
from tacit.cli.terminal.output import check_output, check_picture, console, messages, plain_table, print_json
from tacit.errors import InvalidInput
from tacit.io.files import write_atomically
from tacit.io.stopping import Stopping
from tacit.privacy import Account, Budget, DurableLedger, Event, epsilon
from tacit.privacy.accounting import ceil_digits
from tacit.privacy.guarantees import terms
from tacit.privacy.observers import EVERYBODY
from tacit.runs.budgeted import BudgetedLedger
from tacit.runs.config import RunConfig
from tacit.runs.folder import LEDGER

if TYPE_CHECKING:
    from tacit.tuning import Search, SearchOutcome


@dataclass(frozen=True, kw_only=True)
class Tune(Options):
    """Search for settings that score best on public validation records, and write them to a file for tacit train.

    A parameter is a range, log:LOW..HIGH or LOW..HIGH, or a list of values. With one generation, trials are drawn over all ranges
    and played to the end. With several, the trials are a population: after each generation, the worst quarter continues from the best quarter's
    models with other values. Trials that differ in step sizes, momentum, rho, clip, lot size or noise alone are played side by side, as one.

    On a published data set a search costs nothing. On your own records every trial is a run in the ledger, and the search costs the
    sum of them; it is refused if that does not fit the budget. What repeat-and-select would give is printed for comparison, and never charged
    instead of the sum.

    Ctrl-C ends a search after a round: the best settings so far are written. A search cannot be resumed. An existing file is not overwritten.

    Example: tacit tune settings.toml --parameter lr=log:0.1..10 --parameter clip=log:0.1..4 --population 8 --generations 4
    """

    file: Annotated[Path, typer.Argument(metavar="FILE", help="TOML file with the other settings.")]
    parameter: Annotated[list[str], option("NAME=VALUES", "What to search; may be given several times.")]
    population: Annotated[int, option("N", "Trials.", min=2)] = 8
    generations: Annotated[int, option("N", "Generations of a population; 1 is a plain search.", min=1)] = 1
    name: Annotated[str, option("NAME", "Name of the runs in the ledger, on private records.")] = "tune"
    runs: RunsFolder = Path("runs")
    budget: BudgetOfRuns = None
    budget_against: BudgetAgainst = "all"
    output: Annotated[Path, option("FILE", "Where the best settings are written.")] = Path("tuned.toml")
    workers: Annotated[int, option("N", "Processes for trials that cannot be stacked.", min=1), NOT_RECORDED] = 1
    on: Annotated[str, option("here|ray", "Play the trials in this process, or each on a worker of Ray Tune.")] = "here"
    plot: Plot = None
    json: Json = False

    def run(self) -> None:
        """Search, print all trials and write the best settings."""
        from tacit.tuning import Search, parse_parameter

        config = RunConfig.of(RunConfig.read(self.file), {})
        parameters = tuple(parse_parameter(text) for text in self.parameter)
        search = Search(parameters=parameters, population=self.population, generations=self.generations)
        check_output(self.output)
        check_picture(self.plot)
        if self.output.exists():
            raise InvalidInput(
                f"{self.output} already exists, and is not overwritten: name another file with --output, or move it away"
            )
        if self.on not in ("here", "ray"):
            raise InvalidInput(f"--on is {self.on!r}; give here or ray")
        if config.workers is not None:
            raise InvalidInput("workers of one run do not share the trials of a search; leave workers out of the file")
        allowed = make_budget(self.budget, self.budget_against, config)
        screen, public = messages(), True
        with Stopping(screen.print) as stopping:
            try:
                public = config.load_data().dataset.published
                if public and allowed is not None:
                    raise InvalidInput(
                        f"{config.dataset} is published: a search on it is not in the ledger, so leave --budget out"
                    )
                tuned = self._search(config, search, stopping, allowed, public=public)
            except KeyboardInterrupt:
                spent = "" if public else ". Runs that made queries are in the ledger, charged their whole plan"
                screen.print(f"stopped at once: no settings were written, and a search cannot be resumed{spent}")
                raise typer.Exit(stopping.exit_code) from None
        output = _unused(self.output)
        if tuned.trials:
            # All settings, also those that have their default: a default that depends on others would not be the same again.
            best = RunConfig.of(config.model_dump() | tuned.settings(config))
            write_atomically(output, best.to_toml().encode())
            if self.plot is not None:
                _draw(tuned, search, self.plot)
        _print(tuned, output, config, search, public=public, json=self.json)
        if tuned.stopped:
            raise typer.Exit(stopping.exit_code)

    def _search(
        self, config: RunConfig, search: "Search", stopping: Stopping, allowed: Budget | None, *, public: bool
    ) -> "SearchOutcome":
        from tacit.cli.terminal.progress import show_search
        from tacit.tuning import tune

        screen = messages()

        def say(text: str) -> None:
            if not self.json:
                screen.print(text)

        def begin(accounts: Sequence[Account]) -> None:
            if not public:
                say(_price(accounts, config, search))
            stopping.let_rounds_end()

        if public:
            say(f"{config.dataset} is published: a search on it costs nothing")
        if self.on == "ray":
            from tacit.tuning.on_ray import tune_on_ray

            if not public:
                raise InvalidInput(
                    "--on ray searches on published data sets only, since its workers would not share one ledger; leave it out"
                )
            return tune_on_ray(config, search, say=say)
        with ExitStack() as opened:
            how: dict[str, Any] = {"workers": self.workers, "on_plan": begin}
            if not public:
                self.runs.mkdir(parents=True, exist_ok=True)
                path = self.runs / LEDGER
                ledger = DurableLedger(path) if allowed is None else BudgetedLedger(path, allowed)
                how |= {"ledger": opened.enter_context(closing(ledger)), "name": self.name}
            shown = show_search(screen, shown=not self.json, lines=search.generations == 1)
            how["on_progress"] = opened.enter_context(shown)
            return tune(config, search, say=say, stop=lambda: stopping.asked, **how)


def _price(accounts: Sequence[Account], config: RunConfig, search: "Search") -> str:
    """Say what all trials cost together and, for a plain search, what they could cost by repeat-and-select."""
    from tacit.tuning import repeat_and_select

    if not config.private:
        return f"{len(accounts)} runs without privacy: nothing is guaranteed about these records from now on"
    stated = terms(config.delta, config.adjacency, config.accountant)
    most, largest, discrete = 0.0, dict[Event, None](), False
    for owner in range(len(accounts[0].lines)):
        events = [account.lines[owner].event(account.allowed) for account in accounts]
        value = epsilon(events, delta=config.delta, adjacency=config.adjacency, accountant=config.accountant)
        most, discrete = max(most, value), discrete or any(event.discrete for event in events)
        rates, noises = zip(*(case for event in events for case in event.cases), strict=True)
        count = max(event.count for event in events)
        # This dominates every trial. Where trials differ, the largest ε of any of them may be too small for the best of them.
        largest[Event(sample_rate=max(rates), noise_multiplier=min(noises), count=count)] = None
    words = f"{len(accounts)} runs on private records, which cost ε={ceil_digits(most):g} in all against {EVERYBODY}, at {stated}"
    if search.generations > 1 or config.adjacency != "add_remove" or discrete:
        return words
    words += (
        ". Repeat-and-select needs trials that draw their settings independently, and these are spread over the ranges"
    )
    mean = len(accounts)
    claimed = ceil_digits(max(repeat_and_select(event, mean=mean, delta=config.delta) for event in largest))
    return (
        f"{words}. If their number were random, geometric with mean {mean}, and nobody ever saw it or anything of a trial but the best, "
        f"repeat-and-select would give ε={claimed:g} by RDP; the ledger charges the sum"
    )


def _unused(path: Path) -> Path:
    """Return the path, or one with a number if another search has written it meanwhile."""
    names = (path.with_stem(f"{path.stem}-{number}") for number in count(2))
    return next(name for name in chain([path], names) if not name.exists())


def _print(
    tuned: "SearchOutcome", output: Path, config: RunConfig, search: "Search", *, public: bool, json: bool
) -> None:
    if json:
        trials = [asdict(trial) for trial in tuned.trials]
        settings, file = (tuned.settings(config), str(output)) if trials else (None, None)
        facts = {"trials": trials, "settings": settings, "file": file, "public": public}
        print_json(facts | {"stopped": tuned.stopped, "scored_after_round": tuned.rounds})
        return
    screen = console()
    if tuned.stopped:
        screen.print(_explain_stop(tuned, config, search, public=public))
    if not tuned.trials:
        return
    names = list(tuned.best.values)
    several = len(tuned.best.course) > 1
    headings = [f"{name} by generation" if several else f">{name}" for name in names]
    table = plain_table("trials, best first", ">trial", ">score", *headings)
    for trial in tuned.trials:
        course = trial.course or (trial.values,)
        shown = (" → ".join(f"{each[name]:.{3 if several else 4}g}" for each in course) for name in names)
        table.add_row(str(trial.number), f"{trial.score:.4f}", *shown)
    screen.print(table)
    cost = "nothing: the records are published" if public else f"{len(tuned.accounts)} runs in the ledger"
    screen.print(f"best settings are in {output}. The search cost {cost}. Train with: tacit train {output}")


def _explain_stop(tuned: "SearchOutcome", config: RunConfig, search: "Search", *, public: bool) -> str:
    """Say how far a search came that was stopped, what is kept of it, and that it cannot be resumed."""
    if not tuned.trials:
        words = "stopped before any trial was scored; nothing was written"
    elif tuned.rounds is not None:
        words = f"stopped after round {tuned.rounds:,} of {config.total_rounds:,}; trials are scored as they were then"
    else:
        words = (
            f"stopped with {len(tuned.trials)} of {search.population} trials played to the end; only these are scored"
        )
    charged = "" if public else ". Runs that made queries and did not end are charged their whole plan"
    return f"{words}. A search cannot be resumed{charged}"


def _draw(tuned: "SearchOutcome", search: "Search", path: Path) -> None:
    """Draw scores over the first parameter or, for a population, over generations."""
    import matplotlib.pyplot as plt

    from tacit.report.figures.style import save_figure, style

    with style():
        figure, ax = plt.subplots(figsize=(4.5, 3.0))
        if search.generations > 1:
            for trial in tuned.trials:
                ax.plot(
                    range(1, len(trial.scores) + 1), trial.scores, marker="o", alpha=1.0 if trial is tuned.best else 0.4
                )
            ax.set(xlabel="generation", ylabel="score on validation")
        else:
            first = search.parameters[0]
            ax.scatter([trial.values[first.name] for trial in tuned.trials], [trial.score for trial in tuned.trials])
            ax.set(xlabel=first.name, ylabel="score on validation", xscale="log" if first.log else "linear")
        save_figure(figure, path)


command = command_of(Tune)
