"""What was derived before, so that a list of runs need not derive it again: an accountant takes seconds to load.

The key of a value is all that it follows from: mechanisms and queries as the ledger has them, δ, adjacency, accountant and the
code that derives it. So a ledger that changes is derived anew. The file is in the user's cache and no part of a run, so that
it does not travel with one; only `tacit list` reads it.
"""

import hashlib
import json
import math
import os
from importlib.metadata import version
from pathlib import Path

from tacit.errors import StorageError
from tacit.io import chains
from tacit.io.files import write_atomically
from tacit.privacy import Account, accounting
from tacit.privacy.accounting import Accountant, Adjacency

_MOST = 10_000  # values, after which the file starts anew


class Memo:
    """Derives ε of accounts, or remembers it. `save` keeps what was new."""

    def __init__(self) -> None:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        self._path = Path(home) / "tacit" / "epsilon.json"
        self._values, self._new = _read(self._path), False
        self._code = _code()

    def epsilon(self, account: Account, *, delta: float, adjacency: Adjacency, accountant: Accountant) -> float:
        """Return the highest ε of any owner, of what an account is charged."""
        mechanisms = sorted({chains.canonical(line.mechanism.to_json()) for line in account.lines})
        told = json.dumps([self._code, mechanisms, account.charged, delta, adjacency, accountant])
        key = hashlib.sha256(told.encode()).hexdigest()
        if key not in self._values:
            _, value = account.largest_epsilon(delta=delta, adjacency=adjacency, accountant=accountant)
            if not math.isfinite(value):
                return value
            self._values[key], self._new = value, True
        return self._values[key]

    def save(self) -> None:
        """Keep what was derived; where nothing can be written, it is derived again the next time."""
        if self._new:
            kept = dict(list(self._values.items())[-_MOST:])
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(self._path, json.dumps(kept).encode())
            except (OSError, StorageError):
                return


def _read(path: Path) -> dict[str, float]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {key: value for key, value in content.items() if isinstance(value, float) and 0 <= value < math.inf}


def _code() -> str:
    """Tell the code that derives ε from any other."""
    folder = Path(accounting.__file__).parent
    parts = [
        (folder / name).read_bytes()
        for name in ("accounting.py", "event.py", "losses.py", "accounts.py", "mechanisms.py")
    ]
    return hashlib.sha256(b"\0".join([*parts, version("dp-accounting").encode()])).hexdigest()
