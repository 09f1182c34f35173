"""The journal of a real site: what is synced survives, whole and in order, whatever becomes of the rest."""

import shutil
import sqlite3
import stat
from hashlib import sha256

import pytest

from tacit.errors import InvalidInput, StorageError
from tacit.peer.protocol.interface import Record, RecordKind, Slot
from tacit.peer.protocol.notes import Notes
from tacit.peer.protocol.sqlite import SQLiteJournal


def seal(round, size=10):
    return Record(RecordKind.SEAL, Slot(round, 0), body=bytes([round]) * size, sha256=bytes(32))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "site" / "journal.sqlite"


def test_records_come_back_in_order(path):
    journal, written = SQLiteJournal(path), [seal(0), Record(RecordKind.VOTED, Slot(0, 0), 3), seal(1)]
    journal.append(*written[:2])
    journal.append(written[2])
    journal.close()
    assert list(SQLiteJournal(path).read()) == written
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_records_that_are_not_synced_come_with_the_next_that_are(path, tmp_path):
    journal = SQLiteJournal(path)
    journal.append(seal(0), sync=False)
    assert read_copy(path, tmp_path / "early") == []
    journal.append(seal(1))
    assert read_copy(path, tmp_path / "late") == [seal(0), seal(1)]


def test_after_a_torn_write_there_is_a_prefix_of_whole_transactions(path, tmp_path):
    """The log is cut off at every so many bytes, as a power cut may leave it, or ends in rubbish."""
    journal = SQLiteJournal(path)
    batches = [[seal(0, 3000)], [seal(1), Record(RecordKind.VOTED, Slot(1, 0), 2)], [seal(2, 9000)]]
    for batch in batches:
        journal.append(*batch)
    prefixes = [[record for batch in batches[:count] for record in batch] for count in range(len(batches) + 1)]
    log = path.with_name(path.name + "-wal").read_bytes()
    found = set()
    for number, cut in enumerate([*range(0, len(log), 1777), len(log)]):
        for rubbish in (b"", bytes(range(256)) * 8):
            records = read_copy(path, tmp_path / f"{number}-{len(rubbish)}", log[:cut] + rubbish)
            assert records in prefixes
            found.add(prefixes.index(records))
    assert found == {0, 1, 2, 3}


def read_copy(path, folder, log=None):
    """Read what a crash at this moment would leave."""
    folder.mkdir()
    copy = folder / path.name
    shutil.copy(path, copy)
    wal = path.with_name(path.name + "-wal")
    copy.with_name(wal.name).write_bytes(wal.read_bytes() if log is None else log)
    journal = SQLiteJournal(copy)
    records = list(journal.read())
    journal.close()
    return records


def test_only_one_process_plays_a_member(path):
    journal = SQLiteJournal(path)
    with pytest.raises(StorageError, match="another process is using the journal"):
        SQLiteJournal(path)
    journal.close()
    SQLiteJournal(path).close()


def test_bodies_that_are_not_needed_are_forgotten_and_hashes_stay(path):
    """Of this member's messages, the last one that each neighbour used stays."""
    notes = Notes(SQLiteJournal(path))
    for round in range(4):
        notes.seal(Slot(round, 0), b"message %d" % round)
        notes.use(Slot(round, 0), 1, b"theirs", bytes(32))
        if round < 2:
            notes.use(Slot(round, 0), 2, b"theirs", bytes(32))
        notes.commit(round + 1, b"state %d" % round, sync=True)
    notes._journal.close()
    again = Notes(SQLiteJournal(path))
    known = [again.at(Slot(round, 0)) for round in range(4)]
    assert [each.sealed.message for each in known] == [b"", b"message 1", b"", b"message 3"]
    assert [each.sealed.sha256 for each in known] == [sha256(b"message %d" % round).digest() for round in range(4)]
    assert [sorted(each.decided) for each in known] == [[1, 2], [1, 2], [1], [1]]
    assert all(verdict.used and not verdict.message for each in known for verdict in each.decided.values())
    assert again.state == b"state 3"
    assert again.position == Slot(4, 0)


def test_an_erased_key_is_not_on_the_disk(path):
    journal = SQLiteJournal(path)
    journal.append(Record(RecordKind.KEY, body=b"a secret that is to go away"))
    journal.erase(RecordKind.KEY)
    files = [each for each in path.parent.iterdir() if each.is_file()]
    assert not any(b"a secret that" in each.read_bytes() for each in files)
    journal.close()


def test_other_files_are_refused(path):
    path.parent.mkdir()
    path.write_bytes(b"no database " * 100)
    with pytest.raises(StorageError, match="not a peer's journal, or is damaged"):
        SQLiteJournal(path)

    path.unlink()
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE things (name TEXT)")
    other.close()
    with pytest.raises(InvalidInput, match="a database, but not a peer's journal"):
        SQLiteJournal(path)


def test_a_message_that_is_computed_differently_is_refused(path):
    notes = Notes(SQLiteJournal(path))
    notes.seal(Slot(0, 0), b"one")
    assert notes.seal(Slot(0, 0), b"one").message == b"one"
    with pytest.raises(StorageError, match="computed again and differs"):
        notes.seal(Slot(0, 0), b"two")
