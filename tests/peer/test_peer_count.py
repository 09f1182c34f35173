"""The count from outside finds nothing in an honest run, and every fault that is put into its disks."""

import shutil
import sqlite3
from contextlib import closing

import pytest
from test_service import Consortium, play_all

from benchmarks.peer_count import FAULTS, count_releases
from tacit.peer.protocol.interface import RecordKind
from tacit.peer.recording import JOURNAL

USED, SKIPPED, HELD = int(RecordKind.USED), int(RecordKind.SKIPPED), int(RecordKind.HELD)


@pytest.fixture(scope="module")
def consortium(tmp_path_factory):
    made = Consortium(tmp_path_factory.mktemp("count"), 2, pairs=[(0, 1)], rounds=2)
    assert play_all(made) == ["finished"] * 2
    return made


def count(consortium, folder):
    found = count_releases(consortium.agreement, {each.name: folder / each.name for each in consortium.identities})
    return {fault: found[fault] for fault in FAULTS}, found["sites"]


def test_an_honest_run_has_no_fault(consortium):
    faults, sites = count(consortium, consortium.folder)
    assert faults == dict.fromkeys(FAULTS, 0)
    assert [(site["released_rounds"], site["charged"], site["links_used"]) for site in sites] == [(2, 2, 2)] * 2


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (f"UPDATE records SET kind = {SKIPPED} WHERE kind = {USED} AND round = 1", "disagreements"),
        (f"UPDATE records SET sha256 = zeroblob(32) WHERE kind = {USED} AND round = 0", "disagreements"),
        (
            f"INSERT INTO records (kind, round, exchange, neighbor, number, sha256) "
            f"VALUES ({HELD}, 1, 0, 1, -1, zeroblob(32))",
            "two_messages",
        ),
        (
            f"INSERT INTO records (kind, round, exchange, neighbor, number, sha256) "
            f"VALUES ({HELD}, 2, 0, 1, -1, zeroblob(32))",
            "uncounted",
        ),
    ],
)
def test_a_fault_on_a_disk_is_found(consortium, tmp_path, change, fault):
    shutil.copytree(consortium.folder, tmp_path, dirs_exist_ok=True)
    with closing(sqlite3.connect(tmp_path / "north" / "runs" / consortium.agreement.run_name / JOURNAL)) as database:
        database.execute(change)
        database.commit()
    assert count(consortium, tmp_path)[0][fault] == 1


def test_a_damaged_store_is_found(consortium, tmp_path):
    shutil.copytree(consortium.folder, tmp_path, dirs_exist_ok=True)
    with closing(sqlite3.connect(tmp_path / "north" / "runs" / consortium.agreement.run_name / JOURNAL)) as database:
        database.execute("PRAGMA writable_schema = ON")
        database.execute("UPDATE sqlite_schema SET rootpage = 2 WHERE name = 'bodies'")
        database.commit()
    events = tmp_path / "south" / "runs" / consortium.agreement.run_name / "events.jsonl"
    events.write_text(events.read_text().replace('"round": 1', '"round": 2', 1))
    assert count(consortium, tmp_path)[0]["damaged_stores"] == 2
