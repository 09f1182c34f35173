import os
import signal
import subprocess
import sys

import pytest

from tacit.io.stopping import signals_delayed


def test_a_signal_waits_until_what_is_done_is_known():
    done = []

    def start():
        with signals_delayed():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("a process was started")
        done.append("not reached")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert done == ["a process was started"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_is_not_lost_and_handlers_are_restored():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ZeroDivisionError), signals_delayed():
        _ = 1 / 0
    assert signal.getsignal(signal.SIGTERM) is before


IN_THE_BACKGROUND = """
import os, signal
from tacit.io.stopping import Stopping, signals_delayed

with Stopping(print) as stopping:
    stop = stopping.let_rounds_end()
    with signals_delayed():
        os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)
    print(stop())
    os.kill(os.getpid(), signal.SIGTERM)
    print(stop(), stopping.exit_code)
assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
"""


def test_a_process_that_was_started_to_ignore_ctrl_c_does_so_and_hears_sigterm():
    shell = ["sh", "-c", """trap '' INT; exec "$0" -c "$1" """, sys.executable, IN_THE_BACKGROUND]
    done = subprocess.run(shell, capture_output=True, text=True)
    words = "stopping after this round; press Ctrl-C again to stop at once"
    assert (done.stdout, done.stderr) == (f"False\n{words}\nTrue 143\n", "")
