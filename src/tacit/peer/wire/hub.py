"""All links of one site: it listens where it has an address, dials whom the agreement says, and dials again when a link is lost.

`GrpcWire` is the `Wire` of the protocol core. There is one long-lived stream for each link; none is opened or cancelled per round.
"""

import asyncio
import logging
import random
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import grpc

from tacit.errors import NetworkError
from tacit.peer.agreement.document import Agreement
from tacit.peer.identity import Identity
from tacit.peer.protocol.interface import PROTOCOL, Frame, Header
from tacit.peer.wire.frames_pb2 import Opening
from tacit.peer.wire.framing import FrameReader, LinkBroken, decode_opening, encode_opening
from tacit.peer.wire.link import ByteStream, StreamLink, Traffic, within
from tacit.peer.wire.listening import METHOD, OPTIONS, Listener
from tacit.peer.wire.tls import dialling_credentials, issue_tls_key, tls_name

HANDSHAKE_SECONDS = 10.0
DRAIN_SECONDS = 2.0
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0
_STABLE_SECONDS = 5.0

log = logging.getLogger(__name__)


class LinkEnd(Protocol):
    """What the wire calls on the protocol core."""

    def connected(self, neighbor: int) -> None:
        """A link is up."""

    def disconnected(self, neighbor: int) -> None:
        """A link is down."""

    def admit(self, neighbor: int, header: Header) -> None:
        """Refuse a header before its payload is read."""

    def received(self, neighbor: int, frame: Frame) -> None:
        """Take a frame."""


@dataclass
class LinkView:
    """What is known about the link to one neighbour, for status pages and checks."""

    dials: bool
    """Whether this site dials."""
    up: bool = False
    why: str = "nobody has tried yet"
    """Why it is down."""
    cut: bool = False
    software: str = ""
    agreement: str = ""
    """The hash of the version that the neighbour holds."""
    clock: float | None = None
    """By how many seconds the neighbour's clock was ahead when the link came up."""
    connections: int = 0
    traffic: Traffic = field(default_factory=Traffic)


class GrpcWire:
    """Carries frames between this site and its neighbours. Set `core`, then `start`.

    listen: host:port to listen on, where that differs from the address in the agreement.
    most_bytes: the largest payload of any frame.
    check: exchange openings only, to see who can be reached.
    """

    core: LinkEnd

    def __init__(
        self, identity: Identity, agreement: Agreement, *, most_bytes: int, listen: str = "", check: bool = False
    ) -> None:
        self.agent, self._most, self._check = agreement.number_of(identity.name), most_bytes, check
        self._identity, self._key = identity, issue_tls_key(identity)
        self._links: dict[int, StreamLink] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.views: dict[int, LinkView] = {}
        self._listener = Listener(self._key, listen or identity.card.address, self._answer)
        self.adopt(agreement)

    def adopt(self, agreement: Agreement) -> None:
        """Use a version of the agreement: its addresses and keys, for links that come up from now on."""
        self.agreement = agreement
        self._cards = {number: member.card for number, member in enumerate(agreement.members)}
        for number, dials in agreement.links_of(self.agent).items():
            self.views.setdefault(number, LinkView(dials=dials))
            if agreement.members[number].gone:
                self.cut(number, "it was declared gone")
        waited_for = [number for number, view in self.views.items() if not view.dials]
        cards = {number: self._cards[number] for number in waited_for}
        renewed = self._listener.listens and self._listener.keys != [card.public_key for card in cards.values()]
        self._listener.admit(cards)
        if renewed:
            self._tasks.append(asyncio.create_task(self._listener.restart()))

    async def start(self) -> None:
        """Listen and dial."""
        if any(not view.dials for view in self.views.values()):
            await self._listener.start()
        dialled = [number for number, view in self.views.items() if view.dials]
        self._tasks += [asyncio.create_task(self._keep_dialling(number)) for number in dialled]

    async def stop(self) -> None:
        """Close all links."""
        for task in self._tasks:
            task.cancel()
        for link in list(self._links.values()):
            link.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._listener.stop()

    def send(self, neighbor: int, frame: Frame) -> None:
        """Queue a frame; drop it if the link is down."""
        if (link := self._links.get(neighbor)) is not None and not link.send(frame):
            log.warning("a frame was dropped: too many are waiting", extra={"neighbor": self._name(neighbor)})

    async def drain(self) -> None:
        """Return when what was queued is on its way, or after two seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                for link in list(self._links.values()):
                    await link.drain()

    def cut(self, neighbor: int, why: str) -> None:
        """Close the link to a neighbour for good."""
        view = self.views[neighbor]
        if not view.cut:
            log.warning("a link was cut: %s", why, extra={"neighbor": self._name(neighbor)})
        view.cut, view.why = True, why
        if (link := self._links.get(neighbor)) is not None:
            link.close()

    def _name(self, neighbor: int) -> str:
        return self.agreement.members[neighbor].name

    async def _keep_dialling(self, number: int) -> None:
        wait = _FIRST_WAIT
        while not self.views[number].cut:
            started = time.monotonic()
            try:
                why = await self._dial(number)
            except Exception:  # or nobody would ever dial again, and nothing would be said
                log.exception("a link that this site opened has failed", extra={"neighbor": self._name(number)})
                why = "an error at this end"
            self._note_down(number, why)
            if self._check and self.views[number].software:
                return
            wait = _FIRST_WAIT if time.monotonic() - started > _STABLE_SECONDS else min(2 * wait, _LONGEST_WAIT)
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))

    async def _dial(self, number: int) -> str:
        """Carry frames over a link that this site opens, and return why it ended."""
        card = self._cards[number]
        options = [*OPTIONS, ("grpc.ssl_target_name_override", tls_name(card))]
        credentials = dialling_credentials(self._key, card)
        async with grpc.aio.secure_channel(card.address, credentials, options=options) as channel:
            call: Any = channel.stream_stream(METHOD)()
            try:
                await within(HANDSHAKE_SECONDS, call.write(self._opening()), "a connection")
                message = await within(HANDSHAKE_SECONDS, call.read(), "an answer")
                if message is grpc.aio.EOF:
                    return f"refused there: {str(await call.details())[:200]}"
                return await self._carry(number, call, message)
            except grpc.aio.AioRpcError as error:
                refused = error.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.FAILED_PRECONDITION)
                text = str(error.details())
                return (
                    f"refused there: {text[:200]}" if refused else f"{card.address} cannot be reached: {_briefly(text)}"
                )
            except NetworkError as error:
                return str(error)

    async def _answer(self, number: int, stream: ByteStream) -> str:
        """Carry frames over a link that a neighbour opened, and return why it ended."""
        if self.views[number].cut:
            raise LinkBroken("the link was cut")
        message = await within(HANDSHAKE_SECONDS, stream.read(), "the first message")
        if message is grpc.aio.EOF:
            raise LinkBroken("the other end closed the stream before its first message")
        opening = self._check_opening(number, message)
        await stream.write(self._opening())
        why = await self._carry(number, stream, message, opening)
        self._note_down(number, why)
        return why

    async def _carry(self, number: int, stream: ByteStream, message: bytes, opening: Opening | None = None) -> str:
        opening = opening or self._check_opening(number, message)
        view = self.views[number]
        view.software, view.agreement = opening.software, opening.agreement.hex()
        view.clock = opening.time - time.time()
        if self._check or opening.check:
            return "it was only checked"
        while (
            before := self._links.get(number)
        ) is not None:  # the neighbour was restarted, and this is not noticed yet
            before.close()
            await before.ended.wait()
        reader = FrameReader(self._most, lambda header: self.core.admit(number, header))
        link = self._links[number] = StreamLink(stream, reader, view.traffic)
        view.up, view.connections = True, view.connections + 1
        log.info("link up", extra={"neighbor": self._name(number)})
        try:
            self.core.connected(number)
            return await link.run(lambda frame: self.core.received(number, frame))
        finally:
            link.close()
            del self._links[number]
            view.up = False
            self.core.disconnected(number)
            link.ended.set()

    def _opening(self) -> bytes:
        run, agreement = bytes.fromhex(self.agreement.run_id), bytes.fromhex(self.agreement.hash)
        return encode_opening(self._identity.name, run, agreement, check=self._check)

    def _check_opening(self, number: int, message: bytes) -> Opening:
        """Refuse another member's name, another run, protocol or version of the software."""
        opening = decode_opening(message)
        if opening.name != self._name(number):
            raise LinkBroken("it claims to be another member than its certificate shows")
        if opening.run.hex() != self.agreement.run_id:
            raise LinkBroken("it takes part in another run: its agreement has another first version")
        if opening.protocol != PROTOCOL:
            raise LinkBroken(f"it speaks version {opening.protocol} of the protocol, not {PROTOCOL}")
        if opening.software != self.agreement.software:
            raise LinkBroken(f"it runs another version of Tacit than the agreement states, {self.agreement.software}")
        return opening

    def _note_down(self, number: int, why: str) -> None:
        view = self.views[number]
        if view.cut:
            return
        if view.why != why:
            log.info("link down: %s", why, extra={"neighbor": self._name(number)})
        view.why = why


def _briefly(text: str) -> str:
    """Return what a person can act on of grpc's words."""
    for sign, words in (
        ("CERTIFICATE_VERIFY_FAILED", "its certificate is not that of the member"),
        ("Connection refused", "nothing listens there"),
        ("Handshake", "TLS was refused"),
        ("handshake", "TLS was refused"),
        ("Timeout", "it does not answer"),
        ("resolution", "its name is unknown"),
        ("unreachable", "there is no route to it"),
    ):
        if sign in text:
            return words
    return "the connection failed"
