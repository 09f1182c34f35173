"""What a site does when it is started again: after its run has ended, with an older ledger, or after it was killed between two writes."""

import asyncio
import re
import shutil
from contextlib import closing

import pytest
from tampering import read_events, write_events
from typer.testing import CliRunner

from tacit.cli import app
from tacit.errors import StorageError
from tacit.peer import service
from tacit.peer.protocol.interface import Kind, RecordKind
from tacit.peer.protocol.sqlite import SQLiteJournal
from tacit.peer.reading import find_finished
from tacit.peer.recording import JOURNAL
from tacit.privacy import DurableLedger
from tests.peer.sites import Consortium, play, play_all, stop_at


def test_a_finished_run_says_so_at_once_and_waits_for_nobody(tmp_path):
    consortium = Consortium(tmp_path, 2, graph="complete", rounds=1)
    assert play_all(consortium) == ["finished"] * 2
    for site in ("north", "south"):
        assert find_finished(tmp_path / site).waiting == ()
        said = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["peer", "run", "--site", str(tmp_path / site)])
        assert said.exit_code == 0
        assert (
            f"{tmp_path / site / 'runs' / consortium.agreement.run_name}: finished. See models.safetensors"
            in said.stdout
        )
        assert "\n1 of 1 exchanges over links were used\n" in said.stdout
        assert said.stderr == ""
        status = (
            CliRunner(env={"COLUMNS": "200"}).invoke(app, ["peer", "status", "--site", str(tmp_path / site)]).stdout
        )
        assert re.search(
            r"ε spent +[\d.]+ per record at δ=1e-05, add-or-remove-one, pld, against everybody else", status
        )


def test_a_finished_site_serves_a_neighbour_that_still_needs_its_last_message(tmp_path, monkeypatch):
    """South does not get the last decision of north, which finishes without it; both are stopped and started again."""
    consortium = Consortium(tmp_path, 2, graph="complete", rounds=2)
    monkeypatch.setenv("TACIT_PEER_STOP_SECONDS", "0.2")

    async def lose_the_last_decision(services):
        north, south = services
        while south._core is None:
            await asyncio.sleep(0.01)
        take_in = south._core.received

        def received(neighbor, frame):
            if frame.header.kind != Kind.USE or frame.header.slot.round < 1:
                take_in(neighbor, frame)

        south._core.received = received
        while north.status.phase != "finishing":
            await asyncio.sleep(0.01)
        north.stop()
        south.stop()

    assert play_all(consortium, meanwhile=lose_the_last_decision) == ["finished", "stopped"]
    assert find_finished(tmp_path / "north").waiting == ("south",)
    assert find_finished(tmp_path / "south") is None
    settings = tmp_path / "north" / "site.toml"
    settings.write_text(settings.read_text().replace("part = 0", "part = 1"))  # its records are not read again
    assert play_all(consortium) == ["finished"] * 2
    assert find_finished(tmp_path / "north").waiting == find_finished(tmp_path / "south").waiting == ()
    assert consortium.run_folder(1).summary()["links_used"] == 2


def keys_on_disk(consortium, number):
    with closing(SQLiteJournal(consortium.run_folder(number).path / JOURNAL)) as journal:
        return [record.body for record in journal.read() if record.kind == RecordKind.KEY]


def test_a_finished_site_whose_key_was_erased_can_be_started_again(tmp_path):
    """It needs no key to answer neighbours, and makes no other one."""
    consortium = Consortium(tmp_path, 3, rounds=1, noise="cancelling", source="secret")
    for _ in range(2):
        assert play_all(consortium) == ["finished"] * 3
        for number in range(3):
            (key,) = keys_on_disk(consortium, number)
            assert set(key) == {0}


def test_a_key_that_a_kill_kept_from_being_erased_is_erased_at_the_next_start(tmp_path, monkeypatch):
    consortium = Consortium(tmp_path, 3, rounds=1, noise="cancelling", source="secret")
    with monkeypatch.context() as killed:
        killed.setattr(service, "erase_key", lambda journal: None)
        assert play_all(consortium) == ["finished"] * 3
    (key,) = keys_on_disk(consortium, 0)
    assert set(key) != {0}
    for _ in range(2):
        assert CliRunner().invoke(app, ["peer", "run", "--site", str(tmp_path / "north")]).exit_code == 0
        assert keys_on_disk(consortium, 0) == [bytes(len(key))]
    assert key not in (consortium.run_folder(0).path / JOURNAL).read_bytes()


def test_sites_with_older_ledgers_are_refused_before_they_wait_for_anybody(tmp_path):
    consortium = Consortium(tmp_path, 3, rounds=12)
    assert set(play_all(consortium, meanwhile=stop_at(2))) == {"stopped"}
    older = []
    for number in range(2):
        file = consortium.run_folder(number).ledger_file
        older.append(shutil.copy(file, tmp_path / f"older-{number}.sqlite"))
    assert set(play_all(consortium, meanwhile=stop_at(6))) == {"stopped"}
    newest = [consortium.run_folder(number).ledger_file.read_bytes() for number in range(2)]
    events = [consortium.run_folder(number).events_file.read_bytes() for number in range(2)]
    for number, copy in enumerate(older):
        shutil.copy(copy, consortium.run_folder(number).ledger_file)
    for number in range(2):
        with pytest.raises(StorageError, match=r"the ledger is older than the journal\. Put back the newest one"):
            play(lambda number=number: consortium.service(number))
        consortium.run_folder(number).ledger_file.unlink()
        with pytest.raises(StorageError, match=r"does not know run .* which has begun"):
            play(lambda number=number: consortium.service(number))
        with closing(DurableLedger(consortium.run_folder(number).ledger_file)) as ledger:
            assert not ledger.accounts
        assert consortium.run_folder(number).events_file.read_bytes() == events[number]
        consortium.run_folder(number).ledger_file.write_bytes(newest[number])
    assert play_all(consortium) == ["finished"] * 3


def test_sites_with_older_journals_are_refused_though_their_neighbours_know_no_better(tmp_path):
    """Otherwise they would answer queries again under masks that were used."""
    consortium = Consortium(tmp_path, 2, graph="complete", rounds=8)
    journals = [consortium.run_folder(number).path / JOURNAL for number in range(2)]
    assert set(play_all(consortium, meanwhile=stop_at(2))) == {"stopped"}
    older = [journal.read_bytes() for journal in journals]
    assert set(play_all(consortium, meanwhile=stop_at(4))) == {"stopped"}
    newest = [journal.read_bytes() for journal in journals]
    for journal, content in zip(journals, older, strict=True):
        journal.write_bytes(content)
    for number in range(2):
        with pytest.raises(StorageError, match=r"lacks round 3, which the events have: it is an older copy"):
            play(lambda number=number: consortium.service(number))
        folder = consortium.run_folder(number)
        kept = folder.events_file.read_bytes()
        write_events(folder.path, [each for each in read_events(folder.path) if each["event"] != "links"])
        with pytest.raises(StorageError, match=r"lacks 2 of them: it is an older copy"):
            play(lambda number=number: consortium.service(number))
        folder.events_file.write_bytes(kept)
    for journal, content in zip(journals, newest, strict=True):
        journal.write_bytes(content)
    assert play_all(consortium) == ["finished"] * 2


def test_links_that_a_kill_kept_from_the_events_are_written_at_the_next_start(tmp_path):
    consortium = Consortium(tmp_path, 2, graph="complete", rounds=6)
    assert set(play_all(consortium, meanwhile=stop_at(2))) == {"stopped"}
    folder = consortium.run_folder(0)
    status = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["peer", "status", "--site", str(tmp_path / "north")]).stdout
    assert re.search(r"ε charged +[\d.]+ per record at δ=1e-05", status)
    assert re.search(r"ε so far +at most [\d.]+, of \d queries made", status)
    played = max(folder.events().links)
    write_events(
        folder.path,
        [each for each in read_events(folder.path) if each.get("round") != played or each["event"] != "links"],
    )
    assert played not in folder.events().links
    assert play_all(consortium) == ["finished"] * 2
    assert sorted(folder.events().links) == [1, 2, 3, 4, 5, 6]
    assert folder.summary()["links_planned"] == 6
