"""`tacit train` and `tacit resume`: show the plan, then the run as it goes, and end with what came of it.

The options of `train` are the fields of `RunConfig`, one for one. Ctrl-C stops at a round boundary and saves; a second
one stops at once, which loses nothing but the round.
"""

import inspect
import shlex
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Optional, get_type_hints

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from tacit.cli.output import console, plain_table, print_json, round_up, working
from tacit.config import RunConfig
from tacit.errors import StorageError
from tacit.runs import RunFolder, Runner
from tacit.runs.folder import fresh_name

INTERRUPTED = 130


def _train(file: Path | None, name: str | None, runs: Path, json: bool, quiet: bool, **options: Any) -> None:
    settings = {} if file is None else RunConfig.read(file)
    given = {key: value for key, value in options.items() if value is not None}
    config = RunConfig.of(settings | given)
    with working("loading data and calibrating noise"):
        runner = Runner.start(runs, name or fresh_name(runs, config), config)
    _play(runner, json=json, quiet=quiet)


_EXAMPLE = """Train agents that never show each other their data, in a folder that survives anything.

Settings come from a TOML file, from options, or from both; options win.

Example: tacit train --algorithm dsgt --dataset digits --graph ring --epsilon 4 --delta 1e-3 --lot-size 48 --rounds 100 --lr 4 --lr-final 0.4
"""


def make_train() -> Callable[..., None]:
    """Return the command with an option for every field of `RunConfig`."""

    def train(**options: Any) -> None:
        _train(**options)

    keyword = inspect.Parameter.KEYWORD_ONLY
    hints = get_type_hints(RunConfig)
    own: dict[str, tuple[Any, Any]] = {
        "file": (Annotated[Optional[Path], typer.Argument(help="TOML file with settings.")], None),  # noqa: UP045
        "name": (Annotated[Optional[str], typer.Option(help="Name of the run; made up unless given.")], None),  # noqa: UP045
        "runs": (Annotated[Path, typer.Option(help="Folder of all runs, with their ledger.")], Path("runs")),
        "json": (Annotated[bool, typer.Option("--json", help="Print the summary as JSON, and nothing else.")], False),
        "quiet": (Annotated[bool, typer.Option("--quiet", "-q", help="Show no plan and no progress.")], False),
    }
    for key, field in RunConfig.model_fields.items():
        default = "" if field.default is None else f" [dim]\\[{field.default}][/]"
        text = field.description or ""
        option = typer.Option(help=f"{text[:1].upper()}{text[1:]}.{default}", show_default=False)
        own[key] = (Annotated[Optional[hints[key]], option], None)  # noqa: UP045
    train.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(key, keyword, default=value, annotation=kind) for key, (kind, value) in own.items()]
    )
    train.__annotations__ = {key: kind for key, (kind, _) in own.items()}
    train.__doc__ = _EXAMPLE
    return train


def resume(
    run: Annotated[Path, typer.Argument(help="The run's folder, such as runs/dsgt-digits-1.")],
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON, and nothing else.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no plan and no progress.")] = False,
) -> None:
    """Go on with a run that was stopped or killed; no round is asked twice.

    Example: tacit resume runs/dsgt-digits-1
    """
    with working("loading data and what is on record"):
        runner = Runner.resume(run)
    _play(runner, json=json, quiet=quiet)


def _play(runner: Runner, *, json: bool, quiet: bool) -> None:
    shown, folder = not (json or quiet), runner.folder
    screen = Console(stderr=True, markup=False, highlight=False)
    go_on = f"Go on with: tacit resume {shlex.quote(str(folder.path))}"
    try:
        with runner, _interruptible(screen) as stopped:
            if shown:
                console().print(plan_table(runner))
            with _display(runner, screen, shown) as update:
                result = runner.play(stop=stopped, on_round=update)
    except StorageError as error:
        raise StorageError(f"{error}. What is on disk stays good. {go_on}") from error
    except KeyboardInterrupt:
        screen.print(f"stopped at once, in round {runner.session.round + 1} of {runner.config.rounds}. {go_on}")
        raise typer.Exit(INTERRUPTED) from None
    if result is None:
        screen.print(f"stopped after round {runner.session.round} of {runner.config.rounds}, and saved. {go_on}")
        raise typer.Exit(INTERRUPTED)
    summary = folder.summary() or {}
    if json:
        print_json(summary | {"run": str(folder.path)})
    else:
        print_summary(folder, summary)


def plan_table(runner: Runner) -> Table:
    """Return what the run will ask and say, before it does."""
    session = runner.session
    plan, cost = session.plan, session.cost
    width = session.model.size
    bytes_each = cost.vectors_sent / session.training.rounds * width * (8 if session.model.dtype.itemsize == 8 else 4)
    degrees = session.network.degree.flatten().tolist()
    table = plain_table(f"plan of {runner.folder.name}")
    table.add_column("what")
    table.add_column("value", overflow="fold")
    table.add_row("algorithm", f"{runner.config.algorithm}, {session.training.rounds} rounds")
    table.add_row("model", f"{runner.config.model}, {width:,} parameters")
    table.add_row("queries of each agent", f"{cost.queries:,} and {session.training.spare_queries} spare")
    if plan.privacy is not None:
        table.add_row("noise multiplier σ", _span(plan.noise_multipliers))
        table.add_row("sampling rate q", _span(plan.sample_rates))
        promised = max(plan.epsilons([plan.queries])[0])
        terms = f"δ={plan.privacy.delta:g}, {plan.privacy.adjacency}, {plan.privacy.accountant}"
        table.add_row("ε after all of them", f"{round_up(promised)} at {terms}")
        table.add_row("release", "yes" if session.training.is_release else "no: lots and noise can be repeated or seen")
    else:
        table.add_row("privacy", "none: nothing is promised")
    table.add_row("sent by an agent a round", _bytes(bytes_each * max(degrees, default=0)) + " at most")
    table.add_row("memory, about", _bytes(_memory(runner)))
    return table


def print_summary(folder: RunFolder, summary: dict[str, Any]) -> None:
    """Print what came of a run."""
    table = plain_table(f"{folder.name}: {summary['rounds']} rounds in {summary['seconds']:.1f} s")
    for column in ("mean", "worst", "best", "consensus distance", "MB sent", "ε, largest"):
        table.add_column(column, justify="right")
    spent = summary["epsilon_per_agent"]
    accuracies = [summary[f"accuracy_{which}"] for which in ("mean", "min", "max")]
    table.add_row(
        *("-" if value is None else f"{value:.1%}" for value in accuracies),
        f"{summary['consensus_distance']:.3g}",
        f"{summary['bytes_sent'] / 1e6:.1f}",
        round_up(max(spent)) if spent else "∞",
    )
    screen = console()
    screen.print(table)
    if spent:
        kind = "a release" if summary["release"] else "not a release"
        screen.print(f"δ={summary['delta']:g}, {summary['adjacency']}, {summary['accountant']}; {kind}")
    screen.print(f"in {folder.path}")


@contextmanager
def _display(runner: Runner, screen: Console, shown: bool) -> Iterator[Callable[[Runner], None]]:
    """Yield what to call after every round; on a terminal it keeps a live picture of the run."""
    if not (shown and screen.is_terminal):
        yield lambda _: None
        return
    columns = (TextColumn("rounds"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    progress = Progress(*columns)
    task = progress.add_task("", total=runner.config.rounds, completed=runner.session.round)
    with Live(console=screen, refresh_per_second=4, transient=True) as live:

        def update(now: Runner) -> None:
            progress.update(task, completed=now.session.round)
            live.update(Group(progress, _now(now), *_seen(now)))

        update(runner)
        yield update


def _now(runner: Runner) -> Table:
    session = runner.session
    last = session.watch.histories[0][-1]
    table = plain_table()
    for column in ("accuracy", "worst", "best", "apart", "ε spent", "of", "MB sent", "samples/s"):
        table.add_column(column, justify="right")
    scored = ["-"] * 3
    if last.accuracy is not None:
        scored = [f"{value:.1%}" for value in (last.accuracy.mean(), last.accuracy.min(), last.accuracy.max())]
    plan, spent = session.plan, ["∞", "∞"]
    if plan.privacy is not None:
        spent = [round_up(plan.largest_epsilon(queries)) for queries in (last.queries, plan.queries)]
    rate = session.oracle.queries * sum(session.plan.lot_sizes) / max(session.seconds, 1e-9)
    sent = f"{last.bytes_sent.sum() / 1e6:.1f}"
    table.add_row(*scored, f"{last.consensus_distance:.2g}", *spent, sent, f"{rate:,.0f}")
    return table


def _seen(runner: Runner) -> list[Table]:
    """Return what the last query saw of the private data, where that was asked for."""
    seen = runner.session.diagnostics
    if not seen:
        return []
    last = seen[-1]
    table = plain_table("private: seen in the last lots")
    for column in ("records in a lot", "share clipped", "loss"):
        table.add_column(column, justify="right")
    rows = (last.lot_sizes, last.clipped_share, last.loss)
    table.add_row(*(f"{min(values):.3g} to {max(values):.3g}" for values in rows))
    return [table]


@contextmanager
def _interruptible(screen: Console) -> Iterator[Callable[[], bool]]:
    """Yield what tells whether Ctrl-C was pressed; the second time it stops at once."""
    pressed = False

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True
        screen.print("stopping after this round; press Ctrl-C again to stop at once")

    before = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)


def _span(values: tuple[float, ...]) -> str:
    low, high = min(values), max(values)
    return f"{low:.5g}" if low == high else f"{low:.5g} to {high:.5g}"


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.3g} {unit}"
        count /= 1000
    return ""


def _memory(runner: Runner) -> float:
    """Return about how much memory the run takes: records, states, a float64 sum and one piece of per-sample values."""
    session = runner.session
    records = session.training.data.data.train
    stacked = session.state.theta.numel()
    return float(records.inputs.nbytes + stacked * (6 * 4 + 2 * 8) + 2 * 256 * 2**20)
