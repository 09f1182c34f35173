import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for `import reference`
# What `tacit list` remembers goes to a folder of these tests, and not to the user's cache.
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="tacit-tests-")
