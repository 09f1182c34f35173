"""Frames as messages of a stream: a header in protobuf and the payload as raw chunks of 1 MiB. Nothing is ever unpickled.

The first message of a frame is the header's length in two bytes, the header and the first chunk, so that most frames are one message. What a
neighbour sends is read one bounded message after another. A payload is kept only after the core has admitted the header: its kind, run,
round and length.
"""

import time
from collections.abc import Callable, Iterator

from google.protobuf.message import DecodeError

from tacit import __version__
from tacit.errors import NetworkError
from tacit.peer.protocol.interface import PROTOCOL, Frame, Header, Kind, Refused, Slot
from tacit.peer.wire.frames_pb2 import FrameHeader, Opening

CHUNK = 2**20
MOST_HEADER = 1024
_PREFIX = 2
MOST_MESSAGE = _PREFIX + MOST_HEADER + CHUNK
"""The largest message that grpc accepts at all."""
_MOST_PLACE = 2**40


class LinkBroken(NetworkError):
    """A stream on which nothing can be read any more; the link is closed and opened again."""


def encode_opening(name: str, run: bytes, agreement: bytes, *, check: bool) -> bytes:
    """Return the first message of a link."""
    opening = Opening(
        protocol=PROTOCOL,
        software=__version__,
        name=name,
        run=run,
        agreement=agreement,
        time=time.time(),
        check=check,
    )
    return opening.SerializeToString()


def decode_opening(message: bytes) -> Opening:
    """Read the first message of a link."""
    opening = Opening()
    _parse(opening, message)
    if max(len(opening.name), len(opening.software)) > 64 or len(opening.run) != 32 or len(opening.agreement) != 32:
        raise LinkBroken("the first message of the link is not an opening")
    return opening


def encode_header(header: Header) -> bytes:
    """Return a header as it travels, after its length."""
    message = FrameHeader(
        kind=int(header.kind),
        run=header.run,
        agreement=header.agreement,
        round=header.slot.round,
        exchange=header.slot.exchange,
        protocol=header.protocol,
        dtype=header.dtype,
        length=header.length,
        sha256=header.sha256,
        held_round=header.held.round,
        held_exchange=header.held.exchange,
        held_sha256=header.held_sha256,
        answer=header.answer,
        plan=header.plan,
    )
    encoded = message.SerializeToString()
    return len(encoded).to_bytes(_PREFIX, "little") + encoded


def decode_first(message: bytes) -> tuple[Header, bytes]:
    """Return the header and the chunk of a frame's first message; a header with fields that no frame has closes the link."""
    end = _PREFIX + int.from_bytes(message[:_PREFIX], "little")
    if len(message) < max(end, _PREFIX):
        raise LinkBroken("a message is shorter than the header that it announces")
    return _decode_header(message[_PREFIX:end]), message[end:]


def _decode_header(encoded: bytes) -> Header:
    found = FrameHeader()
    _parse(found, encoded)
    try:
        kind = Kind(found.kind)
    except ValueError:
        raise LinkBroken(f"a header says kind {found.kind}, which does not exist") from None
    for value in (found.run, found.agreement):
        if len(value) != 32:
            raise LinkBroken("a header has a hash that is not of 32 bytes")
    for value in (found.sha256, found.held_sha256, found.plan):
        if len(value) not in (0, 32):
            raise LinkBroken("a header has a hash that is not of 32 bytes")
    places = (found.round, found.exchange, found.held_round, found.held_exchange)
    if not all(-1 <= place <= _MOST_PLACE for place in places):
        raise LinkBroken("a header names an impossible round")
    if len(found.dtype) > 16:
        raise LinkBroken("a header names a type of numbers that does not exist")
    return Header(
        kind=kind,
        run=found.run,
        agreement=found.agreement,
        slot=Slot(found.round, found.exchange),
        protocol=found.protocol,
        dtype=found.dtype,
        length=found.length,
        sha256=found.sha256,
        held=Slot(found.held_round, found.held_exchange),
        held_sha256=found.held_sha256,
        answer=found.answer,
        plan=found.plan,
    )


def encode_frame(frame: Frame) -> Iterator[bytes]:
    """Yield the messages of a frame."""
    payload = memoryview(frame.payload)
    yield b"".join((encode_header(frame.header), payload[:CHUNK]))
    for first in range(CHUNK, len(payload), CHUNK):
        yield bytes(payload[first : first + CHUNK])


class FrameReader:
    """Puts the messages of one stream together again.

    most_bytes: a payload that is longer closes the link before anything of it is read.
    admit: called with each header before its payload is read; raises `Refused`, and the payload is then passed over.
    """

    def __init__(self, most_bytes: int, admit: Callable[[Header], None]) -> None:
        self._most, self._admit = most_bytes, admit
        self._header: Header | None = None
        self._chunks: list[bytes] = []
        self._left, self._kept = 0, True

    def feed(self, message: bytes) -> Frame | None:
        """Take the next message, and return the frame that it completes, if any. Raises `LinkBroken`."""
        chunk = message
        if self._header is None:
            header, chunk = decode_first(message)
            self._begin(header)
        if len(chunk) != min(CHUNK, self._left):
            raise LinkBroken(f"a chunk has {len(chunk)} bytes instead of {min(CHUNK, self._left)}")
        self._left -= len(chunk)
        if self._kept and chunk:
            self._chunks.append(chunk)
        return None if self._left else self._end()

    def _begin(self, header: Header) -> None:
        if header.length > self._most:
            raise LinkBroken(f"a header declares {header.length} bytes, but no frame has more than {self._most}")
        self._header, self._left, self._kept = header, header.length, True
        try:
            self._admit(header)
        except Refused:
            self._kept = False

    def _end(self) -> Frame | None:
        header, chunks, kept = self._header, self._chunks, self._kept
        self._header, self._chunks = None, []
        if not kept or header is None:
            return None
        return Frame(header, chunks[0] if len(chunks) == 1 else b"".join(chunks))


def _parse(message: Opening | FrameHeader, content: bytes) -> None:
    if len(content) > MOST_HEADER:
        raise LinkBroken(f"a header has {len(content)} bytes, but {MOST_HEADER} is the most")
    try:
        message.ParseFromString(content)
    except (DecodeError, ValueError):
        raise LinkBroken("a header is not protobuf") from None
