"""A hostile neighbour: whatever it sends, frames arrive whole or not at all, and memory is bounded."""

import asyncio
import hashlib
import resource
from dataclasses import replace

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.peer.protocol.interface import Frame, Header, Kind, Refused, Slot
from tacit.peer.wire import tls
from tacit.peer.wire.frames_pb2 import FrameHeader
from tacit.peer.wire.framing import (
    CHUNK,
    MOST_HEADER,
    FrameReader,
    LinkBroken,
    decode_first,
    decode_opening,
    encode_frame,
    encode_header,
    encode_opening,
)
from tacit.peer.wire.hub import GrpcWire
from tacit.peer.wire.listening import METHOD, OPTIONS
from tests.peer.wires import MOST_BYTES, Recorder, frame_of, make_pair

MOST = 3 * CHUNK
hashes = st.binary(min_size=32, max_size=32)
places = st.integers(-1, 2**40)
slots = st.builds(Slot, places, places)
headers = st.builds(
    Header,
    kind=st.sampled_from(list(Kind)),
    run=hashes,
    agreement=hashes,
    slot=slots,
    protocol=st.integers(0, 2**32 - 1),
    dtype=st.text(alphabet="abcdefloat0123456789", max_size=16),
    length=st.integers(0, 2**64 - 1),
    sha256=hashes | st.just(b""),
    held=slots,
    held_sha256=hashes | st.just(b""),
    answer=st.booleans(),
)
firsts = st.builds(lambda header, size: encode_header(header) + bytes(size), headers, st.integers(0, 64))


def accept(header):
    return None


@given(headers, st.binary(max_size=64))
def test_a_header_is_read_back_as_it_was_written(header, chunk):
    message = encode_header(header)
    assert len(message) <= 2 + MOST_HEADER
    assert decode_first(message + chunk) == (header, chunk)


@given(st.binary(max_size=2 * MOST_HEADER), st.booleans())
@settings(max_examples=300)
def test_any_bytes_are_a_valid_header_or_break_the_link(message, prefixed):
    try:
        header, chunk = decode_first(len(message).to_bytes(2, "little") + message if prefixed else message)
    except LinkBroken:
        return
    assert len(message) - len(chunk) <= 2 + MOST_HEADER
    assert decode_first(encode_header(header) + chunk) == (header, chunk)


@given(headers, st.data())
def test_a_header_with_changed_bytes_is_valid_or_breaks_the_link(header, data):
    message = bytearray(encode_header(header))
    for _ in range(data.draw(st.integers(1, 8))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    try:
        found, _ = decode_first(bytes(message))
    except LinkBroken:
        return
    assert len(found.run) == len(found.agreement) == 32
    assert isinstance(found.kind, Kind)


@given(st.binary(max_size=MOST_HEADER))
def test_any_bytes_are_an_opening_or_break_the_link(message):
    try:
        opening = decode_opening(message)
    except LinkBroken:
        return
    assert len(opening.run) == 32


@given(st.lists(st.binary(max_size=64) | firsts | st.just(bytes(CHUNK)), max_size=8))
def test_any_messages_give_whole_frames_or_break_the_link(messages):
    """What is held never exceeds what one frame may have."""
    reader = FrameReader(MOST, accept)
    for message in messages:
        try:
            frame = reader.feed(message)
        except LinkBroken:
            return
        assert frame is None or len(frame.payload) == frame.header.length <= MOST
        assert sum(map(len, reader._chunks)) <= MOST


@given(st.lists(st.integers(0, 2 * CHUNK + 3), max_size=4), st.lists(st.booleans(), min_size=4, max_size=4))
@settings(max_examples=25)
def test_frames_come_out_as_they_went_in_and_refused_ones_not_at_all(sizes, refused):
    header = {"kind": Kind.VOTE, "run": bytes(32), "agreement": bytes(32), "sha256": b""}
    frames = [Frame(Header(**header, slot=Slot(i, 0), length=size), bytes([i]) * size) for i, size in enumerate(sizes)]

    def admit(found):
        if refused[found.slot.round]:
            raise Refused("not this one")

    reader = FrameReader(MOST, admit)
    found = [frame for each in frames for message in encode_frame(each) if (frame := reader.feed(message)) is not None]
    assert found == [frame for frame, no in zip(frames, refused, strict=False) if not no]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("kind", 0, "kind 0, which does not exist"),
        ("kind", 99, "kind 99"),
        ("run", b"short", "hash that is not of 32 bytes"),
        ("agreement", bytes(33), "hash that is not of 32 bytes"),
        ("sha256", bytes(31), "hash that is not of 32 bytes"),
        ("held_sha256", bytes(1), "hash that is not of 32 bytes"),
        ("round", -2, "an impossible round"),
        ("exchange", 2**41, "an impossible round"),
        ("dtype", "x" * 17, "type of numbers"),
        ("length", MOST + 1, "no frame has more than"),
        ("length", 2**64 - 1, "no frame has more than"),
    ],
)
def test_a_header_with_one_wrong_field_breaks_the_link_before_anything_is_kept(field, value, said):
    message = FrameHeader(kind=1, run=bytes(32), agreement=bytes(32))
    setattr(message, field, value)
    encoded = message.SerializeToString()
    reader = FrameReader(MOST, accept)
    with pytest.raises(LinkBroken, match=said):
        reader.feed(len(encoded).to_bytes(2, "little") + encoded + bytes(10))
    assert reader._chunks == []


def test_chunks_of_other_lengths_break_the_link():
    whole = Header(kind=Kind.VOTE, run=bytes(32), agreement=bytes(32), slot=Slot(0, 0), length=CHUNK + 10)
    for size in (CHUNK - 1, CHUNK + 1, 0):
        with pytest.raises(LinkBroken, match="a chunk has"):
            FrameReader(MOST, accept).feed(encode_header(whole) + bytes(size))
    for size in (0, 9, 11, CHUNK):
        reader = FrameReader(MOST, accept)
        assert reader.feed(encode_header(whole) + bytes(CHUNK)) is None
        with pytest.raises(LinkBroken, match="a chunk has"):
            reader.feed(bytes(size))
    with pytest.raises(LinkBroken, match="a chunk has 1 bytes instead of 0"):
        FrameReader(MOST, accept).feed(encode_header(replace(whole, length=0)) + b"x")


@pytest.mark.parametrize("message", [b"", b"\0", b"\1\0", b"\xff\xff" + bytes(100)])
def test_a_message_that_is_shorter_than_its_header_breaks_the_link(message):
    with pytest.raises(LinkBroken, match="shorter than the header"):
        FrameReader(MOST, accept).feed(message)


def test_a_header_beyond_its_cap_breaks_the_link():
    with pytest.raises(LinkBroken, match=f"{MOST_HEADER} is the most"):
        FrameReader(MOST, accept).feed((MOST_HEADER + 1).to_bytes(2, "little") + bytes(MOST_HEADER + 1))


async def flood(sites, agreement, messages, *, refuses=()):
    """Dial north as a member that sends these messages; return what north's core was told, and whether the link ended."""
    north, recorder = GrpcWire(sites[0], agreement, most_bytes=MOST_BYTES), Recorder()
    recorder.refuses = set(refuses)
    north.core = recorder
    await north.start()
    key = tls.issue_tls_key(sites[1])
    credentials = grpc.ssl_channel_credentials(sites[0].card.certificate.encode(), key.private, key.certificate)
    options = [*OPTIONS, ("grpc.ssl_target_name_override", tls.tls_name(sites[0].card))]
    ended = False
    async with grpc.aio.secure_channel(sites[0].card.address, credentials, options=options) as channel:
        call = channel.stream_stream(METHOD)()
        run, version = bytes.fromhex(agreement.run_id), bytes.fromhex(agreement.hash)
        await call.write(encode_opening("south", run, version, check=False))
        await call.read()
        try:
            for message in messages:
                await call.write(message)
            async with asyncio.timeout(2):
                ended = await call.read() is grpc.aio.EOF
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            ended = True
        except TimeoutError:
            pass
    await north.stop()
    return recorder, ended


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return make_pair(tmp_path_factory.mktemp("hostile"))


def test_bytes_that_are_not_a_frame_end_the_link(pair):
    recorder, ended = asyncio.run(flood(*pair, [b"\xff" * 100]))
    assert ended
    assert recorder.calls == [("connected", 1), ("disconnected", 1)]


def test_a_message_beyond_the_cap_of_grpc_ends_the_link(pair):
    """A chunk of 2 MiB is never assembled: the cap is a little more than one chunk."""
    header = frame_of(pair[1], bytes(2 * CHUNK)).header
    recorder, ended = asyncio.run(flood(*pair, [encode_header(header) + bytes(2 * CHUNK)]))
    assert ended
    assert recorder.frames == []


@pytest.mark.slow
def test_memory_is_bounded_under_a_flood(pair):
    """400 MiB of frames, of which the core wants none, cost less than 160 MiB, the sender's buffers in this process included."""
    frame = frame_of(pair[1], hashlib.sha256().digest() * (CHUNK // 32), Kind.USE)
    messages = [message for _ in range(400) for message in encode_frame(frame)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    recorder, _ = asyncio.run(flood(*pair, messages, refuses=[Kind.USE]))
    assert recorder.frames == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 160 * 2**10  # in KiB
