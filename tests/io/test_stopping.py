import os
import signal

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
