"""A site says whom it waits for, since when, and what would end that: on its page, in its metrics, in its log and in its events."""

import asyncio
import json
import logging
import re

from test_frames import GOOD, Site, header
from typer.testing import CliRunner

from tacit.cli import app
from tacit.peer.agreement.drafting import change_agreement
from tacit.peer.observing import Observing, is_foreign
from tacit.peer.protocol.interface import Frame, FrameRefused, Kind
from tacit.peer.reading import status_in_folder
from tacit.peer.views import STARTING, SiteStatus
from tacit.peer.waiting import Waiting
from tests.peer.sites import Consortium, play

NAMES = ("decider", "site", "voter")
ENDS = "this ends when it answers, or when a new version of the agreement declares it gone"


def watched(**changes):
    """Return member 1, which waits for both neighbours, with its status and what was noticed."""
    site, notices = Site(**changes), []
    status = SiteStatus("site", "run", "", 1, 5, NAMES, {}, phase="training")
    waiting = Waiting(site.core, status, lambda neighbor, why: notices.append((neighbor, why)))
    return site, status, waiting, notices


def test_a_wait_is_shown_from_the_second_look_on_and_noticed_once_when_no_deadline_ends_it():
    site, status, waiting, notices = watched()
    longest = site.core.terms.deadline(site.core.terms.most_bytes)
    waiting.look(10.0)
    assert status.waits == {}
    waiting.look(11.0)
    assert status.waits[2] == (1.0, "it is there and has not sent its message of this round")
    site.core.disconnected(2)
    waiting.look(12.0)
    assert status.waits[2] == (2.0, "the link is down")
    assert not notices
    for now in (11.0 + longest, 12.0 + longest):
        waiting.look(now)
    assert notices[1] == (2, f"the link is down; a round needs 1 of its links, so {ENDS}")
    assert [neighbor for neighbor, _ in notices] == [0, 2]
    site.core.connected(2)
    site.receive(2, Frame(header(), GOOD))
    waiting.look(20.0 + longest)
    assert list(status.waits) == [0]


def test_a_voter_says_that_only_its_deciders_word_or_a_new_version_ends_its_wait():
    site, status, waiting, _ = watched()
    site.receive(0, Frame(header(Kind.READY, b""), b""))
    waiting.look(0.0)
    waiting.look(1.0)
    assert status.waits[0].why == f"it has this site's message and has not said whether it used it; {ENDS}"


def test_at_the_start_those_are_waited_for_who_have_not_said_what_they_hold():
    site, status, waiting, notices = watched(gone={0: 0})
    status.phase = STARTING
    for now in (0.0, 1.0, 1000.0):
        waiting.look(now)
    assert list(status.waits) == [2]
    assert notices == [
        (2, f"it is there and has not said what it holds of this site; a start needs all neighbours, so {ENDS}")
    ]
    site.receive(2, Frame(header(Kind.HELLO, b""), b""))
    waiting.look(1001.0)
    assert status.waits == {}


def test_a_neighbour_under_another_version_of_the_agreement_is_named(caplog):
    site, status, waiting, _ = watched()
    observing = Observing(None, status, lambda: None)
    (refused,) = site.receive(2, Frame(header(Kind.HELLO, b"", agreement=b"o" * 32), b""))
    assert isinstance(refused, FrameRefused)
    assert is_foreign(refused.why)
    assert not is_foreign("another run")
    observing._notice = lambda *_: None
    observing(refused)
    waiting.look(0.0)
    waiting.look(1.0)
    assert status.waits[2].why.startswith("it holds another version of the agreement")
    (used,) = site.receive(2, Frame(header(), GOOD))
    observing(used)
    assert status.foreign == set()


def test_the_command_shows_whom_a_running_site_waits_for(tmp_path):
    consortium, seen = Consortium(tmp_path, 2, graph="complete", status=True), {}
    words = ["peer", "status", "--site", str(tmp_path / "north")]

    async def look(services):
        status = services[0].status
        while not status.waits:  # south is never started
            await asyncio.sleep(0.05)
        seen["said"] = await asyncio.to_thread(CliRunner(env={"COLUMNS": "200"}).invoke, app, words)
        services[0].stop()

    assert play(lambda: consortium.service(0), meanwhile=look) == ["stopped"]
    assert re.search(r"south .+; waiting for \d+ s: the link is down", seen["said"].stdout)


def test_a_site_whose_only_link_is_to_one_that_stopped_says_so_until_that_one_is_declared_gone(tmp_path, caplog):
    """Base-2 on four sites: one link a round. West stops, and the quorum's version is what lets the others go on."""
    limits = {"compute_seconds": 0.3, "least_bandwidth": 1e8, "grace_seconds": 0.2, "resend_seconds": 0.2}
    consortium = Consortium(tmp_path, 4, rounds=60, graph="base:peers=1", limits=limits | {"linger_seconds": 5.0})
    present, seen = consortium.identities[:3], {}

    async def stop_and_declare(services):
        while services[3].status.round < 2:
            await asyncio.sleep(0.01)
        services[3].stop()

        def late():
            down = "the link is down; a round needs 1 of its links"
            return [s for s in services[:3] for wait in s.status.waits.values() if wait.why.startswith(down)]

        while not late():
            await asyncio.sleep(0.05)
        waiting = late()[0]
        seen["links"] = waiting.status.to_dict()["links"]
        seen["metrics"] = waiting.status.metrics().decode()
        seen["folder"] = status_in_folder(waiting.folder)
        consortium.sign(change_agreement(consortium.agreement, gone=["west"]), present, present[:1])
        services[0].reload()

    sites = [lambda number=number: consortium.service(number) for number in range(4)]
    with caplog.at_level(logging.WARNING, logger="tacit"):
        outcomes = play(*sites, meanwhile=stop_and_declare)
    assert outcomes == ["finished", "finished", "finished", "stopped"]
    (shown,) = [link for link in seen["links"] if link["waits_why"]]
    assert shown["neighbor"] == "west"
    assert shown["waits_seconds"] > 0.3
    (waited,) = re.findall(r'tacit_peer_link_wait_seconds{neighbor="west"} (.+)', seen["metrics"])
    assert float(waited) == shown["waits_seconds"]
    assert any("waiting since" in link["state"] and ENDS in link["state"] for link in seen["folder"]["links"])
    assert any(record.message.startswith("waiting: ") for record in caplog.records)
    kinds = [
        json.loads(line).get("kind")
        for number in range(3)
        for line in consortium.run_folder(number).events_file.read_text().splitlines()
    ]
    assert "waiting" in kinds
