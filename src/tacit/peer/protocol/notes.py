"""What the journal says, in memory: read once at the start, then changed only together with the journal.

The journal is always written first. Only what must be on the disk before something else happens waits for it: that a query begins, before
it is asked; a vote or a decision, before anything is sent (`promised` says that one is not there yet, and `sync` waits for it, once for
several links). Records keep their order, so that these take with them what came before: no message
leaves before it is sealed on the disk, nor before the answers in it are.

Memory holds the open round, and of earlier ones the last exchange that each neighbour used. Whatever else is asked about them is looked
up in the journal, so that a run takes as much memory after many rounds as after a few.
"""

from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple

from tacit.errors import StorageError
from tacit.peer.protocol.interface import NOWHERE, Journal, Record, RecordKind, Slot
from tacit.peer.protocol.slots import Sealed, SlotNotes

_OF_LINKS = (RecordKind.VOTED, RecordKind.USED, RecordKind.SKIPPED, RecordKind.HELD)
_OF_SLOTS = (RecordKind.SEAL, *_OF_LINKS)


class Held(NamedTuple):
    """The last message of a neighbour that this member holds, or held."""

    slot: Slot = NOWHERE
    sha256: bytes = b""


class Notes:
    """The journal of one member, with everything that the protocol asks of it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._slots: dict[Slot, SlotNotes] = {}
        self._last_used: dict[int, Slot] = {}
        self.answers: dict[int, bytes] = {}  # of the open round
        self._begun: Counter[int] = Counter()  # queries of the open round
        self._queries_before = 0  # in earlier rounds, each counted once
        self.times_asked = 0
        self._begun_last = -1  # the last round of which anything is in the journal
        self._away: list[range] = []
        self.held: dict[int, Held] = {}
        self.last_exchange = 0  # the highest in any round so far
        self.position = Slot(0, 0)
        self.state: bytes | None = None
        self.key: bytes | None = None
        self.document: tuple[int, bytes] | None = None
        self.ended: set[int] = set()
        self.promised: set[RecordKind] = set()  # of votes and decisions that are not on the disk yet
        self._followed: list[
            Record
        ] = []  # decisions of neighbours that the journal gets with the next message or state
        for record in journal.read():
            self._apply(record)
        self.reopened = frozenset(slot for slot, notes in self._slots.items() if notes.sealed is not None)
        """Slots that were open when the last process ended, and some that were past."""

    def at(self, slot: Slot) -> SlotNotes:
        """Return what is known of a slot, for reading: from memory or, of earlier rounds, from the journal, where messages are forgotten."""
        found = self._slots.get(slot)
        if found is None:
            found = SlotNotes()
            if slot.round < self.position.round:
                for record in self._journal.find(slot):
                    found.take(record._replace(body=b""))
        return found

    def has_begun(self, round: int) -> bool:
        """Whether this member has played a round, or has begun to."""
        played = round < self.position.round and not any(round in away for away in self._away)
        return played or round == self._begun_last

    def answer_once(self, number: int, round: int, ask: Callable[[bool], bytes]) -> bytes:
        """Return the answer to a query: the one on record or, after the journal says that it begins, a new one.

        `ask` is told whether the query had begun before and its answer was lost.
        """
        if number not in self.answers:
            again = self._begun[number] > 0
            self._write(Record(RecordKind.INTENT, Slot(round, 0), number=number))
            self.record_answer(number, round, ask(again))
        return self.answers[number]

    def record_answer(self, number: int, round: int, answer: bytes) -> None:
        """Keep the answer to a query."""
        self._write(Record(RecordKind.ANSWER, Slot(round, 0), number=number, body=answer), sync=False)

    def seal(self, slot: Slot, message: bytes) -> Sealed:
        """Keep a message exactly as it will be sent; a second one for the same slot must be the same."""
        sealed = self.at(slot).sealed
        if sealed is not None and sealed.message == message:
            return sealed
        digest = sha256(message).digest()
        if sealed is None:
            self._write(Record(RecordKind.SEAL, slot, body=message, sha256=digest), sync=False)
            return Sealed(message, digest)
        if sealed.sha256 != digest:
            raise StorageError(
                f"the message of round {slot.round} was computed again and differs from the one on record; this happens with another "
                "version of torch or another processor. Continue with those that the run began with"
            )
        return sealed

    def vote(self, slot: Slot, neighbor: int) -> None:
        """State that a vote is sent."""
        if neighbor not in self.at(slot).voted:
            self._promise(Record(RecordKind.VOTED, slot, neighbor))

    def use(self, slot: Slot, neighbor: int, message: bytes, digest: bytes) -> None:
        """Decide that a link is used, with what the neighbour sent."""
        self._promise(Record(RecordKind.USED, slot, neighbor, body=message, sha256=digest))

    def follow(self, slot: Slot, neighbor: int, message: bytes, digest: bytes) -> None:
        """State that the neighbour decided to use a link, with what it sent.

        If this is lost in a crash, the neighbour can be asked again until this member votes in a later slot. So the journal gets it before
        this member's next message, query or state; most often with the state that makes its body superfluous. Where that takes long,
        `keep_followed` writes it before: the neighbour may come back with an old disk, which this record gives away.
        """
        record = Record(RecordKind.USED, slot, neighbor, body=message, sha256=digest)
        self._followed.append(record)
        self._apply(record)

    def keep_followed(self) -> None:
        """Return when all that neighbours decided is on the disk."""
        if self._followed:
            followed, self._followed = self._followed, []
            self._journal.append(*followed)

    def skip(self, slot: Slot, neighbor: int) -> None:
        """State that a link is not used."""
        self._promise(Record(RecordKind.SKIPPED, slot, neighbor))

    def sync(self) -> None:
        """Return when all votes and decisions are on the disk."""
        if self.promised:
            self._journal.append()
            self.promised.clear()

    def hold(self, slot: Slot, neighbor: int, digest: bytes) -> None:
        """Keep the hash of a message that is not used now."""
        if neighbor not in self.at(slot).hashes:
            self._write(Record(RecordKind.HELD, slot, neighbor, sha256=digest), sync=False)

    def commit(self, round: int, state: bytes, *, sync: bool) -> None:
        """State that all rounds before this one are complete, and forget what only they needed.

        The last message that each neighbour used stays: a neighbour that has voted may ask for it, however much later.
        """
        self._journal.forget(round, frozenset(self._last_used.values()))
        self._write(Record(RecordKind.COMMIT, Slot(round, 0), body=state), sync=sync)

    def links_in(self, round: int) -> tuple[list[int], list[int]]:
        """Return the neighbours whose links a round used, and those whose links it skipped, once for each exchange."""
        slots = [self.at(Slot(round, exchange)).decided for exchange in range(self.last_exchange + 1)]
        decided = [(other, slot[other].used) for slot in slots for other in sorted(slot)]
        return [other for other, used in decided if used], [other for other, used in decided if not used]

    def go_away(self, first: int, until: int) -> None:
        """State that this member takes no part in some rounds."""
        self._write(Record(RecordKind.AWAY, Slot(first, 0), number=until))

    def keep_key(self, key: bytes) -> None:
        """Keep the ephemeral key."""
        self._write(Record(RecordKind.KEY, body=key))

    def adopt(self, version: int, document: bytes) -> None:
        """Keep a new version of the agreement."""
        self._write(Record(RecordKind.VERSION, number=version, body=document))

    def note_end(self, neighbor: int) -> None:
        """State that a neighbour needs nothing more."""
        if neighbor not in self.ended:
            self._write(Record(RecordKind.ENDED, neighbor=neighbor))

    def count_answers(self) -> int:
        """Return how many queries have answers on record, or had until their round was complete."""
        return self._queries_before + sum(number in self.answers for number in self._begun)

    def _write(self, record: Record, *, sync: bool = True) -> None:
        followed = []
        if record.kind not in _OF_LINKS:
            followed, self._followed = self._followed, []
        self._journal.append(*followed, record, sync=sync)
        self._apply(record)

    def _promise(self, record: Record) -> None:
        self._write(record, sync=False)
        self.promised.add(record.kind)

    def _apply(self, record: Record) -> None:
        kind, slot, neighbor = record.kind, record.slot, record.neighbor
        if kind in _OF_SLOTS:
            self._apply_to_slot(record)
        elif kind == RecordKind.INTENT:
            self._begun[record.number] += 1
            self.times_asked += 1
            self._begun_last = slot.round
        elif kind == RecordKind.ANSWER:
            self.answers[record.number] = record.body
        elif kind == RecordKind.COMMIT:
            self.state = record.body
            self._go_to(slot)
        elif kind == RecordKind.AWAY:
            self._away.append(range(slot.round, record.number))
            self._go_to(Slot(record.number, 0))
        elif kind == RecordKind.KEY:
            self.key = record.body
        elif kind == RecordKind.VERSION:
            self.document = record.number, record.body
        elif kind == RecordKind.ENDED:
            self.ended.add(neighbor)

    def _apply_to_slot(self, record: Record) -> None:
        kind, slot, neighbor = record.kind, record.slot, record.neighbor
        if slot.round >= self.position.round or slot in self._slots:
            self._slots.setdefault(slot, SlotNotes()).take(record)
        if kind == RecordKind.SEAL:
            self._begun_last = slot.round
            self.last_exchange = max(slot.exchange, self.last_exchange)
        elif kind == RecordKind.USED:
            self._last_used[neighbor] = slot
        if kind in (RecordKind.USED, RecordKind.HELD) and slot >= self.held.get(neighbor, Held()).slot:
            self.held[neighbor] = Held(slot, record.sha256)

    def _go_to(self, position: Slot) -> None:
        """Reach a round, and keep of those before it only what a neighbour may need."""
        self.position = position
        self._queries_before += len(self._begun)
        self._begun.clear()
        self.answers.clear()
        keep = {*self._last_used.values()}
        for slot in [slot for slot in self._slots if slot.round < position.round]:
            if slot in keep:
                self._slots[slot].drop_inbox()
            else:
                del self._slots[slot]
