"""The folder of one site among peers is verified by itself: an honest one holds, and a changed one is found."""

import asyncio
import json
import shutil
import sqlite3
from contextlib import closing

import pytest
from auditing import failed, outcomes
from safetensors.torch import load_file, save_file
from tampering import edit_log, forge, read_events, state_heads, write_events

from tacit.cli.commands.ledger_verification import find_misstatements
from tacit.errors import TacitError
from tacit.evidence.archive import pack
from tacit.peer.recording import JOURNAL
from tacit.peer.records import RECORDS_FILE
from tacit.privacy import DurableLedger
from tacit.privacy.accounting import ceil_digits
from tacit.runs import RunFolder
from tests.peer.sites import Consortium, play_all, stop_at


def misstated(runs):
    """Return what `tacit ledger --verify` finds."""
    with closing(DurableLedger(runs / "ledger.sqlite", read_only=True)) as ledger:
        return [*ledger.verify(), *find_misstatements(ledger, ledger, runs)]


@pytest.fixture(scope="module")
def consortium(tmp_path_factory):
    """Three sites with a budget, of which all were stopped once and continued."""
    made = Consortium(tmp_path_factory.mktemp("sites"), 3, noise_multiplier=None, epsilon=8.0, delta=1e-3, rounds=5)
    assert play_all(made, meanwhile=stop_at(2)) == ["stopped"] * 3
    assert play_all(made) == ["finished"] * 3
    return made


@pytest.fixture
def runs(consortium, tmp_path):
    """A copy of the runs of the second site, to change."""
    return shutil.copytree(consortium.run_folder(1).path.parent, tmp_path / "runs")


@pytest.fixture
def name(consortium):
    return consortium.agreement.run_name


def test_the_folder_of_an_honest_site_holds(consortium, runs, name):
    assert misstated(runs) == []
    found = outcomes(runs, name)
    assert failed(runs, name) == set()
    assert "south, one of 3 members under agreement" in found["site"].words
    assert "used 10 of 10 links" in found["site"].words
    assert "5 of 7 on record" in found["queries"].words
    assert found["scores on validation"].outcome == "holds"
    assert "one model of" in found["models"].words
    assert "cannot be played again by itself" in found["replay"].words
    summary = RunFolder(runs / name).summary()
    assert f"ε={summary['epsilon']:.4g} per record at δ=0.001" in found["ε"].words


def test_the_archive_of_a_site_has_neither_its_journal_nor_its_fingerprint(runs, name):
    parts = pack(RunFolder.find(runs / name)).parts
    assert set(parts) == {
        "config.toml",
        "events.jsonl",
        "ledger.jsonl",
        "code.json",
        "summary.json",
        "models.safetensors",
        "agreement.json",
    }
    assert (runs / name / JOURNAL).exists()
    assert (runs / name / RECORDS_FILE).exists()


def change_epsilon(runs, name):
    folder = RunFolder(runs / name)
    folder.summarise(folder.summary() | {"epsilon": 1.0})


def change_event(runs, name):
    file = runs / name / "events.jsonl"
    file.write_text(file.read_text().replace('"skipped": []', '"skipped": [2]', 1))


def change_links(runs, name):
    """Change what a round used, with hashes that follow within the events."""
    events = read_events(runs / name)
    write_events(
        runs / name,
        [each | {"used": [0]} if each["event"] == "links" and each["round"] == 1 else each for each in events],
    )


def forge_links(runs, name):
    """Change it in events, ledger and summary, so that all hashes follow, but not what the summary counts."""
    forge(
        runs, name, event=lambda each: each | {"used": []} if each["event"] == "links" and each["round"] == 1 else each
    )


def remove_charge(runs, name):
    with closing(sqlite3.connect(runs / "ledger.sqlite")) as database, database:
        (last,) = database.execute("SELECT MAX(number) FROM log WHERE account IS NOT NULL").fetchone()
        database.execute("DELETE FROM log WHERE number = ?", (last,))


def forge_fewer_charges(runs, name):
    """Remove the last query from the ledger, with hashes that follow."""
    edit_log(runs / "ledger.sqlite", lambda row: None if row["kind"] == "query" and row["number"] == 5 else row)
    state_heads(runs)


def forge_fewer_rounds(runs, name):
    """Remove two rounds from the events and two queries from the ledger, and state the smaller ε, with hashes that follow."""
    forge(
        runs,
        name,
        event=lambda each: None if each["event"] == "links" and each["round"] in (2, 3) else each,
        row=lambda row: None if row["kind"] == "query" and row["number"] > 3 else row,
    )
    folder = RunFolder(runs / name)
    with closing(DurableLedger(runs / "ledger.sqlite", read_only=True)) as ledger:
        _, less = ledger.account(name).largest_epsilon(delta=1e-3, adjacency="add_remove", accountant="pld")
    stated = {"epsilon": ceil_digits(less), "epsilon_per_agent": [less], "epsilon_against": {"all": ceil_digits(less)}}
    folder.summarise(folder.summary() | folder.events().links_used | stated)
    state_heads(runs)


def move_snapshot(runs, name):
    """State that the first scores are those after a round that was not played, with hashes that follow."""

    def event(each):
        if each["event"] == "links" and each["round"] == 2:
            return None
        return each | {"round": 2} if each["event"] == "snapshot" and each["round"] == 0 else each

    forge(runs, name, event=event)
    folder = RunFolder(runs / name)
    folder.summarise(folder.summary() | folder.events().links_used)


def change_model(runs, name):
    file = runs / name / "models.safetensors"
    models = load_file(file)
    save_file({"theta": models["theta"] + 1e-3}, file)


def change_agreement(runs, name):
    file = runs / name / "agreement.json"
    agreed = json.loads(file.read_text())
    file.write_text(json.dumps(agreed | {"settings": agreed["settings"] | {"epsilon": 20.0}}))


def forge_settings(runs, name):
    """State another clip in settings, plan and ledger than was agreed on, with hashes that follow."""

    def row(row):
        if row["kind"] != "open":
            return row
        return row | {"lines": [line | {"mechanism": line["mechanism"] | {"clip": 3.0}} for line in row["lines"]]}

    forge(
        runs,
        name,
        settings={"clip": 3.0},
        event=lambda each: each | {"clips": [3.0]} if each["event"] == "plan" else each,
        row=row,
    )


def add_neighbour(runs, name):
    """Claim a link that the agreement does not have: that of the site to itself."""
    site = next(each for each in read_events(runs / name) if each["event"] == "plan")["site"]
    forge(
        runs,
        name,
        event=lambda each: each | {"site": site | {"neighbors": [0, 1, 2]}} if each["event"] == "plan" else each,
    )


CHANGES = {
    "another ε": (change_epsilon, {"ε", "summary"}, "states ε = 1.0"),
    "an event": (change_event, None, "the hash does not follow"),
    "a round's links": (change_links, {"heads", "summary"}, "that is not in the events"),
    "a round's links, all hashes anew": (forge_links, {"summary"}, "links_used"),
    "a charge removed": (remove_charge, {"heads", "queries", "summary", "ε"}, "made 5 queries, but 4 are on record"),
    "a charge removed, all hashes anew": (
        forge_fewer_charges,
        {"queries", "summary", "ε"},
        "made 5 queries, but 4 are on record",
    ),
    "two rounds removed, all hashes anew": (
        forge_fewer_rounds,
        {"queries"},
        "is finished in the ledger with 3 queries, but its plan needs 5",
    ),
    "scores of a round that was not played, all hashes anew": (
        move_snapshot,
        {"site", "queries"},
        "scored after round 2, but the links of that round",
    ),
    "another model": (change_model, {"models"}, ""),
    "another agreement": (change_agreement, {"site"}, "not the one that the plan names"),
    "other settings, all hashes anew": (forge_settings, {"site"}, "clip is 3.0 in the settings, but 1.0"),
    "another neighbour, all hashes anew": (add_neighbour, {"site"}, "the neighbours of 'south'"),
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_changed_folder_is_found(runs, name, how):
    change, seen, words = CHANGES[how]
    change(runs, name)
    if seen is not None:
        assert failed(runs, name) == seen
    else:  # it is not even packed
        with pytest.raises(TacitError, match=words):
            failed(runs, name)
    if how != "another model":  # which is not part of the record
        assert words in "; ".join(misstated(runs)) != ""


@pytest.mark.slow
def test_a_site_that_comes_back_when_all_others_have_finished_holds(tmp_path):
    made = Consortium(tmp_path, 3, rounds=12)

    async def leave_and_return_late(services):
        *others, east = services
        while east.status.round < 2:
            await asyncio.sleep(0.01)
        east.stop()
        while not all(each.status.phase == "finishing" for each in others):
            await asyncio.sleep(0.01)
        assert await made.service(2).run() == "finished"

    assert play_all(made, meanwhile=leave_and_return_late)[:2] == ["finished"] * 2
    folder = made.run_folder(2)
    assert 12 not in folder.events().links
    assert misstated(folder.path.parent) == []
    assert failed(folder.path.parent, folder.name) == set()


@pytest.mark.slow
def test_a_site_with_masks_holds(tmp_path):
    made = Consortium(tmp_path, 3, noise="cancelling", source="secret", keys="graph", curious=1, rounds=2)
    assert play_all(made) == ["finished"] * 3
    runs = made.run_folder(2).path.parent
    assert misstated(runs) == []
    assert failed(runs, made.agreement.run_name) == set()


@pytest.mark.slow
def test_a_site_that_missed_rounds_holds_and_is_charged_for_those_it_played(tmp_path):
    made = Consortium(tmp_path, 3, rounds=40)

    async def leave_and_return(services):
        east = services[2]
        while east.status.round < 2:
            await asyncio.sleep(0.01)
        east.stop()
        while services[0].status.round < 20:
            await asyncio.sleep(0.01)
        assert await made.service(2).run() == "finished"

    outcomes_ = play_all(made, meanwhile=leave_and_return)
    assert outcomes_[:2] == ["finished"] * 2
    folder = made.run_folder(2)
    played = len(folder.events().links)
    assert played < 30
    with closing(DurableLedger(folder.ledger_file, read_only=True)) as ledger:
        assert ledger.account(folder.name).spent == played
    assert misstated(folder.path.parent) == []
    assert failed(folder.path.parent, folder.name) == set()
