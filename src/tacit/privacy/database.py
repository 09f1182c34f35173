"""The SQLite file under a ledger: how it is made and opened, and its errors in words."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tacit.errors import PrivacyError, StorageError

_APPLICATION = 0x7AC17
_VERSION = 7
# `account` is that of a query's row, so that queries are counted without reading them; the row's text says the same.
_SCHEMA = f"""
CREATE TABLE log (
  number INTEGER PRIMARY KEY, account INTEGER, text TEXT NOT NULL, hash TEXT NOT NULL
) STRICT;
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_VERSION};
"""


def connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    """Open a ledger's file, and make it first unless it is only to be read."""
    with reported(path):
        if read_only:
            return _open_to_read(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(path, isolation_level=None, timeout=60)
        database.execute("PRAGMA synchronous = FULL")
        if database.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION:
            database.execute("BEGIN IMMEDIATE")
            if database.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
                database.close()
                raise PrivacyError(f"{path} is a database, but not a ledger of Tacit")
            for statement in _SCHEMA.split(";\n"):
                database.execute(statement)
            database.execute("COMMIT")
        _check_version(database, path)
        database.execute("PRAGMA journal_mode = WAL")
        return database


def _open_to_read(path: Path) -> sqlite3.Connection:
    """Open an existing file. In a read-only folder, a file without a journal beside it is read as it is."""
    journal = path.with_name(path.name + "-wal")
    frozen = not os.access(path.parent, os.W_OK) and not journal.exists()
    address = f"{path.resolve().as_uri()}?mode=ro{'&immutable=1' if frozen else ''}"
    database = sqlite3.connect(address, uri=True, isolation_level=None, timeout=60)
    if database.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION:
        database.close()
        raise PrivacyError(f"{path} is not a ledger of Tacit")
    _check_version(database, path)
    return database


def _check_version(database: sqlite3.Connection, path: Path) -> None:
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if version != _VERSION:
        database.close()
        raise PrivacyError(
            f"{path} is a ledger of version {version}, but this program reads version {_VERSION}. Keep it: what it "
            "records still counts. Use it with the version of Tacit that wrote it"
        )


@contextmanager
def reported(path: Path) -> Iterator[None]:
    """Turn errors of SQLite into an error for the person who sees it."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise StorageError(
            f"the ledger {path} cannot be used: {error}; what it could not record was not released"
        ) from error
    except sqlite3.DatabaseError as error:
        raise StorageError(f"{path} is not a ledger, or is damaged: {error}; it was left as it is") from error
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"the ledger {path} cannot be made: {error.strerror}") from error
