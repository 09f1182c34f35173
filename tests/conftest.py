import functools
import gc
import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest
import typer.testing
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))  # for `import reference`
from false_alarms import COLLECTED, judges_chance

# grpc reads this when it is imported, by whatever test comes first; see tacit/peer/wire/__init__.py.
os.environ["GRPC_SSL_CIPHER_SUITES"] = "ECDHE-RSA-AES128-GCM-SHA256"
# What `tacit list` remembers goes to a folder of these tests, and not to the user's cache.
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="tacit-tests-")
# Where a shell runs the tests in its background, they are started to ignore Ctrl-C; tests and the processes they start hear it all the same.
signal.signal(signal.SIGINT, signal.default_int_handler)
# A program is put together once per process, and not for each command that is run in it: with all its options that takes most of the time.
typer.testing._get_command = functools.cache(typer.testing._get_command)


def pytest_collection_finish():
    """Leave what was imported, millions of objects that stay, out of every later search for garbage."""
    gc.collect()
    gc.freeze()


# Examples follow from the test's code alone, on every machine; how long one takes decides nothing.
# `pytest --hypothesis-profile default FILE` looks for others.
settings.register_profile("fixed", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fixed")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Keep all cases, before `-m` leaves some out."""
    config.stash[COLLECTED] = list(items)


class _Undeclared:
    def token_bytes(self, count):
        pytest.fail(
            "a test that judges secret randomness says by @pytest.mark.chance how often it fails a sound system"
        )


@pytest.fixture(autouse=True)
def chance_is_declared(request):
    if not request.node.get_closest_marker("chance") and judges_chance(request.function):
        patch = request.getfixturevalue("monkeypatch")
        patch.setattr("tacit.privacy.randomness.secrets", _Undeclared())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Let numbers from torch's global generator not depend on the tests that were played before in this process."""
    import torch  # here, since the process that only counts what others play does without

    torch.manual_seed(0)
