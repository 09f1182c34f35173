"""What one member sends besides messages: greetings, signed keys and versions of the agreement, each as a frame."""

from collections.abc import Collection
from hashlib import sha256
from typing import Protocol

from tacit.peer.protocol.interface import NOWHERE, Frame, Header, Kind, PeerTerms, Slot, Wire
from tacit.peer.protocol.notes import Held, Notes
from tacit.peer.protocol.slots import Sealed

_PROMISES_NOTHING = (Kind.READY, Kind.ASK)


class KeyRelay(Protocol):
    """The exchange of ephemeral keys; see `tacit.peer.secrets.KeyExchange`."""

    @property
    def complete(self) -> bool:
        """Whether all keys that this member needs are there."""

    def begin(self, notes: Notes) -> None:
        """Make this member's key, or take it from the journal."""

    def forgo(self, members: Collection[int]) -> None:
        """Do not wait for the keys of members that are gone."""

    def document(self) -> bytes:
        """Return all signed keys that are known here."""

    def learn(self, document: bytes) -> bool:
        """Take in signed keys; return whether one was new. Raise `Refused` for one that is not valid."""


class Sender:
    """Makes frames under the agreement in force and hands them to the wire.

    While a vote or a decision is not on the disk, only READY and ASK are sent, which state neither. All other frames wait for `flush`, which
    lets several links share one wait for the disk.
    """

    def __init__(self, wire: Wire, notes: Notes, terms: PeerTerms, keys: KeyRelay | None) -> None:
        self._wire, self._notes, self.terms, self._keys = wire, notes, terms, keys
        self._waiting: list[tuple[int, Frame]] = []
        self._offered: dict[int, tuple[int, float]] = {}
        self._asked: dict[int, float] = {}

    def send(
        self,
        neighbor: int,
        kind: Kind,
        slot: Slot,
        sealed: Sealed | None = None,
        *,
        document: bytes = b"",
        answer: bool = False,
    ) -> None:
        """Send a frame: with a message, with a document, or with neither."""
        payload, digest = (document, b"") if sealed is None else sealed
        held = self._notes.held.get(neighbor, Held()) if kind == Kind.HELLO else Held()
        header = Header(
            kind=kind,
            run=self.terms.run,
            agreement=self.terms.agreement,
            slot=slot,
            dtype="" if sealed is None else self.terms.dtype,
            length=len(payload),
            sha256=sha256(payload).digest() if document else digest,
            held=held.slot,
            held_sha256=held.sha256,
            answer=answer,
            plan=self.terms.plan if kind == Kind.HELLO else b"",
        )
        if kind in _PROMISES_NOTHING:
            self._wire.send(neighbor, Frame(header, payload))
            return
        self._waiting.append((neighbor, Frame(header, payload)))
        if not self._notes.promised:
            self.flush()

    def flush(self) -> None:
        """Wait for the disk, then send what waited for it."""
        self._notes.sync()
        waiting, self._waiting = self._waiting, []
        for neighbor, frame in waiting:
            self._wire.send(neighbor, frame)

    def greet(self, neighbor: int, position: Slot, *, answer: bool) -> None:
        """Say where this member is and what it holds of the other one's, with all keys."""
        self.send(neighbor, Kind.HELLO, position, answer=answer)
        self.offer_keys(neighbor)

    def offer_keys(self, neighbor: int) -> None:
        """Send all signed keys that are known here."""
        if self._keys is not None:
            self.send(neighbor, Kind.KEYS, NOWHERE, document=self._keys.document())

    def offer_version(self, neighbor: int, now: float) -> None:
        """Send the newest version of the agreement, not more often than a question would be repeated."""
        last, when = self._offered.get(neighbor, (0, 0.0))
        if last < self.terms.version or now >= when + self.terms.resend_seconds:
            self._offered[neighbor] = self.terms.version, now
            self.send(neighbor, Kind.VERSION, NOWHERE, document=self.terms.document)

    def ask_for_version(self, neighbor: int, position: Slot, now: float) -> None:
        """Greet a neighbour that holds a newer version: it sees which one this member holds, and offers its own."""
        if now >= self._asked.get(neighbor, now):
            self._asked[neighbor] = now + self.terms.resend_seconds
            self.send(neighbor, Kind.HELLO, position)
