"""Every check of a frame, in the order of the protocol: what fails one is not used, and says so without anything private."""

from dataclasses import replace
from hashlib import sha256

import pytest
from consortium import MemoryJournal

from tacit.peer.protocol.checks import MOST_DOCUMENT_BYTES
from tacit.peer.protocol.core import GATHER_SECONDS, Core
from tacit.peer.protocol.interface import (
    NOWHERE,
    PROTOCOL,
    Equivocation,
    Frame,
    FrameRefused,
    Header,
    Kind,
    LinkSkipped,
    LinkUsed,
    PeerBehind,
    PeerTerms,
    RecordKind,
    Refused,
    Slot,
)
from tacit.peer.protocol.link import Pending

RUN, SIZE = sha256(b"run").digest(), 24
GOOD, OTHER = b"g" * SIZE, b"o" * SIZE


class _Clock:
    def __init__(self):
        self.time = 0.0

    def now(self):
        return self.time

    async def wait(self, until):
        await _Once()

    def wake(self):
        pass


class _Once:
    def __await__(self):
        yield


class _Wire:
    def __init__(self):
        self.sent, self.cuts = [], []

    def send(self, neighbor, frame):
        self.sent.append((neighbor, frame))

    def cut(self, neighbor, why):
        self.cuts.append((neighbor, why))

    async def drain(self):
        pass


def refuse_bad(message):
    if message.startswith(b"bad"):
        raise Refused("a message with numbers that are not finite")


class Site:
    """Member 1 with its decider 0 and its voter 2, waiting in slot (0, 0) with its message sealed."""

    def __init__(self, links=(0, 2), **changes):
        terms = PeerTerms(
            run=RUN,
            agreement=RUN,
            agent=1,
            members=(0, 1, 2, 3),
            neighbors=(0, 2),
            rounds=5,
            most_bytes=1000,
            norm_bound=9,
        )
        self.events, self.wire, self.clock = [], _Wire(), _Clock()
        self.core = Core(
            replace(terms, **changes),
            clock=self.clock,
            wire=self.wire,
            journal=MemoryJournal(),
            observe=self.events.append,
        )
        for neighbor in links:
            self.core.connected(neighbor)
        pending = Pending(Slot(0, 0), b"m" * SIZE, links, refuse_bad)
        self.settling = self.core.settle(pending)
        self.settling.send(None)

    def kinds_after(self, neighbor):
        """Return the kinds of frames that a neighbour was sent since it was greeted."""
        return [frame.header.kind for to, frame in self.wire.sent if to == neighbor and frame.header.kind != Kind.HELLO]

    def receive(self, neighbor, frame):
        before = len(self.events)
        self.core.received(neighbor, frame)
        self.core._sender.flush()  # as `settle` does when it is woken
        return self.events[before:]


def header(kind=Kind.VOTE, payload=GOOD, **changes):
    made = Header(
        kind=kind,
        run=RUN,
        agreement=RUN,
        slot=Slot(0, 0),
        dtype="float32" if payload else "",
        length=len(payload),
        sha256=sha256(payload).digest() if payload else b"",
    )
    return replace(made, **changes)


@pytest.fixture
def site():
    site = Site()
    yield site
    site.settling.close()


def test_a_good_vote_is_used(site):
    assert site.receive(2, Frame(header(), GOOD)) == [LinkUsed(Slot(0, 0), 2)]
    assert site.wire.sent[-1][1].header.kind == Kind.USE


def test_a_vote_waits_a_moment_for_the_next_decider_and_readiness_waits_for_no_disk():
    """Member 2 has the deciders 0 and 1 and the voter 3. It has heard of the first decider only."""
    site = Site(agent=2, neighbors=(0, 1, 3), links=(0, 1, 3))
    site.core.received(0, Frame(header(Kind.READY, b"")))
    site.core.received(3, Frame(header(Kind.ASK, b"")))
    site.settling.send(None)
    assert site.kinds_after(0) == [Kind.ASK]
    assert site.kinds_after(3) == [Kind.READY, Kind.READY]
    site.clock.time = GATHER_SECONDS
    site.settling.send(None)
    assert site.kinds_after(0) == [Kind.ASK, Kind.VOTE]
    site.core.received(1, Frame(header(Kind.READY, b"")))
    site.settling.send(None)
    assert site.kinds_after(1) == [Kind.ASK, Kind.VOTE]  # nobody else is waited for
    site.settling.close()


BROKEN = {
    "not a neighbour": (3, {}, "member 3 has no link with this one"),
    "run": (2, {"run": bytes(32)}, "another run"),
    "agreement": (2, {"agreement": bytes(32)}, "another agreement, or a version of it"),
    "protocol": (2, {"protocol": PROTOCOL + 1}, f"protocol {PROTOCOL + 1} instead of {PROTOCOL}"),
    "a decider's word of a voter": (2, {"kind": Kind.USE}, "USE, which is not for member 2 to say"),
    "a voter's word of a decider": (0, {"kind": Kind.VOTE}, "VOTE, which is not for member 0 to say"),
    "a later round": (2, {"slot": Slot(2, 0)}, "a message of round 2 in round 0"),
    "no round": (2, {"slot": Slot(-1, 0)}, "a message of round -1 in round 0"),
    "beyond all rounds": (2, {"slot": Slot(6, 0)}, "round 6, exchange 0 of 5 rounds"),
    "negative exchange": (2, {"slot": Slot(0, -1)}, "round 0, exchange -1 of 5 rounds"),
    "too long": (2, {"length": 1001}, "1001 bytes, where at most 1000 are allowed"),
    "negative length": (2, {"length": -1}, "-1 bytes, where at most 1000 are allowed"),
    "empty": (2, {"length": 0}, "an empty message"),
    "another length": (2, {"length": 25}, "a message of 25 bytes instead of 24"),
    "payload where none belongs": (2, {"kind": Kind.ASK}, "24 bytes, where at most 0 are allowed"),
    "document too long": (
        2,
        {"kind": Kind.KEYS, "length": MOST_DOCUMENT_BYTES + 1},
        "bytes, where at most 1048576 are allowed",
    ),
    "dtype": (2, {"dtype": "float64"}, "numbers that are not float32"),
    "no hash": (2, {"sha256": b"short"}, "a hash that is not SHA-256"),
    "held without a hash": (2, {"held": Slot(0, 0)}, "a hash that is not SHA-256"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_header_that_fails_a_check_is_refused_before_its_payload_is_read(fault, site):
    neighbor, changes, why = BROKEN[fault]
    broken = header(**changes)
    with pytest.raises(Refused, match=why):
        site.core.admit(neighbor, broken)
    (event, *_) = site.receive(neighbor, Frame(broken, GOOD))
    assert isinstance(event, FrameRefused)
    assert why in event.why
    assert not site.core.notes.at(Slot(0, 0)).decided


def test_a_member_that_was_declared_gone_is_refused_before_its_payload_is_read():
    site = Site(gone={2: 0})
    with pytest.raises(Refused, match="member 2 was declared gone"):
        site.core.admit(2, header())
    (event,) = site.receive(2, Frame(header(), GOOD))
    assert event == FrameRefused(2, "member 2 was declared gone")
    assert not site.core.notes.at(Slot(0, 0)).used(2)
    site.settling.close()


def test_checks_are_made_in_order(site):
    """With everything wrong at once, mending the first fault shows the next."""
    wrong = {
        "run": bytes(32),
        "agreement": bytes(32),
        "protocol": 9,
        "slot": Slot(3, 0),
        "length": 5000,
        "dtype": "int8",
        "sha256": b"",
    }
    right = {"run": RUN, "agreement": RUN, "protocol": PROTOCOL, "slot": Slot(0, 0), "length": SIZE, "dtype": "float32"}
    expected = ["another run", "another agreement", "protocol 9", "round 3", "5000 bytes", "not float32", "not SHA-256"]
    for number, why in enumerate(expected):
        mended = dict(list(right.items())[:number])
        with pytest.raises(Refused, match=why):
            site.core.admit(2, header(**wrong | mended))


@pytest.mark.parametrize(
    ("payload", "changes", "why"),
    [
        (GOOD[:-1], {}, "23 bytes instead of 24"),
        (OTHER, {}, "another hash"),
        (b"bad" + GOOD[3:], {"sha256": sha256(b"bad" + GOOD[3:]).digest()}, "not finite"),
    ],
)
def test_a_payload_that_fails_a_check_is_not_used(payload, changes, why, site):
    (event,) = site.receive(2, Frame(header(**changes), payload))
    assert isinstance(event, FrameRefused)
    assert why in event.why
    assert not site.core.notes.at(Slot(0, 0)).decided


def test_the_same_message_again_is_answered_and_another_one_is_equivocation(site):
    site.receive(2, Frame(header(), GOOD))
    assert site.receive(2, Frame(header(), GOOD)) == []
    events = site.receive(2, Frame(header(payload=OTHER), OTHER))
    assert Equivocation(2, Slot(0, 0)) in events
    assert [neighbor for neighbor, _ in site.wire.cuts] == [2]
    with pytest.raises(Refused, match="the link was cut"):
        site.core.admit(2, header())
    assert site.core.notes.at(Slot(0, 0)).decided[2].message == GOOD


def test_a_vote_for_the_next_round_is_kept_once_and_another_one_is_equivocation(site):
    early = {"slot": Slot(1, 0)}
    assert site.receive(2, Frame(header(**early), GOOD)) == []
    assert site.receive(2, Frame(header(**early), GOOD)) == []
    assert site.core.notes.at(Slot(1, 0)).hashes[2] == sha256(GOOD).digest()
    assert Equivocation(2, Slot(1, 0)) in site.receive(2, Frame(header(payload=OTHER, **early), OTHER))


def test_a_vote_that_came_early_is_used_when_its_round_begins():
    """It is kept from the end of one round to the beginning of the next, and need not be sent again."""
    site = Site(links=(2,), neighbors=(2,))
    assert site.receive(2, Frame(header(slot=Slot(1, 0)), GOOD)) == []
    site.receive(2, Frame(header(payload=OTHER), OTHER))
    with pytest.raises(StopIteration):
        site.settling.send(None)
    site.core.commit(0, b"state")
    with pytest.raises(StopIteration):
        site.core.settle(Pending(Slot(1, 0), b"m" * SIZE, (2,), refuse_bad)).send(None)
    verdicts = [site.core.notes.at(Slot(round, 0)).decided[2] for round in (0, 1)]
    assert [(verdict.used, verdict.message) for verdict in verdicts] == [(True, b""), (True, GOOD)]


@pytest.mark.parametrize(("bandwidth", "seconds"), [(10.0, 5 + SIZE / 10), (1e6, 5 + SIZE / 1e6)])
def test_a_link_is_skipped_once_its_message_is_later_than_size_and_bandwidth_allow(bandwidth, seconds):
    """The deadline is size / least bandwidth + compute allowance, as agreed."""
    site = Site(links=(2,), neighbors=(2,), least_bandwidth=bandwidth, compute_seconds=5.0, fewest=0)
    site.clock.time = seconds - 1e-6
    site.settling.send(None)
    assert not site.core.notes.at(Slot(0, 0)).decided
    site.clock.time = seconds
    site.settling.send(None)
    assert not site.core.notes.at(Slot(0, 0)).decided[2].used
    assert LinkSkipped(Slot(0, 0), 2, "nothing was heard in time") in site.events
    site.settling.close()


def test_a_decision_that_nobody_voted_for_cuts_the_link(site):
    events = site.receive(0, Frame(header(Kind.USE), GOOD))
    assert "without this member's vote" in events[0].why
    assert site.wire.cuts


def test_a_decider_whose_message_cannot_be_used_is_cut_and_its_voter_does_not_wait_for_ever(site):
    site.receive(0, Frame(header(Kind.READY, b""), b""))
    assert site.wire.sent[-1][1].header.kind == Kind.VOTE
    bad = b"bad" + GOOD[3:]
    site.receive(0, Frame(header(Kind.USE, bad), bad))
    assert [neighbor for neighbor, _ in site.wire.cuts] == [0]
    site.settling.send(None)
    assert not site.core.notes.at(Slot(0, 0)).decided[0].used


def test_a_decision_whose_header_is_refused_cuts_the_link_before_its_payload_is_read(site):
    """The wire passes over the payload, so that the core hears of this decision by its header alone."""
    site.receive(0, Frame(header(Kind.READY, b""), b""))
    with pytest.raises(Refused, match="a message of 25 bytes instead of 24"):
        site.core.admit(0, header(Kind.USE, length=25))
    assert [neighbor for neighbor, _ in site.wire.cuts] == [0]
    site.settling.send(None)
    assert not site.core.notes.at(Slot(0, 0)).decided[0].used


def test_a_header_under_a_newer_agreement_makes_this_member_ask_for_it(site):
    with pytest.raises(Refused, match="another agreement"):
        site.core.admit(2, header(agreement=bytes(32)))
    neighbor, frame = site.wire.sent[-1]
    assert (neighbor, frame.header.kind) == (2, Kind.HELLO)


def test_a_flood_of_frames_leaves_nothing_behind():
    site = Site()
    for number in range(2000):
        message = b"%024d" % number
        site.receive(2, Frame(header(payload=message, slot=Slot(1, 0)), message))
        site.receive(2, Frame(header(Kind.ASK, b"", slot=Slot(number % 5, 0)), b""))
    kept = site.core.notes._slots.values()
    assert sum(len(each.hashes) for each in kept) <= 2
    assert sum(len(each.decided) for each in kept) <= 2
    site.settling.close()


def test_votes_in_exchanges_that_no_round_has_are_not_kept():
    site = Site()
    for number in range(1, 2000):
        assert site.receive(2, Frame(header(slot=Slot(number % 2, number)), GOOD)) == []
    assert sum(len(each.hashes) for each in site.core.notes._slots.values()) == 1
    assert site.receive(2, Frame(header(), GOOD)) == [LinkUsed(Slot(0, 0), 2)]
    site.settling.close()


def test_a_journal_that_lacks_what_a_neighbour_holds_refuses_to_continue(site):
    held = {"held": Slot(3, 0), "held_sha256": bytes(32), "answer": True}
    site.receive(2, Frame(header(Kind.HELLO, b"", **held), b""))
    with pytest.raises(
        PeerBehind, match="member 2 holds a message of round 3 from this member that is not in this journal"
    ):
        site.settling.send(None)


def test_nothing_is_sent_before_all_neighbours_have_said_what_they_hold():
    terms = PeerTerms(
        run=RUN, agreement=RUN, agent=1, members=(0, 1, 2), neighbors=(0, 2), rounds=5, most_bytes=1000, norm_bound=9
    )
    wire = _Wire()
    core = Core(terms, clock=_Clock(), wire=wire, journal=MemoryJournal())
    starting = core.start()
    starting.send(None)
    core.received(0, Frame(header(Kind.HELLO, b"", slot=NOWHERE), b""))
    starting.send(None)  # member 2 is missing
    core.received(2, Frame(header(Kind.HELLO, b""), b""))
    with pytest.raises(StopIteration):
        starting.send(None)
    assert {frame.header.kind for _, frame in wire.sent} == {Kind.HELLO}


@pytest.mark.parametrize("ends", ["crash", "close"])
def test_a_voter_that_waited_long_for_another_decider_still_knows_what_the_first_one_sent(ends):
    """Decider 0 may come back with an old disk while member 2 waits for decider 1, and member 2 may have been started again too."""
    site = Site(agent=2, neighbors=(0, 1), links=(0, 1))
    site.core.received(0, Frame(header(Kind.READY, b"")))
    site.clock.time += GATHER_SECONDS
    for _ in range(2):
        site.settling.send(None)
    site.core.received(0, Frame(header(Kind.USE), GOOD))
    site.settling.send(None)
    journal = site.core._journal
    assert RecordKind.USED not in [record.kind for record in journal.records]  # most often the state replaces it soon
    if ends == "crash":
        site.clock.time += site.core.terms.resend_seconds
        site.settling.send(None)
    else:
        site.core.close()
    site.settling.close()
    again = _Wire()
    Core(site.core.terms, clock=_Clock(), wire=again, journal=journal).connected(0)
    ((_, hello),) = again.sent
    assert (hello.header.held, hello.header.held_sha256) == (Slot(0, 0), sha256(GOOD).digest())
