"""The progress of a run, a search or a count of pieces: a live view on a terminal, plain lines elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from tacit.cli.terminal.output import plain_table, round_up
from tacit.privacy.guarantees import per
from tacit.privacy.observers import Observer, observers_to_state, short_name
from tacit.report.wording import amount, span
from tacit.runs import Runner
from tacit.training.results import Snapshot
from tacit.tuning.search import SearchProgress

NO_PRIVACY = "none"
_LINES = 20  # of a search, at most
_ROUNDING = 1e-5  # distances of models that are equal

Update = Callable[[int, str, str], None]
"""Takes how many are done, what to write beside the bar, and the line to print without a bar; an empty one is not printed."""


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


@contextmanager
def show_search(screen: Console, *, shown: bool, lines: bool) -> Iterator[Callable[[SearchProgress], None]]:
    """Yield a function to call after every round of a search. Where there is no terminal, `lines` asks for one at every twentieth of the rounds."""
    if not shown or not (screen.is_terminal or lines):
        yield lambda _: None
    elif screen.is_terminal:
        columns = (TextColumn("rounds"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        with Progress(*columns, console=screen, transient=True) as progress:
            task = progress.add_task("", visible=False)  # until it is known how many rounds there are
            yield lambda now: progress.update(task, total=now.total, completed=now.done, visible=True)
    else:
        yield _search_lines(screen)


@contextmanager
def count_progress(screen: Console, what: str, total: int, *, shown: bool) -> Iterator[Update]:
    """Yield a function to call whenever more is done."""
    if not shown:
        yield lambda done, beside, line: None
    elif screen.is_terminal:
        columns = (TextColumn(what), BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, TextColumn("{task.fields[beside]}"), console=screen, transient=True) as progress:
            task = progress.add_task("", total=total, beside="")
            yield lambda done, beside, line: progress.update(task, completed=done, beside=beside)
    else:
        yield lambda done, beside, line: screen.print(line) if line else None


def _search_lines(screen: Console) -> Callable[[SearchProgress], None]:
    printed = 0

    def update(now: SearchProgress) -> None:
        nonlocal printed
        reached = _LINES * now.done // now.total
        if reached > printed:
            screen.print(f"round {now.done:,} of {now.total:,}{'' if now.stacks == 1 else ' of all stacks'}")
        printed = reached

    return update


def _lines(runner: Runner, screen: Console) -> Callable[[Runner], None]:
    """Return a function that prints a line for every new snapshot; the first one of a new run is at its start."""
    printed = 0 if runner.session.round == 0 else len(runner.session.monitor.histories[0])

    def update(now: Runner) -> None:
        nonlocal printed
        history = now.session.monitor.histories[0]
        for snapshot in history[printed:]:
            screen.print(_line(now, snapshot, screen.width))
        printed = len(history)

    update(runner)
    return update


def _line(runner: Runner, snapshot: Snapshot, width: int) -> str:
    """Return a snapshot in words, on one line if that is not too wide, else with further lines that begin with spaces."""
    words = [
        *_words_of_scores(snapshot),
        f"distance {_distance(snapshot)}",
        *_words_of_labels(snapshot),
        *_words_of_epsilon(runner, snapshot),
    ]
    words[0] = f"round {snapshot.round:,}/{runner.config.total_rounds:,}: {words[0]}"
    lines = [words[0]]
    for each in words[1:]:
        if len(lines[-1]) + len(each) + 3 > width:
            lines[-1] += ";"
            lines.append(f"  {each}")
        else:
            lines[-1] += f"; {each}"
    return "\n".join(lines)


def _words_of_scores(snapshot: Snapshot) -> list[str]:
    """Say how good models are, if they were scored."""
    measure, found = _scores(snapshot)
    if not measure:
        return []
    mean, worst, best = found
    return [f"{measure} {mean} mean, {worst} worst, {best} best{_on(snapshot)}"]


def _words_of_labels(snapshot: Snapshot) -> list[str]:
    """Say how many public records teachers have labelled, if they were asked."""
    if snapshot.labels is None:
        return []
    given = span(snapshot.labels.tolist(), "{:,.0f}".format)
    return [f"{given} labels by each agent's teachers"]


def _words_of_epsilon(runner: Runner, snapshot: Snapshot) -> list[str]:
    """State ε at a snapshot, and that of the whole plan: with masks, against each observer to state."""
    if runner.session.plan.privacy is None:
        return [f"ε {NO_PRIVACY}"]
    observers = observers_to_state(runner.session.plan.observer)
    each = [(" of ".join(_spent(runner, snapshot, observer)), observer) for observer in observers]
    name = per(runner.protected)
    return [f"{name} {spent} against {observer}" if len(each) > 1 else f"{name} {spent}" for spent, observer in each]


def _now(runner: Runner) -> Group:
    """Return the present state, and below it the last snapshot with its round."""
    session = runner.session
    last = session.monitor.histories[0][-1]
    counted = last.round == session.round or not runner.team.sent_elsewhere
    present = f"{'' if counted else 'about '}{amount(runner.bytes_sent)} sent"
    if session.plan.ballot is None:
        rate = session.oracle.queries * sum(session.plan.lot_sizes) / max(session.seconds, 1e-9)
        present += f", {rate:,.0f} {runner.protected}s/s"
    present = ", ".join([present, *_words_of_labels(last)])
    observers = observers_to_state(session.plan.observer)
    names = [f"ε against {short_name(each)}" for each in observers] if len(observers) > 1 else [per(runner.protected)]
    measure, found = _scores(last)
    judged = (measure, "worst", "best") if measure else ()
    scored = "" if last.sample is None else f", {measure}{_on(last)} validation records"
    columns = (*judged, "distance", *(column for name in names for column in (name, "of")))
    spent = [value for observer in observers for value in _spent(runner, last, observer)]
    row = (*found, _distance(last), *spent)
    table = plain_table(f"after round {last.round}{scored}", *(f">{column}" for column in columns), rows=[row])
    return Group(Text(present), table)


def _scores(snapshot: Snapshot) -> tuple[str, tuple[str, ...]]:
    """Return what models are scored by, with the mean, worst and best of the agents; nothing where there are no validation records."""
    if (found := snapshot.accuracy) is not None:
        return "accuracy", (f"{found.mean():.1%}", f"{found.min():.1%}", f"{found.max():.1%}")
    if (found := snapshot.loss) is not None:
        return "loss", (f"{found.mean():.4g}", f"{found.max():.4g}", f"{found.min():.4g}")
    return "", ()


def _distance(snapshot: Snapshot) -> str:
    """Write how far models are apart; at a common start, only rounding errors are left."""
    apart = snapshot.consensus_distance
    return "0" if snapshot.round == 0 and apart < _ROUNDING else f"{apart:.2g}"


def _on(snapshot: Snapshot) -> str:
    """Say on how many records models were scored, if on a sample."""
    return "" if snapshot.sample is None else f" on a sample of {snapshot.sample:,}"


def _spent(runner: Runner, snapshot: Snapshot, observer: Observer) -> tuple[str, str]:
    """Return ε of the queries until a snapshot, and ε of the whole plan, which a run is charged if it stops early."""
    spent, allowed = runner.epsilon_at(snapshot, observer), runner.epsilon(runner.session.plan.queries, observer)
    if spent is None or allowed is None:
        return NO_PRIVACY, NO_PRIVACY
    return round_up(spent), round_up(allowed)


def _seen(runner: Runner) -> list[Table]:
    """Return the private diagnostics of the last query, if they were asked for."""
    seen = runner.session.diagnostics
    if not seen:
        return []
    last, columns = seen[-1], (">records in a lot", ">share clipped", ">loss")
    row = [f"{min(v):.3g} to {max(v):.3g}" for v in (last.lot_sizes, last.clipped_share, last.loss)]
    return [plain_table("private: seen in the last lots", *columns, rows=[row])]
