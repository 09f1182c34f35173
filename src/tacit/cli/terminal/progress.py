"""What is seen of a run while it is made ready and played: a live picture on a terminal, plain lines elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from tacit.cli.terminal.output import plain_table, round_up
from tacit.privacy.guarantees import per
from tacit.runs import Runner
from tacit.training.results import Snapshot

NO_PRIVACY = "none"


@contextmanager
def starting(screen: Console, shown: bool) -> Iterator[Callable[[str], None]]:
    """Yield what to tell the steps that come before the first round."""
    if not shown:
        yield lambda _: None
    elif screen.is_terminal:
        with screen.status("starting") as status:
            yield lambda step: status.update(f"{step} …")
    else:
        yield lambda step: screen.print(f"{step} …")


@contextmanager
def playing(runner: Runner, screen: Console, shown: bool) -> Iterator[Callable[[Runner], None]]:
    """Yield what to call after every round."""
    if not shown:
        yield lambda _: None
    elif screen.is_terminal:
        with _live(runner, screen) as update:
            yield update
    else:
        yield _lines(runner, screen)


@contextmanager
def _live(runner: Runner, screen: Console) -> Iterator[Callable[[Runner], None]]:
    columns = (TextColumn("rounds"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    progress = Progress(*columns)
    task = progress.add_task("", total=runner.config.rounds, completed=runner.session.round)
    with Live(console=screen, refresh_per_second=4, transient=True) as live:

        def update(now: Runner) -> None:
            progress.update(task, completed=now.session.round)
            live.update(Group(progress, _now(now), *_seen(now)))

        update(runner)
        yield update


def _lines(runner: Runner, screen: Console) -> Callable[[Runner], None]:
    """Return what prints a line for every look that was not there before; a new run's first look is at its start."""
    told = 0 if runner.session.round == 0 else len(runner.session.monitor.histories[0])

    def update(now: Runner) -> None:
        nonlocal told
        history = now.session.monitor.histories[0]
        for look in history[told:]:
            screen.print(_line(now, look), soft_wrap=True)
        told = len(history)

    update(runner)
    return update


def _line(runner: Runner, look: Snapshot) -> str:
    mean, worst, best = _accuracies(look)
    spent, allowed = _spent(runner, look)
    return (
        f"round {look.round}/{runner.config.rounds}: accuracy {mean} mean, {worst} worst, {best} best{_on(look)}; "
        f"distance {look.consensus_distance:.2g}; "
        + (f"{per(runner.protected)} {spent} of {allowed}" if allowed != NO_PRIVACY else f"ε {spent}")
    )


def _now(runner: Runner) -> Group:
    """Return what is so at present, and below it what the last look saw, under the round that it was after."""
    session = runner.session
    rate = session.oracle.queries * sum(session.plan.lot_sizes) / max(session.seconds, 1e-9)
    present = f"{session.network.bytes_sent.sum() / 1e6:.1f} MB sent, {rate:,.0f} {runner.protected}s/s"
    last = session.monitor.histories[0][-1]
    scored = "" if last.sample is None else f", accuracy{_on(last)} validation records"
    table = plain_table(f"after round {last.round}{scored}")
    for column in ("accuracy", "worst", "best", "distance", per(runner.protected), "of"):
        table.add_column(column, justify="right")
    table.add_row(*_accuracies(last), f"{last.consensus_distance:.2g}", *_spent(runner, last))
    return Group(Text(present), table)


def _accuracies(look: Snapshot) -> tuple[str, str, str]:
    if look.accuracy is None:
        return "-", "-", "-"
    return f"{look.accuracy.mean():.1%}", f"{look.accuracy.min():.1%}", f"{look.accuracy.max():.1%}"


def _on(look: Snapshot) -> str:
    """Say on how many records models were scored, where that is a sample."""
    return "" if look.sample is None else f" on a sample of {look.sample:,}"


def _spent(runner: Runner, look: Snapshot) -> tuple[str, str]:
    """Return ε of the queries until a look, and of the whole plan, which a run is charged if it stops on the way."""
    spent, allowed = runner.epsilon_at(look), runner.epsilon(runner.session.plan.queries)
    if spent is None or allowed is None:
        return NO_PRIVACY, NO_PRIVACY
    return round_up(spent), round_up(allowed)


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
