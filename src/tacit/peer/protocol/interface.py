"""What the protocol core needs from outside, and what it offers: everything between the core and a site passes through here.

The core (`tacit.peer.protocol.core.Core`) is asyncio code without threads. Clock, wire, journal and randomness are parameters, so that
the same code runs between real sites and in a simulation with a virtual clock.

The wire calls these methods of the core, all synchronous, from the event loop's thread:

- `core.connected(neighbor)`: a link is up, and the other end has proved that it is that member.
- `core.disconnected(neighbor)`: it is down. The wire reconnects by itself.
- `core.admit(neighbor, header)`: before memory is allocated for a payload; raises `Refused`, after which the payload is not read.
- `core.received(neighbor, frame)`: a whole frame. It never raises for what a neighbour sent.

The core calls `wire.send(neighbor, frame)` and `wire.cut(neighbor, why)`. Neither blocks, and neither may call back into the core
before it returns.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, Protocol

from tacit.errors import NetworkError

PROTOCOL = 3
"""The version of the protocol; frames of another one are refused."""


class Slot(NamedTuple):
    """One exchange of one round: both are counted from 0. The position after the last round is `Slot(rounds, 0)`."""

    round: int
    exchange: int


NOWHERE = Slot(-1, 0)
"""Before the first round: where a neighbour is of whom nothing is held."""


class Kind(IntEnum):
    """What a frame says. On each link the end with the lower number decides; the other one votes."""

    HELLO = 1
    """My position is `slot`, and the highest message of yours that I hold is `held`, with hash `held_sha256`. `answer` asks for the same.

    `plan` is the hash of the plan that I settled for all members; a member that has finished states none."""
    READY = 2
    """Decider to voter: I am at `slot` and wait for your vote."""
    ASK = 3
    """Voter to decider: I am at `slot`; what did you decide? Answered by READY, USE or SKIP."""
    VOTE = 4
    """Voter to decider: my message of `slot`. I now wait for your decision."""
    USE = 5
    """Decider to voter: `slot` uses this link, and this is my message."""
    SKIP = 6
    """Either way: `slot` does not use this link. A voter says it only of a slot in which it did not vote."""
    KEYS = 7
    """Signed ephemeral keys of members, to be relayed; see `tacit.peer.secrets`."""
    VERSION = 8
    """A newer version of the agreement, as `PeerTerms.document` holds it."""
    FORGOTTEN = 9
    """Decider to voter: `slot` used this link, and I no longer hold my message, as you have used a later one. The voter cannot continue."""


CARRIES_MESSAGE = (Kind.VOTE, Kind.USE)
CARRIES_DOCUMENT = (Kind.KEYS, Kind.VERSION)


@dataclass(frozen=True, kw_only=True)
class Header:
    """Everything about a frame but its payload. `length` and `sha256` are the payload's; hashes are 32 bytes, or empty for none."""

    kind: Kind
    run: bytes
    agreement: bytes
    slot: Slot
    protocol: int = PROTOCOL
    dtype: str = ""
    length: int = 0
    sha256: bytes = b""
    held: Slot = NOWHERE
    held_sha256: bytes = b""
    answer: bool = False
    plan: bytes = b""


@dataclass(frozen=True)
class Frame:
    """A header and its payload: a message's bytes exactly as they were sealed, or a document."""

    header: Header
    payload: bytes = b""


@dataclass(frozen=True, kw_only=True)
class PeerTerms:
    """What the core needs of an agreement, seen from one member.

    run: the hash of the agreement's first version, 32 bytes: the run's identity.
    agreement, version: the hash and the number (from 1) of this version.
    earlier: the hashes of all earlier versions. Frames under these are still read, as members adopt a version one after another.
    plan: the hash of what is planned to be asked of all members, which must be the same everywhere; empty once there is nothing left to ask.
    document: this version with its signatures, as bytes; sent to neighbours that hold an earlier one.
    agent: this member's number. members: all members' numbers. neighbors: those with whom it ever shares a link.
    rounds: how many rounds there are, gossip included.
    gone: members that were declared gone, and the round from which masks are shared without each.
    dtype: of the numbers in messages, such as "float32".
    most_bytes: the largest payload of any frame; a larger one is refused before it is read.
    norm_bound: the largest Euclidean norm of a vector in a message.
    compute_seconds, least_bandwidth (bytes a second): a link is skipped when nothing was heard for
        size / least_bandwidth + compute_seconds after this member was ready.
    grace_seconds: how long a link that is down is waited for, once, before rounds go on without it.
    resend_seconds: after how long a question without an answer is repeated. Longer than the largest message takes.
    linger_seconds: how long a member that has finished stays for neighbours that have not.
    fewest: how many links a round of this member needs. With fewer up, or fewer used while no neighbour has gone ahead, it waits without a deadline.
    """

    run: bytes
    agreement: bytes
    agent: int
    members: tuple[int, ...]
    neighbors: tuple[int, ...]
    rounds: int
    most_bytes: int
    norm_bound: float
    version: int = 1
    earlier: tuple[bytes, ...] = ()
    plan: bytes = b""
    document: bytes = b""
    gone: Mapping[int, int] = field(default_factory=dict)
    dtype: str = "float32"
    compute_seconds: float = 60.0
    least_bandwidth: float = 125_000.0
    grace_seconds: float = 10.0
    resend_seconds: float = 5.0
    linger_seconds: float = 60.0
    fewest: int = 1

    def deadline(self, size: int) -> float:
        """Return for how many seconds a message of this size is waited for."""
        return size / self.least_bandwidth + self.compute_seconds

    def decides(self, neighbor: int) -> bool:
        """Whether this member decides about a link: the lower number does."""
        return self.agent < neighbor


class Refused(NetworkError):
    """A frame that is not used at all. The text names the check that it failed and nothing private."""


class PeerBehind(NetworkError):
    """This member cannot continue: others hold what its journal does not, or no longer hold what it needs. Nothing new was sent."""


class PlanDiffers(NetworkError):
    """A neighbour settled another plan of lots, noise and masks than this member. Nothing new was asked or sent."""


class Clock(Protocol):
    """The time, and a way to wait. One core has one clock; only the core waits on it."""

    def now(self) -> float:
        """Return seconds since some fixed moment; never goes back."""

    async def wait(self, until: float | None) -> None:
        """Return after `wake` was called since the last wait, or at this time; None waits for `wake` alone."""

    def wake(self) -> None:
        """End the current wait, or the next one."""


class Wire(Protocol):
    """Carries frames to neighbours. A frame may be lost, repeated or overtaken; what arrives is whole."""

    def send(self, neighbor: int, frame: Frame) -> None:
        """Queue a frame; drop it if the link is down. The core repeats what matters."""

    async def drain(self) -> None:
        """Return when what was queued is on its way: a computation that blocks the loop follows. Gives up on links that are slow."""

    def cut(self, neighbor: int, why: str) -> None:
        """Close the link to a neighbour that broke the rules, and do not open it again."""


class RecordKind(IntEnum):
    """What a line of the journal states."""

    INTENT = 1
    """Query `number` begins: it is charged, and its masks count as used."""
    ANSWER = 2
    """The answer to query `number`."""
    SEAL = 3
    """This member's message in `slot`, exactly as it is sent."""
    VOTED = 4
    """The message of `slot` may have been sent to `neighbor` as a vote."""
    USED = 5
    """The link to `neighbor` is used in `slot`; `body` is what it sent."""
    SKIPPED = 6
    """The link to `neighbor` is not used in `slot`."""
    HELD = 7
    """The hash of a message of `neighbor` in `slot` that arrived and is not used."""
    COMMIT = 8
    """All rounds before `slot` are complete; `body` is the state after them."""
    AWAY = 9
    """This member takes no part in the rounds from `slot` until round `number`."""
    KEY = 10
    """This member's ephemeral key, sealed."""
    VERSION = 11
    """A version of the agreement that was adopted; `body` is its document."""
    ENDED = 12
    """`neighbor` has played all rounds and holds the newest version of the agreement: it needs nothing more."""


class Record(NamedTuple):
    """One line of the journal."""

    kind: RecordKind
    slot: Slot = NOWHERE
    neighbor: int = -1
    number: int = -1
    body: bytes = b""
    sha256: bytes = b""


class Journal(Protocol):
    """What survives a crash, in order. Records that are appended together are there together or not at all."""

    def append(self, *records: Record, sync: bool = True) -> None:
        """Add records. With `sync` they and all earlier ones are on disk when this returns; without, soon."""

    def read(self) -> Iterable[Record]:
        """Return all records that are kept, oldest first."""

    def find(self, slot: Slot) -> Iterable[Record]:
        """Return all records of a slot, oldest first, those that are not synced too. Bodies may be missing."""

    def forget(self, before: int, keep: Collection[Slot]) -> None:
        """Drop what is not needed any more: answers, states and messages of rounds before `before`.

        This member's own messages of the slots in `keep` stay, and so do hashes and decisions.
        """

    def close(self) -> None:
        """Close it."""


class Randomness(Protocol):
    """Where fresh secrets come from: the operating system, or a seed in a simulation."""

    def token(self, count: int) -> bytes:
        """Return this many bytes."""


class LinkUsed(NamedTuple):
    """Both ends used a link."""

    slot: Slot
    neighbor: int


class LinkSkipped(NamedTuple):
    """Neither end used a link; `why` is a short text."""

    slot: Slot
    neighbor: int
    why: str


class RoundDone(NamedTuple):
    """A round is complete. Its exchanges over links, by neighbours: those that happened, and those that were skipped."""

    round: int
    used: tuple[int, ...]
    skipped: tuple[int, ...]


class RoundsAway(NamedTuple):
    """This member took no part in rounds `first` to `until` - 1: its neighbours were ahead when it came back."""

    first: int
    until: int


class PeerLost(NamedTuple):
    """Nothing was heard of a neighbour in time; rounds go on without it."""

    neighbor: int


class PeerBack(NamedTuple):
    """A neighbour that was lost speaks again."""

    neighbor: int


class Equivocation(NamedTuple):
    """A neighbour sent two different messages for one slot; the link was cut."""

    neighbor: int
    slot: Slot


class FrameRefused(NamedTuple):
    """A frame of a neighbour failed a check and was not used."""

    neighbor: int
    why: str


class VersionAdopted(NamedTuple):
    """A newer version of the agreement is in force here."""

    version: int


PeerEvent = (
    LinkUsed | LinkSkipped | RoundDone | RoundsAway | PeerLost | PeerBack | Equivocation | FrameRefused | VersionAdopted
)


class Observe(Protocol):
    """Receives every event of the core as it happens; must not call back into the core."""

    def __call__(self, event: PeerEvent) -> None:
        """Take note of an event."""


class AcceptVersion(Protocol):
    """Verifies a document that arrived as VERSION: signatures, quorum, chaining to the current version."""

    def __call__(self, document: bytes) -> PeerTerms:
        """Return the terms of this version; raise `TacitError` if it is not valid."""
