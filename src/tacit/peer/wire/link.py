"""One link: a stream in both directions, whoever dialled. It writes what is queued and reads what arrives, until either end closes it."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

import grpc

from tacit.errors import NetworkError
from tacit.peer.protocol.interface import Frame
from tacit.peer.wire.framing import FrameReader, LinkBroken, encode_frame

MOST_QUEUED = 64
"""Frames that wait for one neighbour. The core has a handful at a time, and repeats what matters."""


class ByteStream(Protocol):
    """A stream of messages: either side of a grpc call."""

    async def read(self) -> Any:
        """Return the next message, or `grpc.aio.EOF`."""

    async def write(self, message: bytes, /) -> None:
        """Send a message."""


@dataclass
class Traffic:
    """Bytes that one neighbour was sent and has sent, on all its streams so far."""

    sent: int = 0
    received: int = 0


class StreamLink:
    """The messages of one neighbour. `traffic` counts them."""

    def __init__(self, stream: ByteStream, reader: FrameReader, traffic: Traffic) -> None:
        self._stream, self._reader, self._traffic = stream, reader, traffic
        self._queue: deque[Frame] = deque()
        self._changed = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = asyncio.Event()
        self.ended = asyncio.Event()
        """Set by its owner once the core knows that it is down."""

    def send(self, frame: Frame) -> bool:
        """Queue a frame; return False if it was dropped."""
        if self._closed.is_set() or len(self._queue) >= MOST_QUEUED:
            return False
        self._queue.append(frame)
        self._idle.clear()
        self._changed.set()
        return True

    def close(self) -> None:
        """End both directions."""
        self._closed.set()
        self._changed.set()
        self._idle.set()

    async def drain(self) -> None:
        """Return when all that was queued is written, or the link is closed."""
        await self._idle.wait()

    async def run(self, received: Callable[[Frame], None]) -> str:
        """Carry frames until the link ends, and return why it did."""
        tasks = {
            asyncio.create_task(self._read(received)),
            asyncio.create_task(self._write()),
            asyncio.create_task(self._wait_closed()),
        }
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            self.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait_closed(self) -> str:
        await self._closed.wait()
        return "it was closed here"

    async def _read(self, received: Callable[[Frame], None]) -> str:
        try:
            while (message := await self._stream.read()) is not grpc.aio.EOF:
                self._traffic.received += len(message)
                frame = self._reader.feed(message)
                if frame is not None:
                    received(frame)
        except LinkBroken as error:
            return str(error)
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError) as error:
            return _reason(error)
        return "the other end closed it"

    async def _write(self) -> str:
        try:
            while not self._closed.is_set():
                while self._queue:
                    for message in encode_frame(self._queue[0]):
                        await self._stream.write(message)
                        self._traffic.sent += len(message)
                    self._queue.popleft()
                self._idle.set()
                self._changed.clear()
                if not self._queue:
                    await self._changed.wait()
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError) as error:
            return _reason(error)
        return "it was closed here"


async def within(seconds: float, wanted: Awaitable[Any], what: str) -> Any:
    """Wait for something, or raise a `NetworkError` after this many seconds."""
    try:
        async with asyncio.timeout(seconds):
            return await wanted
    except TimeoutError:
        raise NetworkError(f"{what} did not come within {seconds:g} s") from None


def _reason(error: Exception) -> str:
    """Say in a few words why a stream ended; what the other end wrote is not repeated."""
    if isinstance(error, grpc.aio.AioRpcError):
        return f"the connection ended ({error.code().name.lower()})"
    return "the connection ended"
