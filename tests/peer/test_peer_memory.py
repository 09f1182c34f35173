"""A long run takes no more memory than a short one, and what memory has forgotten is found in the journal."""

from collections import deque
from hashlib import sha256

import pytest
from simulation import Faults, World
from test_frames import GOOD, OTHER, RUN, _Clock, _Wire, header

from tacit.peer.protocol.core import Core
from tacit.peer.protocol.interface import Equivocation, Frame, Kind, LinkSkipped, LinkUsed, PeerBehind, PeerTerms, Slot
from tacit.peer.protocol.notes import Notes
from tacit.peer.protocol.sqlite import SQLiteJournal

CALM = Faults(heals=0, loss=0, repeats=0, slow=0, crash=0, partitions=0, rollback=False, leaver=None)
SHAKY = Faults(heals=1e9, loss=0.1, repeats=0.2, slow=0.02, crash=0, partitions=0.01, rollback=False, leaver=None)
CONTAINERS = (dict, list, tuple, set, frozenset, deque)


def count_items(root):
    """Count what containers hold, and bytes, in all objects of the protocol that can be reached; the journal is the disk."""
    found, seen, waiting = 0, set(), [root]
    while waiting:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, SQLiteJournal):
            continue
        seen.add(id(each))
        if isinstance(each, bytes):
            found += len(each)
        elif isinstance(each, CONTAINERS):
            found += len(each)
            waiting += [*each, *each.values()] if isinstance(each, dict) else each
        elif type(each).__module__.startswith("tacit.peer"):
            waiting += vars(each).values()
    return found


@pytest.mark.parametrize("faults", [CALM, SHAKY], ids=["calm", "shaky"])
def test_memory_does_not_grow_with_rounds(faults):
    """One number for each round would be 180 more, and one hash 5,760."""
    sizes = []
    for rounds in (20, 200):
        world = World(4, faults=faults, agents=3, rule="chain", rounds=rounds, fewest=0).run()
        sizes.append([count_items(member.core) for member in world.members])
    seen = {type(event) for _, event in world.events}
    assert LinkUsed in seen
    assert (LinkSkipped in seen) == (faults is SHAKY)
    for after_few, after_many in zip(*sizes, strict=True):
        assert after_many - after_few < 180


class Later:
    """Member 1, with voter 2, after six rounds with a journal on the disk. Link 2 was used in rounds 0, 1 and 4, and skipped in others.

    It has restarted since, so that memory holds only what it would hold after any number of rounds.
    """

    def __init__(self, path):
        notes = Notes(SQLiteJournal(path))
        for round in range(6):
            slot = Slot(round, 0)
            notes.seal(slot, b"message %d" % round)
            if round in (0, 1, 4):
                notes.use(slot, 2, GOOD, sha256(GOOD).digest())
            else:
                notes.skip(slot, 2)
            notes.commit(round + 1, b"state", sync=True)
        notes._journal.close()
        terms = PeerTerms(
            run=RUN, agreement=RUN, agent=1, members=(0, 1, 2), neighbors=(2,), rounds=9, most_bytes=99, norm_bound=9
        )
        self.wire, self.events = _Wire(), []
        self.core = Core(terms, clock=_Clock(), wire=self.wire, journal=SQLiteJournal(path), observe=self.events.append)
        self.core.connected(2)
        assert list(self.core.notes._slots) == [Slot(4, 0)]

    def answers(self, kind, round, payload=b"", **more):
        """Return the kinds of frames, and their payloads, with which a frame of member 2 is answered."""
        before = len(self.wire.sent)
        self.core.received(2, Frame(header(kind, payload, slot=Slot(round, 0), **more), payload))
        return [(frame.header.kind, frame.payload) for _, frame in self.wire.sent[before:]]


@pytest.fixture
def later(tmp_path):
    made = Later(tmp_path / "journal.sqlite")
    yield made
    made.core.close()


def test_a_link_that_was_used_is_never_called_skipped(later):
    asked = [later.answers(Kind.ASK, round) for round in range(6)]
    skip, forgotten = [(Kind.SKIP, b"")], [(Kind.FORGOTTEN, b"")]
    assert asked == [forgotten, forgotten, skip, skip, [(Kind.USE, b"message 4")], skip]
    assert later.answers(Kind.VOTE, 0, GOOD) == forgotten


def test_two_messages_for_a_round_long_ago_are_still_found(later):
    assert later.answers(Kind.VOTE, 2, GOOD) == [(Kind.SKIP, b"")]  # it came late, and is held
    assert later.answers(Kind.VOTE, 2, GOOD) == [(Kind.SKIP, b"")]
    assert list(later.core.notes._slots) == [Slot(4, 0)]
    assert not later.events
    later.core._journal.append()
    later.answers(Kind.VOTE, 2, OTHER)
    assert Equivocation(2, Slot(2, 0)) in later.events


def test_a_neighbour_may_hold_a_message_of_long_ago_but_no_other(later):
    held = {"held": Slot(1, 0), "held_sha256": sha256(b"message 1").digest()}
    later.answers(Kind.HELLO, 1, **held)
    later.core._raise_failure()
    later.answers(Kind.HELLO, 1, **held | {"held_sha256": sha256(b"another").digest()})
    with pytest.raises(PeerBehind, match="holds a message of round 1 from this member"):
        later.core._raise_failure()


def test_a_message_that_was_never_sent_to_a_neighbour_cannot_be_held_by_it(later):
    later.answers(Kind.HELLO, 3, held=Slot(3, 0), held_sha256=sha256(b"message 3").digest())
    with pytest.raises(PeerBehind, match="round 3"):
        later.core._raise_failure()


def test_links_and_queries_of_earlier_rounds_are_still_counted(later):
    notes = later.core.notes
    assert [notes.links_in(round) for round in (0, 2, 4)] == [([2], []), ([], [2]), ([2], [])]
    assert [notes.has_begun(round) for round in range(7)] == [True] * 6 + [False]
    for number in (6, 6, 7):
        notes.answers.pop(number, None)  # a crash before the answer was on record
        notes.answer_once(number, 6, lambda again: b"answer")
    assert (notes.times_asked, notes.count_answers()) == (3, 2)
    notes.commit(7, b"state", sync=True)
    notes.go_away(7, 9)
    assert (notes.times_asked, notes.count_answers()) == (3, 2)
    assert [notes.has_begun(round) for round in range(5, 10)] == [True, True, False, False, False]
