import functools
import gc
import os
import signal
import sys
import tempfile
from pathlib import Path

import typer.testing

sys.path.insert(0, str(Path(__file__).parent))  # for `import reference`
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
