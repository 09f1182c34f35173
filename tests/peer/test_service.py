"""Whole sites over real links on this machine, several in one event loop: the same models as one process, through stops and restarts."""

import asyncio
import json
import os
import re
import signal
import sqlite3
from contextlib import closing

import pytest
import torch
from waits import LIMIT

import tacit
from tacit.errors import InvalidInput, NetworkError, StorageError
from tacit.peer.agreement.drafting import change_agreement
from tacit.peer.agreement.signed import read_chain
from tacit.peer.preparation import load_own_data, training_of_site
from tacit.peer.protocol.interface import RecordKind
from tacit.peer.recording import JOURNAL, SiteRun
from tacit.peer.runtime import Peer
from tacit.peer.service import run_site
from tacit.peer.settings import SiteSettings
from tacit.privacy import DurableLedger
from tacit.privacy.accounting import ceil_digits
from tacit.runs import Runner
from tacit.runs.event_types import LinksEvent
from tacit.runs.events import say_links_used
from tacit.runs.folder import LEDGER
from tests.peer.consortia import NAMES
from tests.peer.sites import Consortium, play, play_all, stop_at
from tests.peer.wires import free_address


def test_three_sites_give_the_models_of_one_process_to_the_bit(tmp_path):
    consortium = Consortium(tmp_path, 3)
    assert play_all(consortium) == ["finished"] * 3
    assert torch.equal(consortium.theta(), consortium.theta_in_one_process())
    for number in range(3):
        folder = consortium.run_folder(number)
        summary = folder.summary()
        assert (summary["links_used"], summary["links_planned"], summary["rounds"]) == (8, 8, 4)
        assert folder.events().plan.site.agent == number
        assert "one of 3 sites" in (folder.path / "report.html").read_text()
        with closing(DurableLedger(folder.ledger_file, read_only=True)) as ledger:
            assert ledger.account(folder.name).spent == 4
            assert ledger.account(folder.name).state == "finished"
    consortium.run_folder(0).summary_file.unlink()
    with pytest.raises(InvalidInput, match="continue with `tacit peer run`"):
        Runner.resume(consortium.run_folder(0).path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "noise", "links"),
    [
        ("dsgd", "local", "ring"),
        ("dsgd", "cancelling", "irregular"),
        ("dsgt", "local", "irregular"),
        ("dsgt", "cancelling", "ring"),
        ("dinno:inner_steps=2", "local", "ring"),
        ("dinno:inner_steps=2", "cancelling", "irregular"),
    ],
)
def test_every_rule_gives_the_models_of_one_process_to_the_bit(tmp_path, algorithm, noise, links):
    """Each rule with each kind of noise and of links, and each noise on each links."""
    pairs = [(0, 1), (0, 2), (0, 3), (1, 2)] if links == "irregular" else None
    consortium = Consortium(tmp_path, 4, algorithm=algorithm, noise=noise, pairs=pairs)
    assert play_all(consortium) == ["finished"] * 4
    assert torch.equal(consortium.theta(), consortium.theta_in_one_process())


@pytest.mark.slow
def test_bands_give_the_models_of_one_process_to_the_bit_and_start_anew_after_a_restart(tmp_path):
    """Each query is charged once, restart or not: the same event covers bands that start anew (`privacy/bands.py`)."""
    whole, stopped = Consortium(tmp_path / "whole", 3, bands=2), Consortium(tmp_path / "stopped", 3, bands=2)
    assert play_all(whole) == ["finished"] * 3
    assert len(whole.run_folder(0).events().plan.bands) == 2
    assert torch.equal(whole.theta(), whole.theta_in_one_process())
    assert play_all(stopped, meanwhile=stop_at(2)) == ["stopped"] * 3
    assert play_all(stopped) == ["finished"] * 3
    assert not torch.equal(stopped.theta(), whole.theta())
    folder = stopped.run_folder(0)
    assert folder.summary()["links_used"] == folder.summary()["links_planned"] == 8
    with closing(DurableLedger(folder.ledger_file, read_only=True)) as ledger:
        assert ledger.account(folder.name).spent == 4


def test_secret_masks_make_a_release_and_their_keys_are_erased(tmp_path):
    consortium, seen = Consortium(tmp_path, 3, noise="cancelling", source="secret", rounds=2), []

    async def keep(services):
        seen.extend(services)

    assert play_all(consortium, meanwhile=keep) == ["finished"] * 3
    for number in range(3):
        summary, status = consortium.run_folder(number).summary(), seen[number].status
        assert summary["release"]
        assert ceil_digits(status.epsilon_against_all) == summary["epsilon_against"]["all"] > status.epsilon_charged
        # No ε is shown without its terms.
        words = dict(re.findall(r"# HELP tacit_peer_(epsilon_\w+) (.+)", status.metrics().decode()))
        assert words.keys() == {"epsilon_charged", "epsilon_against_all", "epsilon_made"}
        assert all("per record at δ=1e-05, add-or-remove-one, pld" in each for each in words.values())
        against_all = words.pop("epsilon_against_all")
        assert "all other members pool" in against_all
        assert "any one other agent" not in against_all
        assert all("against any one other agent." in each for each in words.values())
        with sqlite3.connect(consortium.run_folder(number).path / JOURNAL) as database:
            keys = database.execute("SELECT body FROM bodies WHERE kind = ?", (int(RecordKind.KEY),)).fetchall()
        assert keys
        assert all(set(body) == {0} for (body,) in keys)
    first = consortium.theta()
    assert (first - first.mean(0)).norm() > 0


def test_sites_that_are_stopped_continue_where_they_were(tmp_path):
    consortium = Consortium(tmp_path, 3, rounds=6)

    outcomes = play_all(consortium, meanwhile=stop_at(2))
    assert outcomes == ["stopped"] * 3
    assert play_all(consortium) == ["finished"] * 3
    assert torch.equal(consortium.theta(), consortium.theta_in_one_process())
    for number in range(3):
        events = consortium.run_folder(number).events()
        rounds = [event.round for event in events if isinstance(event, LinksEvent)]
        assert rounds == [1, 2, 3, 4, 5, 6]
        assert events.lost_queries == 0


@pytest.mark.slow
def test_a_site_with_a_renewed_key_and_another_address_continues_with_the_masks_that_it_had(tmp_path):
    consortium = Consortium(tmp_path, 3, noise="cancelling", source="secret", rounds=6)
    assert play_all(consortium, meanwhile=stop_at(2)) == ["stopped"] * 3
    before = consortium.identities[2]
    renewed = before.renew(tmp_path / "east").move(tmp_path / "east", free_address())
    assert renewed.card.public_key != before.card.public_key
    after = change_agreement(consortium.agreement, cards=[renewed.card])
    identities = [*consortium.identities[:2], renewed]
    with pytest.raises(InvalidInput, match="another key for 'east'"):
        consortium.service(2)
    consortium.sign(after, identities, identities)
    assert play_all(consortium) == ["finished"] * 3
    for number in range(3):
        summary = consortium.run_folder(number).summary()
        assert (summary["links_used"], summary["links_planned"]) == (12, 12)


def test_a_ledger_older_than_the_journal_is_refused(tmp_path):
    consortium = Consortium(tmp_path, 2, pairs=[(0, 1)])
    chain, folder = read_chain(tmp_path / NAMES[0]), consortium.run_folder(0)
    settings = SiteSettings.read(tmp_path / NAMES[0])
    data = load_own_data(settings, chain.current, 0)

    def begin(answered):
        """Begin as a process that finds so many answers in its journal."""
        with closing(SiteRun(folder.path.parent, chain, 0, settings)) as record:
            training = training_of_site(chain.current, data, record.ledger, evaluate_every=1)
            session = tacit.Session(training, Peer(0, 2, None), record.accounts())
            record.begin(session, session.training.data, on_record=answered)
            return session.accounts[0].spend()

    begin(0)
    begin(0)  # the first answer was lost
    begin(1)
    events = folder.events_file.read_bytes()
    with pytest.raises(StorageError, match="the ledger has 3 queries of this run, but 4 were answered or lost"):
        begin(3)
    assert folder.events_file.read_bytes() == events
    begin(2)
    assert folder.events().lost_queries == 1


def test_a_run_that_nobody_joins_says_so_and_spends_nothing(tmp_path, monkeypatch, caplog):
    consortium = Consortium(tmp_path, 3)
    caplog.set_level("INFO", "tacit")
    monkeypatch.setenv("TACIT_PEER_START_SECONDS", "0.5")
    with pytest.raises(NetworkError, match=r"south, east did not join within 0\.5 s; nothing was spent"):
        play(lambda: consortium.service(0))
    assert "waiting for neighbours: south, east" in caplog.messages
    with closing(DurableLedger(tmp_path / "north" / "runs" / LEDGER, read_only=True)) as ledger:
        assert ledger.account(consortium.agreement.run_name) is None


def test_a_site_in_the_background_of_a_shell_is_stopped_by_sigterm_alone(tmp_path):
    Consortium(tmp_path, 3)
    begun = []

    async def send(service):
        while getattr(service, "status", None) is None or service.status.phase != "waiting for neighbours":
            await asyncio.sleep(0.01)
        for number in (signal.SIGINT, signal.SIGTERM):  # a second one that is heard would end it at once
            os.kill(os.getpid(), number)

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        outcome = run_site(
            tmp_path / "north", on_start=lambda one: begun.extend((one, asyncio.ensure_future(send(one))))
        )
    finally:
        signal.signal(signal.SIGINT, before)
    assert (outcome, begun[0].status.phase) == ("stopped", "stopped")


def test_a_version_that_declares_a_member_gone_travels_and_ends_the_wait(tmp_path):
    """West never starts. North is given the new version by hand; the others get it from their neighbours."""
    consortium = Consortium(tmp_path, 4, rounds=3)
    after = change_agreement(consortium.agreement, gone=["west"])
    present = consortium.identities[:3]

    async def declare(services):
        while {services[0].status.phase, services[2].status.phase} != {"waiting for neighbours"}:
            await asyncio.sleep(0.01)
        consortium.sign(after, present, present[:1])
        services[0].reload()

    outcomes = play(*(lambda number=number: consortium.service(number) for number in range(3)), meanwhile=declare)
    assert outcomes == ["finished"] * 3
    for identity in present:
        assert read_chain(tmp_path / identity.name).current == after
    used = [consortium.run_folder(number).summary()["links_used"] for number in range(3)]
    planned = [consortium.run_folder(number).summary()["links_planned"] for number in range(3)]
    assert used == [3, 6, 3]
    assert planned == [6, 6, 6]
    words = "3 of 6 exchanges over links were used: it ran short"
    assert say_links_used(consortium.run_folder(0).summary()) == words
    assert words in (consortium.run_folder(0).path / "report.html").read_text()


def test_the_status_page_shows_the_sites_own_view_and_refuses_others(tmp_path):
    consortium = Consortium(tmp_path, 2, graph="complete", status=True, rounds=40)
    seen = {}

    async def look(services):
        address = services[0].settings.status

        async def fetch(path, method="GET", host=None):
            reader, writer = await asyncio.open_connection(*address.split(":"))
            writer.write(f"{method} {path} HTTP/1.1\r\nHost: {host or address}\r\n\r\n".encode())
            content = b""
            while True:
                async with asyncio.timeout(LIMIT):
                    chunk = await reader.read(65536)
                content += chunk
                if not chunk or (path == "/events" and b'"finish"' in content):
                    break
            writer.close()
            head, _, body = content.partition(b"\r\n\r\n")
            return int(head.split()[1]), head.decode(), body

        while services[0].status.round < 1:
            await asyncio.sleep(0.01)
        seen["events"] = asyncio.create_task(fetch("/events"))
        for path in ("/", "/status", "/metrics", "/livez", "/readyz", "/private"):
            seen[path] = await fetch(path)
        seen["post"] = await fetch("/status", method="POST")
        seen["rebound"] = await fetch("/status", host="evil.example:80")
        seen["events"] = await seen["events"]

    assert play_all(consortium, meanwhile=look) == ["finished"] * 2
    status = json.loads(seen["/status"][2])
    assert status["name"] == "north"
    assert status["links"][0]["neighbor"] == "south"
    assert b"tacit_peer_round " in seen["/metrics"][2]
    assert b'tacit_peer_links_used_total{neighbor="south"}' in seen["/metrics"][2]
    assert (seen["/livez"][0], seen["/readyz"][0], seen["/private"][0]) == (200, 200, 404)
    assert (seen["post"][0], seen["rebound"][0]) == (403, 403)
    assert "script-src 'sha256-" in seen["/"][1]
    kinds = [json.loads(line[6:])["event"] for line in seen["events"][2].decode().splitlines() if line[:6] == "data: "]
    assert kinds[0] == "plan"
    assert kinds.count("links") == 40
    assert kinds[-1] == "finish"
