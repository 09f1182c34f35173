"""One link and one slot, every interleaving: whatever is lost, repeated, overtaken or restarted, both ends decide the same.

All states that two real links can reach are explored. A frame that was sent once may arrive at any time, any number of times, or never.
"""

import contextlib
from hashlib import sha256

from tacit.peer.protocol.interface import Frame, Header, Kind, PeerTerms, Record, RecordKind, Refused, Slot
from tacit.peer.protocol.link import Link, Opened
from tacit.peer.protocol.notes import Notes
from tacit.peer.protocol.slots import Sealed

SLOT, RUN = Slot(0, 0), bytes(32)
MESSAGES = [b"from the decider", b"from the voter.."]
SEALED = [Sealed(each, sha256(each).digest()) for each in MESSAGES]


class _Journal:
    def __init__(self, records):
        self.records = list(records)

    def append(self, *records, sync=True):
        self.records += [(record, sync) for record in records]
        if sync:
            self.records = [(record, True) for record, _ in self.records]

    def read(self):
        return [record for record, _ in self.records]


class _End:
    """One end, rebuilt from its history: which records it has and what it was told since it started."""

    def __init__(self, agent, records):
        self.agent, self.out, self.journal = agent, [], _Journal(records)
        terms = PeerTerms(
            run=RUN,
            agreement=RUN,
            agent=agent,
            members=(0, 1),
            neighbors=(1 - agent,),
            rounds=1,
            most_bytes=99,
            norm_bound=1,
        )
        self.link = Link(1 - agent, terms, Notes(self.journal), self._send, lambda event: None)
        self.link.connect(0.0)
        self.link._notes.seal(SLOT, MESSAGES[agent])
        self.link.enter(Opened(SLOT, SEALED[agent], 0.0, lambda message: None), 0.0)

    def _send(self, kind, slot, sealed):
        self.link._notes.sync()  # as the sender does
        self.out.append((kind, sealed is not None))

    def hear(self, kind, now):
        carries = kind in (Kind.VOTE, Kind.USE)
        message = SEALED[1 - self.agent]
        header = Header(
            kind=kind,
            run=RUN,
            agreement=RUN,
            slot=SLOT,
            length=len(message.message) if carries else 0,
            sha256=message.sha256 if carries else b"",
        )
        with contextlib.suppress(Refused):  # the core does not use such a frame
            self.link.hear(Frame(header, message.message if carries else b""), self.position, now)

    @property
    def position(self):
        return SLOT if self.used is None else Slot(1, 0)

    @property
    def used(self):
        verdict = self.link._notes.at(SLOT).decided.get(1 - self.agent)
        return None if verdict is None else verdict.used

    def give_up(self):
        """The deadline passes."""
        if not self.link.settled and not self.link.bound:
            self.link._give_up()

    def disk(self, synced_only):
        """What a crash leaves: everything that was synced and, if it is lucky, the rest."""
        records, last = self.journal.records, 0
        for place, (_, sync) in enumerate(records):
            last = place + 1 if sync else last
        return records[:last] if synced_only else records


def _play(history):
    """Return both ends and the kinds of frames on their way to each, after a history of actions."""
    ends = [_End(0, []), _End(1, [])]
    sent = [set(), set()]  # to each end; a frame that was sent once can arrive at any time, any number of times
    now = 0.0

    def collect():
        for end in ends:
            sent[1 - end.agent] |= {kind for kind, _ in end.out}
            end.out.clear()

    collect()
    for number, (action, agent, detail) in enumerate(history):
        now = 10.0 * (number + 1)
        end = ends[agent]
        if action == "hear":
            end.hear(detail, now)
        elif action == "give up":
            end.give_up()
        elif action == "ask":
            end.link.tick(now, 1, patient=True)
        else:
            ends[agent] = _End(agent, end.disk(detail))
        collect()
    return ends, sent


def _digest(ends, sent):
    """Two histories with the same digest have the same futures."""
    facts = []
    for end in ends:
        notes = end.link._notes
        synced = end.disk(True) == end.journal.records
        facts.append((end.used, end.link.bound, end.link._ready, synced, SLOT in notes.reopened, end.link.lost))
    return tuple(facts), tuple(frozenset(each) for each in sent)


def explore():
    """Return all outcomes on which both ends agree, a history after which they do not if there is one, and how many states there are."""
    seen, edge, outcomes = set(), [()], set()
    while edge:
        history = edge.pop(0)
        for action in _actions(*_play(history)):
            ends, sent = _play((*history, action))
            used = [end.used for end in ends]
            if None not in used:
                if used[0] != used[1]:
                    return outcomes, (*history, action), len(seen)
                outcomes.add(used[0])
            if (digest := _digest(ends, sent)) not in seen:
                seen.add(digest)
                edge.append((*history, action))
    return outcomes, None, len(seen)


def test_both_ends_decide_the_same_in_every_interleaving():
    outcomes, disagreement, states = explore()
    assert disagreement is None
    assert outcomes == {True, False}
    assert states > 100


def test_a_voter_that_gives_up_after_its_vote_is_found(monkeypatch):
    monkeypatch.setattr(_End, "give_up", lambda self: None if self.link.settled else self.link._give_up())
    assert explore()[1] is not None


def test_a_vote_that_is_not_synced_is_found(monkeypatch):
    monkeypatch.setattr(
        Notes, "vote", lambda self, slot, neighbor: self._write(Record(RecordKind.VOTED, slot, neighbor), sync=False)
    )
    assert explore()[1] is not None


def test_a_decision_that_is_not_synced_is_found(monkeypatch):
    monkeypatch.setattr(Notes, "use", Notes.follow)
    assert explore()[1] is not None


def _actions(ends, sent):
    for agent in (0, 1):
        for kind in sorted(sent[agent]):
            yield "hear", agent, kind
        yield "give up", agent, None
        yield "ask", agent, None
        yield "crash", agent, True
        yield "crash", agent, False
