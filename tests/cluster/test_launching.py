"""What the launcher of ranks on this machine does with signals that reach it."""

import os
import signal
import sys
import threading

from tacit.cluster.launching import launch


def test_a_launcher_that_is_told_to_stop_while_ranks_import_does_not_start_them_again(tmp_path, monkeypatch):
    """Before a rank has handlers of its own, SIGTERM kills it, which is not a failure of that rank."""
    importing = tmp_path / "importing"
    importing.write_text("#!/bin/sh\nexec sleep 60\n")
    importing.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(importing))
    said, ended = [], threading.Event()

    def ask_to_stop():
        while not ended.wait(0.2):
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, lambda number, frame: None)  # for signals before the launcher has its own
    asking = threading.Thread(target=ask_to_stop)
    asking.start()
    try:
        code = launch([], 2, finished=lambda: False, say=said.append)
    finally:
        ended.set()
        asking.join()
        signal.signal(signal.SIGTERM, before)
    assert code == 128 + signal.SIGTERM
    assert said == ["rank 0 was killed by SIGTERM while the run was being stopped"]
