"""One rank of a run: `torchrun --nproc-per-node 2 -m tacit.cluster FILE --name NAME`."""

import sys

from tacit.io.interrupts import INTERRUPTED, EndingAtOnce


def main() -> None:
    """Run a rank. Ctrl-C never shows a traceback, not even during imports."""
    try:
        with EndingAtOnce():
            from tacit.cli.rank import main as play
        play()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
