"""The command line. Errors are sentences, not tracebacks; exit code 2 means that a command could not do what was asked.

Importing this takes no time, so that `main` handles Ctrl-C before anything else is imported.
"""

import io
import sys

from tacit.io.interrupts import INTERRUPTED, EndingAtOnce
from tacit.lazy import lazily

TYPE_CHECKING = False  # as in `tacit`
if TYPE_CHECKING:
    from tacit.cli.program import COMMANDS, app
else:
    __getattr__, __dir__ = lazily(__name__, {"tacit.cli.program": ("COMMANDS", "app")})

__all__ = ["COMMANDS", "app", "main"]


def main() -> None:
    """Run the command line. Ctrl-C never shows a traceback, not even during imports."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ε shows a question mark
    try:
        with EndingAtOnce():
            from tacit.cli.program import app
        app()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
