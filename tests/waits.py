"""Waiting for a condition, with a limit that only a test that hangs will meet: a machine may be busy with other tests."""

import time

LIMIT = 600.0


def wait_until(condition, what="what was waited for"):
    """Return what a condition returns once that is true; fail if it is not within ten minutes."""
    until = time.monotonic() + LIMIT
    while not (found := condition()):
        assert time.monotonic() < until, f"{what} did not happen within {LIMIT:g} s"
        time.sleep(0.005)
    return found
