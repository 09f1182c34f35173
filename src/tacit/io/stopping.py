"""Ctrl-C and SIGTERM as requests to stop: at once before training starts, and then between two rounds.

A signal that a process was started to ignore stays ignored, as is usual on Unix: a shell without job control starts `tacit train … &` so, and
Ctrl-C is then meant for what runs in the foreground. SIGTERM stops such a run.
"""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

from tacit.io.interrupts import INTERRUPTED

BOTH = (signal.SIGINT, signal.SIGTERM)


def heard(signals: Sequence[signal.Signals] = BOTH) -> list[signal.Signals]:
    """Return which of these signals this process was not started to ignore."""
    return [number for number in signals if signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def signals_delayed() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait until the end of this, as while a process is started that has to be known to be ended."""
    if threading.current_thread() is not threading.main_thread():  # signals do not reach it
        yield
        return
    arrived: list[int] = []
    before = {number: signal.signal(number, lambda number, frame: arrived.append(number)) for number in heard()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for late in arrived:
            signal.raise_signal(late)


class Stopping:
    """Handles these signals while active. The second one stops at once, which loses only the current round.

    say: called with a message when the first one arrives.
    """

    def __init__(self, say: Callable[[str], None], signals: Sequence[signal.Signals] = BOTH) -> None:
        self._say, self._signals = say, signals
        self._signal: int | None = None
        self._between_rounds = False
        self._before: dict[int, Any] = {}

    @property
    def asked(self) -> bool:
        """Whether a signal has arrived."""
        return self._signal is not None

    @property
    def exit_code(self) -> int:
        """The exit code that a shell expects after such a signal: 130 for Ctrl-C, 143 for SIGTERM."""
        return INTERRUPTED if self._signal is None else 128 + self._signal

    def let_rounds_end(self) -> Callable[[], bool]:
        """From now on, let the round finish before the run stops; return a function that says whether to stop."""
        self._between_rounds = True
        return lambda: self.asked

    def __enter__(self) -> Self:
        # Signals reach only the main thread. Ray calls its workers in another one, and ends them itself.
        for number in heard(self._signals) if threading.current_thread() is threading.main_thread() else ():
            self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number: int, frame: FrameType | None) -> None:
        again, self._signal = self.asked, self._signal or number
        if again or not self._between_rounds:
            raise KeyboardInterrupt
        self._say("stopping after this round; press Ctrl-C again to stop at once")
