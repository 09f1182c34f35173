"""The end that listens: a grpc server that lets members of the agreement through, and nobody else."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from tacit.errors import InvalidInput, NetworkError
from tacit.peer.cards import Card, check_address
from tacit.peer.wire.framing import MOST_MESSAGE
from tacit.peer.wire.link import ByteStream
from tacit.peer.wire.tls import TlsKey, listening_credentials, member_of

METHOD = "/tacit.peer.Peer/Link"
OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", MOST_MESSAGE),
    ("grpc.max_metadata_size", 8192),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
]
"""Of both ends: caps on messages, and signs of life that find a dead connection."""
_LISTENING: list[tuple[str, Any]] = [
    *OPTIONS,
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", 4),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
]
_PATIENCE = 1.0

log = logging.getLogger(__name__)
Answer = Callable[[int, ByteStream], Awaitable[str]]


class Listener:
    """Listens at an address. `answer` is called with the number of a member and the stream that it has opened."""

    def __init__(self, key: TlsKey, address: str, answer: Answer) -> None:
        self._key, self._address, self._answer = key, address, answer
        self._cards: dict[int, Card] = {}
        self._server: grpc.aio.Server | None = None
        self._health = health.aio.HealthServicer()

    @property
    def listens(self) -> bool:
        """Whether it has begun."""
        return self._server is not None

    @property
    def keys(self) -> list[str]:
        """The public keys of those whom it lets through."""
        return [card.public_key for card in self._cards.values()]

    def admit(self, cards: dict[int, Card]) -> None:
        """Let these members through: at once, or after `restart` if it listens already and their keys are new."""
        self._cards = dict(cards)

    async def restart(self) -> None:
        """Listen again with the certificates of the members as they are now. Links to this end are opened anew."""
        await self.stop()
        await self.start()

    async def start(self) -> None:
        """Begin to listen."""
        check_address(self._address)
        credentials = listening_credentials(self._key, self._cards.values())
        self._server = grpc.aio.server(options=_LISTENING, maximum_concurrent_rpcs=4 * len(self._cards) + 16)
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(self._serve)
        service, _, method = METHOD.strip("/").partition("/")
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        try:
            self._server.add_secure_port(self._address, credentials)
        except RuntimeError:
            raise InvalidInput(
                f"cannot listen on {self._address}; is the address this machine's, and the port free?"
            ) from None
        await self._server.start()
        await self._health.set("", health_pb2.HealthCheckResponse.SERVING)

    async def stop(self) -> None:
        """End all connections."""
        if self._server is not None:
            await self._health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
            await self._server.stop(_PATIENCE)
            self._server = None

    async def _serve(self, _: Any, context: Any) -> None:
        try:
            number = member_of(context.auth_context(), self._cards)
            why = await self._answer(number, context)
            log.debug("a link that a neighbour opened has ended: %s", why)
        except NetworkError as error:
            log.warning("a connection was refused: %s", error)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except grpc.aio.AioRpcError:
            log.info("a connection ended before it was a link")
        except asyncio.CancelledError:  # the other end is gone
            log.debug("a connection was dropped")
            raise
        except Exception:  # grpc would send its text to the other end
            log.exception("a link that a neighbour opened has failed")
            await context.abort(grpc.StatusCode.INTERNAL, "an error at this end")
