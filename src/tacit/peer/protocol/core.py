"""One member of a consortium: all its links, its journal and its place in the run.

Nothing is sent before it is in the journal, and nothing new at all before every neighbour has said what it holds: a disk that was
restored from an old copy cannot release twice. `tacit.peer.protocol.driver` plays rounds on top of this.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial

from tacit.errors import NetworkError, TacitError
from tacit.peer.protocol.checks import UnknownVersion, check_header, check_payload
from tacit.peer.protocol.interface import (
    CARRIES_MESSAGE,
    NOWHERE,
    AcceptVersion,
    Clock,
    Frame,
    FrameRefused,
    Header,
    Journal,
    Kind,
    Observe,
    PeerBehind,
    PeerTerms,
    PlanDiffers,
    RecordKind,
    Refused,
    RoundDone,
    RoundsAway,
    Slot,
    VersionAdopted,
    Wire,
)
from tacit.peer.protocol.link import EquivocationFound, Link, Opened, Pending
from tacit.peer.protocol.notes import Notes
from tacit.peer.protocol.sender import KeyRelay, Sender

GATHER_SECONDS = 0.001  # for which votes and decisions wait for others of the same slot, to share one wait for the disk
_MISSED = 2  # rounds that a neighbour played without this member, from which on this one gives up the rounds in between


class Core:
    """The protocol of one member. See `tacit.peer.protocol.interface` for what the wire calls and what it must offer."""

    def __init__(
        self,
        terms: PeerTerms,
        *,
        clock: Clock,
        wire: Wire,
        journal: Journal,
        observe: Observe = lambda event: None,
        accept: AcceptVersion | None = None,
        keys: KeyRelay | None = None,
    ) -> None:
        self.clock, self._wire, self._journal, self.observe = clock, wire, journal, observe
        self._accept, self._keys = accept, keys
        self.notes = Notes(journal)
        self.terms = self._newest(terms)
        self._sender = Sender(wire, self.notes, self.terms, keys)
        self.position = self.notes.position
        self.stopping = self._started = False
        self._opened: Opened | None = None
        self._failure: TacitError | None = None
        self._greet_at = 0.0
        self._promised_at: float | None = None
        self.links = {other: self._make_link(other) for other in self.terms.neighbors}
        self._heed_the_gone()
        if keys is not None:
            keys.begin(self.notes)

    # What the wire calls.

    def connected(self, neighbor: int) -> None:
        """A link is up."""
        if neighbor in self.links:
            self.links[neighbor].connect(self.clock.now())
            self._sender.greet(neighbor, self.position, answer=True)
            self.clock.wake()

    def disconnected(self, neighbor: int) -> None:
        """A link is down."""
        if neighbor in self.links:
            self.links[neighbor].disconnect(self.clock.now())
            self.clock.wake()

    def admit(self, neighbor: int, header: Header) -> None:
        """Raise `Refused` for a header whose payload is not to be read."""
        try:
            self._check(neighbor, header)
        except Refused as error:
            self._refuse(neighbor, header, error)
            raise

    def received(self, neighbor: int, frame: Frame) -> None:
        """Take in a frame."""
        try:
            self._check(neighbor, frame.header)
            check_payload(frame)
            self._hear(self.links[neighbor], frame)
        except EquivocationFound as error:
            self._cut(neighbor, str(error))
        except Refused as error:
            self._refuse(neighbor, frame.header, error)
        except TacitError as error:
            self._failure = error
        self.clock.wake()

    # What a site calls.

    async def start(self) -> None:
        """Return when every neighbour has said what it holds since this process began, and all keys are there."""
        while not self._joined():
            self._raise_failure()
            if self.clock.now() >= self._greet_at:
                self._greet_all(lambda link: not link.greeted or (self._keys is not None and not self._keys.complete))
            await self.clock.wait(self._greet_at)
        self._raise_failure()
        self._started = True

    def stop(self) -> None:
        """End the run at the next round boundary."""
        self.stopping = True
        self.clock.wake()

    def renew(self, terms: PeerTerms) -> None:
        """Adopt a newer version of the agreement, which the caller has verified."""
        if terms.run != self.terms.run:
            raise NetworkError("this version of an agreement belongs to another run")
        if terms.version <= self.terms.version:
            return
        self.notes.adopt(terms.version, terms.document)
        self.terms = self._sender.terms = terms
        for other in terms.neighbors:
            if other not in self.links:
                self.links[other] = self._make_link(other)
        for link in self.links.values():
            link.terms = terms
        self.observe(VersionAdopted(terms.version))
        self._heed_the_gone()
        for link in self.links.values():
            self._sender.offer_version(link.neighbor, self.clock.now())
        self.clock.wake()

    async def linger(self) -> None:
        """Answer neighbours until all are through and hold the newest agreement, or the agreed time has passed.

        The journal keeps who is through: a restart does not wait for them again.
        """
        until = self.clock.now() + self.terms.linger_seconds
        self._greet_all(lambda link: True)  # those who wait for this member alone can leave
        while self.clock.now() < until and not self.all_ended:
            self._raise_failure()
            if self.clock.now() >= self._greet_at:
                self._greet_all(self._unfinished)
            await self.clock.wait(min(until, self._greet_at))
            self._note_ends()
        self._note_ends()
        await self._wire.drain()

    @property
    def all_ended(self) -> bool:
        """Whether all neighbours that are left are known to need nothing more."""
        return not any(self._unfinished(link) for link in self.links.values())

    def close(self) -> None:
        """Close the journal, with all that is known in it."""
        self.notes.keep_followed()
        self._journal.close()

    # What a round needs.

    def outcome(self, pending: Pending) -> Mapping[int, bytes] | None:
        """Return the messages of the links that a slot used, or None while some are undecided."""
        known = self.notes.at(pending.slot)
        if known.sealed is None or not known.decided.keys() >= {*pending.neighbors}:
            return None
        self.notes.seal(pending.slot, pending.message)  # raises if it was computed differently this time
        return {other: known.decided[other].message for other in pending.neighbors if known.used(other)}

    async def settle(self, pending: Pending) -> None:
        """Seal a message, and return when both ends of every link know whether the slot uses it."""
        slot, now = pending.slot, self.clock.now()
        self._opened = Opened(slot, self.notes.seal(slot, pending.message), now, pending.accept)
        self.position = max(self.position, slot)
        links = [self.links[other] for other in pending.neighbors]
        for link in links:
            self._guarded(link, self._opened, now)
        while any(not link.settled for link in links):
            self._raise_failure()
            due = self._tick(links)
            gathers = self._gathers_until(links)
            if gathers is None:
                self._sender.flush()
            if self.clock.now() >= now + self.terms.resend_seconds:  # some link takes long
                self.notes.keep_followed()
            await self.clock.wait(min((time for time in (due, gathers) if time is not None), default=None))
        self._sender.flush()
        self._promised_at = None
        for link in links:
            link.leave()
        self._opened = None
        self.position = Slot(slot.round, slot.exchange + 1)
        self._raise_failure()
        await self._wire.drain()

    def commit(self, round: int, state: bytes) -> None:
        """State that a round is complete, with the state after it."""
        used, skipped = self.notes.links_in(round)
        last = round + 1 == self.terms.rounds
        self.notes.commit(round + 1, state, sync=last or self.stopping)
        self.position = Slot(round + 1, 0)
        self.observe(RoundDone(round, tuple(used), tuple(skipped)))

    def round_to_join(self, neighbors_of: Callable[[int], Collection[int]]) -> int | None:
        """Return a later round to continue with, where neighbours have played on without this member; None if they have not.

        A round of which anything is in the journal is always completed: a neighbour may have used it.
        """
        here = self.position.round
        if self.notes.has_begun(here):
            return None
        ahead = [
            link.position.round
            for link in self.links.values()
            if self._counts(link) and self._missed(link, here, neighbors_of) >= _MISSED
        ]
        return max(ahead, default=None)

    def go_away(self, until: int) -> None:
        """Take no part in the rounds before `until`."""
        first = self.position.round
        self.notes.go_away(first, until)
        self.position = Slot(until, 0)
        self.observe(RoundsAway(first, until))

    def _missed(self, link: Link, here: int, neighbors_of: Callable[[int], Collection[int]]) -> int:
        rounds = range(here, min(link.position.round, self.terms.rounds))
        return sum(link.neighbor in neighbors_of(round) for round in rounds)

    def _tick(self, links: list[Link]) -> float | None:
        """Let every link do what is due, and return when something is due next."""
        assert self._opened is not None
        now, size = self.clock.now(), len(self._opened.sealed.message)
        patient = self._patient(links, self._opened.slot)
        if patient:
            self._opened.since = now
        due = [link.tick(now, size, patient=patient) for link in links]
        if all(link.settled for link in links):
            return now
        return min((time for time in due if time is not None), default=None)

    def _gathers_until(self, links: list[Link]) -> float | None:
        """Return until when what was promised is not written yet, as other links may have something to add; None to write now.

        Votes wait for deciders that are not ready yet, and decisions for votes that are still to come.
        """
        promised, now = self.notes.promised, self.clock.now()
        if self._promised_at is None and promised:
            self._promised_at = now
        votes = RecordKind.VOTED in promised
        awaited = any(link.decides != votes and link.awaited for link in links)
        if self._promised_at is None or not awaited or now >= self._promised_at + GATHER_SECONDS:
            self._promised_at = None
            return None
        return self._promised_at + GATHER_SECONDS

    def _patient(self, links: list[Link], slot: Slot) -> bool:
        """Whether to wait for neighbours beyond the deadline, as too few links are up or used.

        Without this, a member whose neighbours all wait for others would play, and pay for, the rest of the run alone. Once a neighbour is past the
        slot, or this is the last round before a stop, nothing is gained by waiting.
        """
        counted = [link for link in links if self._counts(link) and not link.refused]
        needed = min(self.terms.fewest, len(counted))
        past = [
            link for link in counted if link.position > slot
        ]  # also those that have ended, and are not there any more
        if sum(link.connected or link in past for link in counted) < needed:
            return True
        used = sum(link.used for link in counted)
        return used < needed and not self.stopping and not past

    def _guarded(self, link: Link, opened: Opened, now: float) -> None:
        try:
            link.enter(opened, now)
        except Refused as error:  # a vote that came early and cannot be used
            self.observe(FrameRefused(link.neighbor, str(error)))

    def _check(self, neighbor: int, header: Header) -> None:
        expected = None if self._opened is None else len(self._opened.sealed.message)
        check_header(header, neighbor, self.terms, self.position, expected)
        if self.links[neighbor].cut:
            raise Refused("the link was cut")

    def _refuse(self, neighbor: int, header: Header, error: Refused) -> None:
        self.observe(FrameRefused(neighbor, str(error)))
        if isinstance(error, UnknownVersion):
            self._sender.ask_for_version(neighbor, self.position, self.clock.now())
        elif header.kind in CARRIES_MESSAGE and neighbor in self.links:
            # No other message will come; and after USE, the neighbour has used this member's.
            self.links[neighbor].refused = True
            if header.kind == Kind.USE:
                self._cut(neighbor, str(error))
        self.clock.wake()

    def _hear(self, link: Link, frame: Frame) -> None:
        header = frame.header
        link.agreement = header.agreement
        if header.agreement in self.terms.earlier:
            self._sender.offer_version(link.neighbor, self.clock.now())
        if header.kind == Kind.HELLO:
            self._check_held(link.neighbor, header)
            link.greeted = True
            if header.answer:
                self._sender.greet(link.neighbor, self.position, answer=False)
            self._check_plan(link.neighbor, header)
        if header.kind == Kind.KEYS:
            self._learn_keys(link.neighbor, frame.payload)
        elif header.kind == Kind.VERSION:
            self._learn_version(frame.payload)
        else:
            link.hear(frame, self.position, self.clock.now())

    def _check_held(self, neighbor: int, header: Header) -> None:
        """Refuse to go on below what a neighbour holds."""
        if header.held == NOWHERE:
            return
        known = self.notes.at(header.held)
        if known.sealed is None or known.sealed.sha256 != header.held_sha256 or not known.has_sent(neighbor):
            raise PeerBehind(
                f"member {neighbor} holds a message of round {header.held.round} from this member that is not in this journal. The journal is an old "
                "copy or another one; continuing would release a second answer. Restore the newest journal, or have this "
                "member declared gone"
            )

    def _check_plan(self, neighbor: int, header: Header) -> None:
        """Refuse to begin beside a neighbour that would use other lots, noise or masks. Once a run has begun, only the frame is refused."""
        if header.plan and self.terms.plan and header.plan != self.terms.plan:
            words = f"another plan of lots, noise and masks at member {neighbor}"
            if self._started:
                raise Refused(words)
            raise PlanDiffers(
                f"there is {words} than here, from the same agreement: the two machines round differently, or have other releases of "
                "dp-accounting, numpy or scipy. Install the same releases at all members; nothing was asked"
            )

    def _learn_keys(self, neighbor: int, document: bytes) -> None:
        if self._keys is not None and self._keys.learn(document):
            for other in self.links:
                if other != neighbor:
                    self._sender.offer_keys(other)

    def _learn_version(self, document: bytes) -> None:
        if self._accept is None:
            return
        try:
            terms = self._accept(document)
        except TacitError as error:
            raise Refused(f"a version of the agreement that is not valid: {error}") from error
        self.renew(terms)

    def _newest(self, terms: PeerTerms) -> PeerTerms:
        """Return the version that was adopted last, which may be newer than the one at hand."""
        if self.notes.document is None or self._accept is None or self.notes.document[0] <= terms.version:
            return terms
        return self._accept(self.notes.document[1])

    def _heed_the_gone(self) -> None:
        """Stop if this member was declared gone, and do not wait for the keys of others that were."""
        if self._keys is not None:
            self._keys.forgo(self.terms.gone)
        if self.terms.agent in self.terms.gone:
            self._failure = PeerBehind("this member was declared gone; it takes no further part in this run")

    def _make_link(self, neighbor: int) -> Link:
        return Link(neighbor, self.terms, self.notes, partial(self._sender.send, neighbor), self.observe)

    def _greet_all(self, wanted: Callable[[Link], bool]) -> None:
        self._greet_at = self.clock.now() + self.terms.resend_seconds
        for neighbor, link in self.links.items():
            if self._counts(link) and wanted(link):
                self._sender.greet(neighbor, self.position, answer=True)

    def _counts(self, link: Link) -> bool:
        return link.neighbor not in self.terms.gone and not link.cut

    def _joined(self) -> bool:
        greeted = all(link.greeted for link in self.links.values() if self._counts(link))
        return greeted and (self._keys is None or self._keys.complete)

    def _unfinished(self, link: Link) -> bool:
        if not self._counts(link):
            return False
        if (
            link.neighbor in self.notes.ended
        ):  # it is through; but while it is there, it may have to hand on a version that came since
            return link.connected and link.agreement in self.terms.earlier
        return link.position.round < self.terms.rounds or link.agreement != self.terms.agreement

    def _note_ends(self) -> None:
        for link in self.links.values():
            if self._counts(link) and not self._unfinished(link):
                self.notes.note_end(link.neighbor)

    def _cut(self, neighbor: int, why: str) -> None:
        self.links[neighbor].cut = True
        self.observe(FrameRefused(neighbor, why))
        self._wire.cut(neighbor, why)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
