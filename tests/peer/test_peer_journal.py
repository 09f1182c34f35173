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
from tacit.peer.site_keys import erase_key


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


def test_bodies_that_a_state_replaces_before_they_are_synced_are_never_written(path):
    """A voter writes what its deciders sent only if a message of its own follows before the state does."""
    notes = Notes(SQLiteJournal(path))
    for round in range(2):
        notes.seal(Slot(round, 0), b"message %d" % round)
        notes.vote(Slot(round, 0), 0)
        notes.sync()
        notes.follow(Slot(round, 0), 0, b"from the decider", bytes(32))
        notes.commit(round + 1, b"state %d" % round, sync=False)
    notes._journal.append()
    assert b"from the decider" not in b"".join(each.read_bytes() for each in path.parent.iterdir())
    notes._journal.close()
    again = Notes(SQLiteJournal(path))
    assert [again.at(Slot(round, 0)).used(0) for round in range(2)] == [True, True]
    assert again.at(Slot(1, 0)).sealed.message == b"message 1"
    assert (again.state, again.position) == (b"state 1", Slot(2, 0))


def test_what_a_decider_sent_is_on_the_disk_before_the_next_message_of_its_voter(path, tmp_path):
    notes = Notes(SQLiteJournal(path))
    notes.seal(Slot(0, 0), b"first")
    notes.vote(Slot(0, 0), 0)
    notes.follow(Slot(0, 0), 0, b"from the decider", bytes(32))
    notes.sync()
    assert [record.kind for record in read_copy(path, tmp_path / "open")] == [RecordKind.SEAL, RecordKind.VOTED]
    notes.seal(Slot(0, 1), b"second")
    notes.vote(Slot(0, 1), 0)
    notes.sync()
    written = read_copy(path, tmp_path / "next")
    assert [record.kind for record in written[2:]] == [RecordKind.USED, RecordKind.SEAL, RecordKind.VOTED]
    assert written[2].body == b"from the decider"


def test_a_round_that_is_past_leaves_little_on_the_disk(path):
    """Bodies of 40 KB are replaced; what stays of a round with two links is a few rows, less than 1 KB."""
    notes, sizes = Notes(SQLiteJournal(path)), []
    for round in range(600):
        slot = Slot(round, 0)
        notes.seal(slot, b"%05d" % round * 8000)
        notes.vote(slot, 0)
        notes.use(slot, 2, bytes(40_000), bytes(32))
        notes.sync()
        notes.follow(slot, 0, bytes(40_000), bytes(32))
        notes.commit(round + 1, bytes(40_000), sync=True)
        if round in (199, 599):
            notes._journal._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            sizes.append(path.stat().st_size)
    assert sizes[1] - sizes[0] < 400 * 1000


@pytest.mark.parametrize("size", [10, 900, 1500, 5000, 40_000])
def test_an_erased_key_is_not_on_the_disk(path, size):
    """Rounds in between move the key to other pages, and what it leaves behind there is gone too."""
    secret, notes = b"a secret that is to go away", Notes(SQLiteJournal(path))
    notes.keep_key(secret)
    for round in range(30):
        notes.seal(Slot(round, 0), b"%05d" % round * (size // 5))
        notes.use(Slot(round, 0), 2, bytes(size), bytes(32))
        notes.sync()
        notes.commit(round + 1, bytes(size), sync=False)
    notes._journal.close()
    assert secret in path.read_bytes()
    erase_key(path)
    assert not any(secret in each.read_bytes() for each in path.parent.iterdir() if each.is_file())
    again = Notes(SQLiteJournal(path))
    assert set(again.key) == {0}
    assert (again.state, again.position) == (bytes(size), Slot(30, 0))


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
