"""The progress of a run while it is prepared and played: a live view on a terminal, plain lines elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from tacit.cli.terminal.output import plain_table, round_up
from tacit.privacy.guarantees import per
from tacit.privacy.mechanisms import Observer
from tacit.privacy.observers import observers_to_state, short_name
from tacit.runs import Runner
from tacit.training.results import Snapshot

NO_PRIVACY = "none"


@contextmanager
def show_steps(screen: Console, shown: bool) -> Iterator[Callable[[str], None]]:
    """Yield a function to call with each step before the first round."""
    if not shown:
        yield lambda _: None
    elif screen.is_terminal:
        with screen.status("starting") as status:
            yield lambda step: status.update(f"{step} …")
    else:
        yield lambda step: screen.print(f"{step} …")


@contextmanager
def show_rounds(runner: Runner, screen: Console, shown: bool) -> Iterator[Callable[[Runner], None]]:
    """Yield a function to call after every round."""
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
    task = progress.add_task("", total=runner.config.total_rounds, completed=runner.session.round)
    with Live(console=screen, refresh_per_second=4, transient=True) as live:

        def update(now: Runner) -> None:
            progress.update(task, completed=now.session.round)
            live.update(Group(progress, _now(now), *_seen(now)))

        update(runner)
        yield update


def _lines(runner: Runner, screen: Console) -> Callable[[Runner], None]:
    """Return a function that prints a line for every new look; the first look of a new run is at its start."""
    printed = 0 if runner.session.round == 0 else len(runner.session.monitor.histories[0])

    def update(now: Runner) -> None:
        nonlocal printed
        history = now.session.monitor.histories[0]
        for look in history[printed:]:
            screen.print(_line(now, look), soft_wrap=True)
        printed = len(history)

    update(runner)
    return update


def _line(runner: Runner, look: Snapshot) -> str:
    mean, worst, best = _accuracies(look)
    return (
        f"round {look.round}/{runner.config.total_rounds}: accuracy {mean} mean, {worst} worst, {best} best{_on(look)}; "
        f"distance {look.consensus_distance:.2g}; "
        f"{_words_of_epsilon(runner, look)}"
    )


def _words_of_epsilon(runner: Runner, look: Snapshot) -> str:
    """State ε at a look, and that of the whole plan: with masks, against each observer to state."""
    if runner.session.plan.privacy is None:
        return f"ε {NO_PRIVACY}"
    observers = observers_to_state(runner.session.plan.observer)
    each = [(" of ".join(_spent(runner, look, observer)), observer) for observer in observers]
    words = [f"{spent} against {observer}" if len(each) > 1 else spent for spent, observer in each]
    return f"{per(runner.protected)} {', '.join(words)}"


def _now(runner: Runner) -> Group:
    """Return the present state, and below it the last look with its round."""
    session = runner.session
    rate = session.oracle.queries * sum(session.plan.lot_sizes) / max(session.seconds, 1e-9)
    present = f"{session.network.bytes_sent.sum() / 1e6:.1f} MB sent, {rate:,.0f} {runner.protected}s/s"
    last = session.monitor.histories[0][-1]
    scored = "" if last.sample is None else f", accuracy{_on(last)} validation records"
    observers = observers_to_state(session.plan.observer)
    names = [f"ε against {short_name(each)}" for each in observers] if len(observers) > 1 else [per(runner.protected)]
    columns = ("accuracy", "worst", "best", "distance", *(column for name in names for column in (name, "of")))
    table = plain_table(f"after round {last.round}{scored}", *(f">{column}" for column in columns))
    spent = [value for observer in observers for value in _spent(runner, last, observer)]
    table.add_row(*_accuracies(last), f"{last.consensus_distance:.2g}", *spent)
    return Group(Text(present), table)


def _accuracies(look: Snapshot) -> tuple[str, str, str]:
    if look.accuracy is None:
        return "-", "-", "-"
    return f"{look.accuracy.mean():.1%}", f"{look.accuracy.min():.1%}", f"{look.accuracy.max():.1%}"


def _on(look: Snapshot) -> str:
    """Say on how many records models were scored, if on a sample."""
    return "" if look.sample is None else f" on a sample of {look.sample:,}"


def _spent(runner: Runner, look: Snapshot, observer: Observer) -> tuple[str, str]:
    """Return ε of the queries until a look, and ε of the whole plan, which a run is charged if it stops early."""
    spent, allowed = runner.epsilon_at(look, observer), runner.epsilon(runner.session.plan.queries, observer)
    if spent is None or allowed is None:
        return NO_PRIVACY, NO_PRIVACY
    return round_up(spent), round_up(allowed)


def _seen(runner: Runner) -> list[Table]:
    """Return the private diagnostics of the last query, if they were asked for."""
    seen = runner.session.diagnostics
    if not seen:
        return []
    last = seen[-1]
    table = plain_table("private: seen in the last lots", ">records in a lot", ">share clipped", ">loss")
    rows = (last.lot_sizes, last.clipped_share, last.loss)
    table.add_row(*(f"{min(values):.3g} to {max(values):.3g}" for values in rows))
    return [table]
