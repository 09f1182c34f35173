"""What is known of one exchange: this member's message, and what became of each link."""

from typing import NamedTuple

from tacit.peer.protocol.interface import Record, RecordKind


class Sealed(NamedTuple):
    """A message of this member. `message` is empty once it was forgotten."""

    message: bytes
    sha256: bytes


class LinkVerdict(NamedTuple):
    """Whether a slot used a link, and what the neighbour sent, which is empty once it was forgotten."""

    used: bool
    message: bytes = b""


class SlotNotes:
    """The records of one slot. Neighbours are the keys of `decided` and `hashes`; `hashes` are those of what they sent."""

    def __init__(self) -> None:
        self.sealed: Sealed | None = None
        self.voted: set[int] = set()
        self.decided: dict[int, LinkVerdict] = {}
        self.hashes: dict[int, bytes] = {}

    def take(self, record: Record) -> None:
        """Take over a record; others than those of exchanges change nothing."""
        kind, neighbor = record.kind, record.neighbor
        if kind == RecordKind.SEAL:
            self.sealed = Sealed(record.body, record.sha256)
        elif kind == RecordKind.VOTED:
            self.voted.add(neighbor)
        elif kind in (RecordKind.USED, RecordKind.SKIPPED):
            self.decided[neighbor] = LinkVerdict(kind == RecordKind.USED, record.body)
        if kind in (RecordKind.USED, RecordKind.HELD):
            self.hashes[neighbor] = record.sha256

    def drop_inbox(self) -> None:
        """Forget what neighbours sent, but not that they did."""
        self.decided = {other: LinkVerdict(verdict.used) for other, verdict in self.decided.items()}

    def used(self, neighbor: int) -> bool:
        """Whether the link to a neighbour was used."""
        verdict = self.decided.get(neighbor)
        return verdict is not None and verdict.used

    def has_sent(self, neighbor: int) -> bool:
        """Whether the message may have been sent to a neighbour: as a vote, or with the decision to use it."""
        return neighbor in self.voted or self.used(neighbor)
