"""Two ends of a link for tests: a real wire at each, and a recorder in place of the protocol core."""

import asyncio
import hashlib
import socket
from contextlib import asynccontextmanager

from tacit.peer.protocol.interface import Frame, Header, Kind, Refused, Slot
from tacit.peer.wire.hub import GrpcWire
from tests.peer.consortia import draft, make_sites

MOST_BYTES = 4 * 2**20


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


class Recorder:
    """Writes down what the wire calls. `refuses` are kinds that it does not admit."""

    def __init__(self):
        self.calls, self.frames, self.refuses = [], [], set()
        self.changed = asyncio.Event()

    def connected(self, neighbor):
        self._note("connected", neighbor)

    def disconnected(self, neighbor):
        self._note("disconnected", neighbor)

    def admit(self, neighbor, header):
        if header.kind in self.refuses:
            raise Refused("not this kind")

    def received(self, neighbor, frame):
        self.frames.append(frame)
        self._note("received", neighbor)

    def _note(self, what, neighbor):
        self.calls.append((what, neighbor))
        self.changed.set()

    async def until(self, condition, seconds=10.0):
        async with asyncio.timeout(seconds):
            while not condition(self):
                self.changed.clear()
                await self.changed.wait()


def frame_of(agreement, payload=b"", kind=Kind.VOTE, round=0) -> Frame:
    header = Header(
        kind=kind,
        run=bytes.fromhex(agreement.run_id),
        agreement=bytes.fromhex(agreement.hash),
        slot=Slot(round, 0),
        dtype="float32",
        length=len(payload),
        sha256=hashlib.sha256(payload).digest(),
    )
    return Frame(header, payload)


def make_pair(folder):
    """Return two sites and their agreement: south dials north."""
    sites = make_sites(folder, 2, [free_address(), ""])
    return sites, draft(sites, graph="complete")


@asynccontextmanager
async def linked(sites, agreement, *, most_bytes=MOST_BYTES):
    """Yield a wire and a recorder for each site, once all are linked."""
    wires = [GrpcWire(site, agreement, most_bytes=most_bytes) for site in sites]
    recorders = [Recorder() for _ in wires]
    for wire, recorder in zip(wires, recorders, strict=True):
        wire.core = recorder
        await wire.start()
    try:
        for recorder in recorders:
            await recorder.until(lambda each: "connected" in dict(each.calls))
        yield list(zip(wires, recorders, strict=True))
    finally:
        for wire in wires:
            await wire.stop()
