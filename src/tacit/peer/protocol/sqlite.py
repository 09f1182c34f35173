"""The journal of a real site: one SQLite file in WAL mode with full synchronisation, held by one process."""

import os
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from tacit.errors import InvalidInput, StorageError
from tacit.io.files import sync_folder
from tacit.peer.protocol.interface import Record, RecordKind, Slot

_APPLICATION = 0x7AC19
_VERSION = 2
_SCHEMA = f"""
CREATE TABLE records (
  place INTEGER PRIMARY KEY, kind INTEGER NOT NULL, round INTEGER NOT NULL, exchange INTEGER NOT NULL, neighbor INTEGER NOT NULL,
  number INTEGER NOT NULL, sha256 BLOB NOT NULL
) STRICT;
CREATE TABLE bodies (
  place INTEGER PRIMARY KEY, kind INTEGER NOT NULL, round INTEGER NOT NULL, exchange INTEGER NOT NULL, body BLOB NOT NULL
) STRICT;
CREATE INDEX slots ON records (round, exchange);
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_VERSION};
"""
_INSERT = "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)"
_INSERT_BODY = "INSERT INTO bodies VALUES (?, ?, ?, ?, ?)"
_READ = (
    "SELECT records.kind, records.round, records.exchange, neighbor, number, COALESCE(body, x''), sha256 "
    "FROM records LEFT JOIN bodies USING (place) ORDER BY place"
)
_FIND = "SELECT kind, round, exchange, neighbor, number, x'', sha256 FROM records WHERE round = ? AND exchange = ? ORDER BY place"
_FORGET = "DELETE FROM bodies WHERE kind = ? AND round < ?"
_SEALED = "SELECT place, round, exchange FROM bodies WHERE kind = ? AND round < ?"
_CHECKPOINT_PAGES = 2**13
"""32 MiB: large messages of several rounds take each other's place in the log, and few of them are copied from there to the database."""
_FORGETTABLE = (RecordKind.ANSWER, RecordKind.USED, RecordKind.COMMIT)


class SQLiteJournal:
    """Records in a file that only its owner can read. It stays locked until it is closed: two processes must not play one member.

    Bodies have a table of their own, from which they are deleted: new ones take their pages. What stays of a record is small.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._waiting: list[Record] = []
        self._forgotten: tuple[int, Collection[Slot]] | None = None
        with self._reported():
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            sync_folder(path.parent)
            self._database = sqlite3.connect(path, isolation_level=None, timeout=1)
            self._open()

    def append(self, *records: Record, sync: bool = True) -> None:
        """Add records; without `sync` they wait for the next ones that are synced."""
        self._waiting += records
        if not sync:
            return
        with self._reported():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                if self._forgotten is not None:
                    self._empty(*self._forgotten)
                written = list(enumerate(self._emptied(), self._places + 1))
                self._database.executemany(_INSERT, [_row(*each) for each in written])
                self._database.executemany(_INSERT_BODY, [_body(*each) for each in written if each[1].body])
                self._database.execute("COMMIT")
            except BaseException:
                self._database.execute("ROLLBACK")
                raise
        self._places += len(written)
        self._waiting, self._forgotten = [], None

    def read(self) -> Iterator[Record]:
        """Return all records, oldest first."""
        with self._reported():
            yield from map(_record, self._database.execute(_READ))

    def find(self, slot: Slot) -> list[Record]:
        """Return all records of a slot, oldest first, without bodies where they are on the disk: they can be large."""
        with self._reported():
            found = self._database.execute(_FIND, slot)
            return [*map(_record, found), *(record for record in self._waiting if record.slot == slot)]

    def forget(self, before: int, keep: Collection[Slot]) -> None:
        """Drop bodies together with the next records that are synced."""
        self._forgotten = before, keep

    def close(self) -> None:
        """Write what is waiting and close the file."""
        if self._waiting:
            self.append()
        self._database.close()

    def _emptied(self) -> list[Record]:
        """Return what waits, without bodies that the state among it makes superfluous: they need not be written at all."""
        if self._forgotten is None:
            return self._waiting
        before, keep = self._forgotten
        return [
            record._replace(body=b"")
            if record.slot.round < before
            and (record.kind in _FORGETTABLE or (record.kind == RecordKind.SEAL and record.slot not in keep))
            else record
            for record in self._waiting
        ]

    def _empty(self, before: int, keep: Collection[Slot]) -> None:
        for kind in _FORGETTABLE:
            self._database.execute(_FORGET, (kind, before))
        sealed = self._database.execute(_SEALED, (RecordKind.SEAL, before)).fetchall()
        past = [(place,) for place, *slot in sealed if Slot(*slot) not in keep]
        self._database.executemany("DELETE FROM bodies WHERE place = ?", past)

    def _open(self) -> None:
        database = self._database
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("PRAGMA secure_delete = FAST")
        database.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        found = database.execute("PRAGMA application_id").fetchone()[0]
        if found != _APPLICATION:
            if database.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
                raise InvalidInput(f"{self.path} is a database, but not a peer's journal")
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("BEGIN EXCLUSIVE")
            for statement in _SCHEMA.split(";\n"):
                database.execute(statement)
            database.execute("COMMIT")
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if version != _VERSION:
            raise InvalidInput(
                f"{self.path} is a journal of version {version}, but this program reads version {_VERSION}"
            )
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("BEGIN IMMEDIATE")  # takes the lock, which is then kept
        database.execute("COMMIT")
        self._places: int = database.execute("SELECT COALESCE(MAX(place), 0) FROM records").fetchone()[0]

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise StorageError(
                    f"another process is using the journal {self.path}; only one process may play a member"
                ) from error
            raise StorageError(f"the journal {self.path} cannot be used: {error}; nothing was sent") from error
        except sqlite3.DatabaseError as error:
            raise StorageError(
                f"{self.path} is not a peer's journal, or is damaged: {error}; it was left as it is"
            ) from error
        except OSError as error:
            if isinstance(error, StorageError):
                raise
            raise StorageError(f"the journal {self.path} cannot be created: {error.strerror}") from error


def _row(place: int, record: Record) -> tuple[int, int, int, int, int, int, bytes]:
    return (place, record.kind, *record.slot, record.neighbor, record.number, record.sha256)


def _body(place: int, record: Record) -> tuple[int, int, int, int, bytes]:
    return (place, record.kind, *record.slot, record.body)


def _record(row: tuple[int, int, int, int, int, bytes, bytes]) -> Record:
    kind, round, exchange, neighbor, number, body, digest = row
    return Record(RecordKind(kind), Slot(round, exchange), neighbor, number, body, digest)
