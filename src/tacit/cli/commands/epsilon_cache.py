"""Values of ε that `tacit list` derived before: an accountant takes seconds to load.

The key of a value is everything that it follows from: mechanisms and queries as the ledger has them, δ, adjacency, accountant
and the code that derives it. So what changes in a ledger is derived again. The file is in the user's cache and not part of a
run, so it is never passed on with one.
"""

import hashlib
import json
import math
import os
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from tacit.errors import StorageError
from tacit.io import chains
from tacit.io.files import write_atomically
from tacit.privacy import Account, accounting
from tacit.privacy.accounting import Accountant, Adjacency
from tacit.privacy.accounts import lines_to_json
from tacit.privacy.observers import EVERYBODY, Observer

_MOST = 10_000  # values; the oldest are dropped


class EpsilonCache:
    """Derives ε of accounts, or remembers it. `save` keeps new values."""

    def __init__(self) -> None:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        self._path = Path(home) / "tacit" / "epsilon.json"
        self._values, self._new = _read(self._path), False
        self._code = _code()

    def epsilon(
        self,
        account: Account,
        *,
        delta: float,
        adjacency: Adjacency,
        accountant: Accountant,
        observer: Observer = EVERYBODY,
    ) -> float:
        """Return the highest ε of any owner against an observer, for what an account is charged."""
        mechanisms = sorted({chains.canonical(line.mechanism.to_json()) for line in account.lines})
        # Against everybody else, masks do not matter.
        masks = None if observer == EVERYBODY else lines_to_json(account.lines)["masks"]
        terms = [account.charged, delta, adjacency, accountant, observer.key, masks]
        facts = json.dumps([self._code, mechanisms, *terms])
        key = hashlib.sha256(facts.encode()).hexdigest()
        if key not in self._values:
            _, value = account.largest_epsilon(
                delta=delta, adjacency=adjacency, accountant=accountant, observer=observer
            )
            if not math.isfinite(value):
                return value
            self._values[key], self._new = value, True
        return self._values[key]

    def save(self) -> None:
        """Keep new values; if the file cannot be written, they are derived again the next time."""
        if self._new:
            kept = dict(list(self._values.items())[-_MOST:])
            with suppress(OSError, StorageError):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(self._path, json.dumps(kept).encode())


def _read(path: Path) -> dict[str, float]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {key: value for key, value in content.items() if isinstance(value, float) and 0 <= value < math.inf}


def _code() -> str:
    """Return a hash of all of `tacit.privacy`, which derives ε, so that no module that takes part is forgotten."""
    parts = [path.read_bytes() for path in sorted(Path(accounting.__file__).parent.rglob("*.py"))]
    return hashlib.sha256(b"\0".join([*parts, version("dp-accounting").encode()])).hexdigest()
