"""Ctrl-C while a program is still importing. This imports almost nothing itself, so that it is in force early."""

import os
import signal

INTERRUPTED = 128 + signal.SIGINT
"""The exit code that a shell expects after Ctrl-C."""


class EndingAtOnce:
    """While active, Ctrl-C ends this process at once and prints nothing: for imports, before there is anything to clean up.

    A KeyboardInterrupt would show a traceback, or be lost in a callback of the import system. A handler that is not Python's own
    stays, and so does that of another thread.
    """

    _active = False

    def __enter__(self) -> None:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            try:
                signal.signal(signal.SIGINT, lambda number, frame: os._exit(INTERRUPTED))
                self._active = True
            except ValueError:  # only the main thread may set a handler
                return

    def __exit__(self, *error: object) -> None:
        if self._active:
            signal.signal(signal.SIGINT, signal.default_int_handler)
