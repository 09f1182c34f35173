"""Ctrl-C and SIGTERM as a wish to stop: at once while nothing has begun, and then between two rounds."""

import signal
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Any, Self

BOTH = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    """Takes these signals for as long as it is entered. The second one stops at once, which loses only the current round.

    say: is told that the first one was heard.
    """

    def __init__(self, say: Callable[[str], None], signals: Sequence[signal.Signals] = BOTH) -> None:
        self._say, self._signals = say, signals
        self._signal: int | None = None
        self._between_rounds = False
        self._before: dict[int, Any] = {}

    @property
    def asked(self) -> bool:
        """Whether one of the signals came."""
        return self._signal is not None

    @property
    def exit_code(self) -> int:
        """What a shell expects of a program that such a signal ended: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + (self._signal or signal.SIGINT)

    def let_rounds_end(self) -> Callable[[], bool]:
        """From now on, let the round end before the run stops; return what tells whether it is to stop."""
        self._between_rounds = True
        return lambda: self.asked

    def __enter__(self) -> Self:
        for number in self._signals:
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
