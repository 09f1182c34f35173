"""What the launcher of ranks on this machine does with signals that reach it."""

import os
import signal
import sys
import threading

import pytest

from tacit.cluster.launching import launch


@pytest.fixture
def launched(tmp_path, monkeypatch):
    """Launch two ranks that import for ever, and tell this process to stop; return the exit code, what was said, and who hears Ctrl-C meanwhile."""
    importing = tmp_path / "importing"
    importing.write_text("#!/bin/sh\nexec sleep 600\n")
    importing.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(importing))
    said, ended, hears = [], threading.Event(), set()

    def ask_to_stop():
        while not ended.wait(0.2):
            os.kill(os.getpid(), signal.SIGTERM)
            hears.add(signal.getsignal(signal.SIGINT))

    def launch_and_stop():
        before = signal.signal(
            signal.SIGTERM, lambda number, frame: None
        )  # for signals before the launcher has its own
        asking = threading.Thread(target=ask_to_stop)
        asking.start()
        try:
            return launch([], 2, finished=lambda: False, say=said.append), said, hears
        finally:
            ended.set()
            asking.join()
            signal.signal(signal.SIGTERM, before)

    return launch_and_stop


def test_a_launcher_that_is_told_to_stop_while_ranks_import_does_not_start_them_again(launched):
    """Before a rank has handlers of its own, SIGTERM kills it, which is not a failure of that rank."""
    code, said, hears = launched()
    assert code == 128 + signal.SIGTERM
    assert said == ["rank 0 was killed by SIGTERM while the run was being stopped"]
    assert hears - {signal.default_int_handler}, "it passes Ctrl-C on"


def test_a_launcher_in_the_background_of_a_shell_ignores_ctrl_c(launched):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code, _, hears = launched()
    finally:
        signal.signal(signal.SIGINT, before)
    assert (code, hears) == (128 + signal.SIGTERM, {signal.SIG_IGN})
