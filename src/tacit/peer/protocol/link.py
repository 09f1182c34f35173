"""One link as one of its ends sees it: what it sends when, and what it makes of what arrives, slot by slot.

The end with the lower number decides. It says READY when it has reached a slot; the other end answers with its vote, which carries its
message, and from then on waits. The decider writes USE or SKIP to its journal and then says so, with its own message in the case of USE.
Before it has voted, the voter may give up by itself; before it has a vote, the decider may. So a slot is used by both ends or by
neither, whatever is lost, repeated or late, and whoever crashes when. Only a new version of the agreement ends the
wait of a voter whose decider is gone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from tacit.peer.protocol.interface import (
    NOWHERE,
    Equivocation,
    Frame,
    Kind,
    LinkSkipped,
    LinkUsed,
    Observe,
    PeerBack,
    PeerBehind,
    PeerLost,
    PeerTerms,
    Refused,
    Slot,
)
from tacit.peer.protocol.notes import Notes
from tacit.peer.protocol.slots import Sealed


class EquivocationFound(Refused):
    """Two different messages for one slot."""


class Pending(NamedTuple):
    """An exchange that has to be settled: this member's message, those it is exchanged with, and what refuses a message of theirs."""

    slot: Slot
    message: bytes
    neighbors: tuple[int, ...]
    accept: Callable[[bytes], None]


@dataclass
class Opened:
    """The slot that is being settled: this member's message, since when it waits, and how it reads a neighbour's message."""

    slot: Slot
    sealed: Sealed
    since: float
    accept: Callable[[bytes], None]


class Link:
    """The link to one neighbour. `send` queues a frame of a kind for a slot, with a message where it carries one."""

    def __init__(
        self,
        neighbor: int,
        terms: PeerTerms,
        notes: Notes,
        send: Callable[[Kind, Slot, Sealed | None], None],
        observe: Observe,
    ) -> None:
        self.neighbor, self.terms, self._notes, self._send, self._observe = neighbor, terms, notes, send, observe
        self.connected = self.greeted = self.lost = self.cut = False
        self.refused = False  # whether the neighbour's message of the open slot cannot be used
        self.position = NOWHERE
        self.agreement = b""  # the version under which the neighbour spoke last
        self._opened: Opened | None = None
        self._ready = NOWHERE  # the last slot in which the decider was ready, since the link is up and none was skipped
        self._early: Frame | None = None
        self._down_since = 0.0
        self._ask_at = 0.0
        self._delivered: tuple[Slot, float] = NOWHERE, 0.0

    @property
    def decides(self) -> bool:
        """Whether this end decides."""
        return self.terms.decides(self.neighbor)

    @property
    def settled(self) -> bool:
        """Whether the open slot is decided."""
        return self._opened is None or self._decided(self._opened.slot)

    @property
    def used(self) -> bool:
        """Whether the open slot uses this link."""
        return self._opened is not None and self._notes.at(self._opened.slot).used(self.neighbor)

    @property
    def bound(self) -> bool:
        """Whether this end has voted and must wait for the decider."""
        return self._opened is not None and self.neighbor in self._notes.at(self._opened.slot).voted

    @property
    def awaited(self) -> bool:
        """Whether the neighbour has to speak before anything can be decided, and is likely to."""
        return self.connected and not (self.lost or self.settled or self.bound)

    def enter(self, opened: Opened, now: float) -> None:
        """Reach a slot."""
        self._opened, self.refused = opened, False
        if self.settled:
            return
        if self.neighbor in self.terms.gone or self.cut:
            self._skip("it was declared gone" if self.neighbor in self.terms.gone else "the link was cut")
        elif self.decides and opened.slot in self._notes.reopened:
            self._skip("this member restarted before it had decided")
        elif self.decides:
            self._ask(now)
            early, self._early = self._early, None
            if early is not None and early.header.slot == opened.slot:
                self._take_vote(early, now)
        elif self._ready == opened.slot:
            self._ask_at = now + self.terms.resend_seconds
            self._vote(now)
        elif NOWHERE < self._ready < opened.slot and self.position < opened.slot:
            self._ask_at = now + self.terms.resend_seconds  # the decider is not there yet, and says when it is
        else:
            self._ask(now)

    def leave(self) -> None:
        """Close the slot."""
        self._opened = None

    def tick(self, now: float, size: int, *, patient: bool) -> float | None:
        """Do what is due and return when something is due next; `patient` stops deadlines."""
        if self.settled or self._opened is None:
            return None
        if self.neighbor in self.terms.gone or self.cut:
            self._skip("it was declared gone" if self.neighbor in self.terms.gone else "the link was cut")
            return None
        expires = None if patient or self.bound else self._expires(self._opened.since, size)
        if expires is not None and now >= expires:
            self._give_up()
            return None
        if now >= self._ask_at:
            self._ask(now)
        return self._ask_at if expires is None else min(expires, self._ask_at)

    def connect(self, now: float) -> None:
        """The link is up."""
        self.connected, self._ask_at, self._delivered, self._ready = True, now, (NOWHERE, 0.0), NOWHERE

    def disconnect(self, now: float) -> None:
        """The link is down."""
        self.connected, self._down_since = False, now

    def hear(self, frame: Frame, position: Slot, now: float) -> None:
        """Take in a frame that passed all checks but those of its content."""
        header = frame.header
        if self.lost:
            self.lost = False
            self._observe(PeerBack(self.neighbor))
        if header.kind in (Kind.HELLO, Kind.READY, Kind.ASK, Kind.VOTE):
            self.position = max(self.position, header.slot)
        if header.kind == Kind.READY:
            self._hear_ready(header.slot, position, now)
        elif header.kind == Kind.ASK:
            self._hear_ask(header.slot, position, now)
        elif header.kind == Kind.VOTE:
            self._hear_vote(frame, position, now)
        elif header.kind == Kind.USE:
            self._hear_use(frame)
        elif header.kind == Kind.SKIP:
            self._hear_skip(header.slot)
        elif header.kind == Kind.FORGOTTEN and self._awaits(header.slot):
            raise PeerBehind(
                f"member {self.neighbor} used its link with this one in round {header.slot.round} and no longer holds its message, "
                "which is kept until a later one is used: one of the two journals is not what it was. Declare this member gone in a new version of "
                "the agreement"
            )

    def _decided(self, slot: Slot) -> bool:
        return self.neighbor in self._notes.at(slot).decided

    def _awaits(self, slot: Slot) -> bool:
        return self._opened is not None and self._opened.slot == slot and not self.settled

    def _hear_ready(self, slot: Slot, position: Slot, now: float) -> None:
        self._ready = max(self._ready, slot)
        if self._awaits(slot):
            self._vote(now)
            return
        known = self._notes.at(slot)
        if (slot < position or self.neighbor in known.decided) and not known.used(self.neighbor):
            self._send(Kind.SKIP, slot, None)

    def _hear_ask(self, slot: Slot, position: Slot, now: float) -> None:
        if self._awaits(slot):
            self._send(Kind.READY, slot, None)
        else:
            self._tell(slot, position, now)

    def _hear_vote(self, frame: Frame, position: Slot, now: float) -> None:
        header = frame.header
        self._check_hash(frame)
        if self._awaits(header.slot):
            self._take_vote(frame, now)
        elif header.slot >= position and not self._decided(header.slot):
            self._hold(frame, may_be_first=self._early is None)
            self._early = self._early or frame
        else:
            self._hold(frame)
            self._tell(header.slot, position, now)

    def _hear_use(self, frame: Frame) -> None:
        header = frame.header
        self._check_hash(frame)
        if not self._awaits(header.slot):
            return
        if not self.bound:
            raise Refused("a decision to use a link without this member's vote")
        self._read(frame)
        # The decider keeps its message until this member has used a later one.
        self._notes.follow(header.slot, self.neighbor, frame.payload, header.sha256)
        self._observe(LinkUsed(header.slot, self.neighbor))

    def _hear_skip(self, slot: Slot) -> None:
        if self._awaits(slot):
            self._skip("the other end skipped it", told=True)
        self._ready = NOWHERE  # it may take this member for lost, and hears of it at once in the next slot

    def _take_vote(self, frame: Frame, now: float) -> None:
        slot = frame.header.slot
        self._read(frame)
        self._notes.use(slot, self.neighbor, frame.payload, frame.header.sha256)
        self._observe(LinkUsed(slot, self.neighbor))
        self._tell(slot, slot, now)

    def _vote(self, now: float) -> None:
        # A vote binds this member, so it is not sent while the link is down.
        if self._opened is None or not self.connected or self._delivered_lately(self._opened.slot, now):
            return
        self._notes.vote(self._opened.slot, self.neighbor)
        self._deliver(Kind.VOTE, self._opened.slot, self._opened.sealed, now)

    def _tell(self, slot: Slot, position: Slot, now: float) -> None:
        """Repeat what was decided. A slot that this member passed without a record is skipped; of a later one nothing is known yet."""
        known = self._notes.at(slot)
        if self.neighbor not in known.decided and slot >= position:
            return
        if not known.used(self.neighbor):
            self._send(Kind.SKIP, slot, None)
        elif known.sealed is None or not known.sealed.message:
            self._send(Kind.FORGOTTEN, slot, None)
        elif not self._delivered_lately(slot, now):
            self._deliver(Kind.USE, slot, known.sealed, now)

    def _deliver(self, kind: Kind, slot: Slot, sealed: Sealed, now: float) -> None:
        self._delivered = slot, now
        self._send(kind, slot, sealed)

    def _delivered_lately(self, slot: Slot, now: float) -> bool:
        """Whether a message may still be on its way: it can be large."""
        last, when = self._delivered
        return last == slot and now < when + self.terms.resend_seconds / 2

    def _ask(self, now: float) -> None:
        assert self._opened is not None
        self._ask_at = now + self.terms.resend_seconds
        self._send(Kind.READY if self.decides else Kind.ASK, self._opened.slot, None)

    def _expires(self, since: float, size: int) -> float:
        if self.lost:
            return since
        until = since + self.terms.deadline(size)
        return until if self.connected else min(until, max(since, self._down_since) + self.terms.grace_seconds)

    def _give_up(self) -> None:
        if not self.lost:
            self.lost = True
            self._observe(PeerLost(self.neighbor))
        self._skip("nothing was heard in time")

    def _skip(self, why: str, *, told: bool = False) -> None:
        assert self._opened is not None
        slot = self._opened.slot
        self._notes.skip(slot, self.neighbor)
        self._observe(LinkSkipped(slot, self.neighbor, why))
        if not told and self.neighbor not in self.terms.gone and not self.cut:
            self._send(Kind.SKIP, slot, None)

    def _read(self, frame: Frame) -> None:
        """Refuse a message whose numbers cannot be used."""
        assert self._opened is not None
        expected = len(self._opened.sealed.message)
        try:
            if len(frame.payload) != expected:
                raise Refused(f"a message of {len(frame.payload)} bytes instead of {expected}")
            self._opened.accept(frame.payload)
        except Refused:
            self.refused = True
            self._notes.hold(frame.header.slot, self.neighbor, frame.header.sha256)
            raise

    def _hold(self, frame: Frame, *, may_be_first: bool = False) -> None:
        """Keep the hash of a vote that is not used now, unless its exchange is beyond those that any round has had: it would only fill memory."""
        slot = frame.header.slot
        if may_be_first or slot.exchange <= self._notes.last_exchange:
            self._notes.hold(slot, self.neighbor, frame.header.sha256)

    def _check_hash(self, frame: Frame) -> None:
        known = self._notes.at(frame.header.slot).hashes.get(self.neighbor)
        if known is not None and known != frame.header.sha256:
            self._observe(Equivocation(self.neighbor, frame.header.slot))
            raise EquivocationFound(f"two different messages for round {frame.header.slot.round}")
