"""Opening a connection to a server: everything that can be wrong before the first utterance."""

from __future__ import annotations

import asyncio
import socket as sockets
from contextlib import suppress
from typing import Final

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from cosyvoice_stream.errors import PeerGone, ProtocolError, ServerError
from cosyvoice_stream.server.rest_client import ServerAddress
from cosyvoice_stream.server.wire import (
    PROTOCOL,
    ErrorMessage,
    SessionReady,
    parse_server_message,
)

OPEN_TIMEOUT_S: Final = 10.0
"""For the handshake, and again for the server's introduction."""
CLOSE_TIMEOUT_S: Final = 2.0
MAX_QUEUED_FRAMES: Final = 8
"""Frames that are read ahead; then the socket is not read."""
KEEPALIVE_S: Final = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}
"""A server that vanishes without a word is noticed within 40 s. Pings of the WebSocket would not
do: their answers wait behind audio that is not read."""


async def open_connection(address: ServerAddress) -> tuple[ClientConnection, SessionReady]:
    """Connect and wait until the server has introduced itself.

    Raises:
        PeerGone: No server answers there, or another kind of server.
        ServerError: The server refuses the session.
    """
    try:
        socket = await open_socket(
            address.stream_url,
            additional_headers=address.headers,
            subprotocols=[PROTOCOL],  # type: ignore[list-item]
            compression=None,
            max_size=None,
            max_queue=MAX_QUEUED_FRAMES,
            open_timeout=OPEN_TIMEOUT_S,
            close_timeout=CLOSE_TIMEOUT_S,
            ping_interval=None,
        )
    except InvalidStatus as error:
        body = bytes(error.response.body or b"")
        raise address.refusal(error.response.status_code, body) from error
    except (OSError, TimeoutError) as error:
        raise address.silence() from error
    except WebSocketException as error:
        raise address.strangeness() from error
    try:
        return socket, await _introduction(socket, address)
    except BaseException:
        socket.transport.abort()
        raise


async def _introduction(socket: ClientConnection, address: ServerAddress) -> SessionReady:
    _keep_alive(socket)
    try:
        async with asyncio.timeout(OPEN_TIMEOUT_S):
            frame = await socket.recv()
        message = parse_server_message(frame) if isinstance(frame, str) else None
    except ConnectionClosed as error:
        raise PeerGone("the server closed the connection at once") from error
    except (TimeoutError, ProtocolError) as error:
        raise address.strangeness() from error
    if isinstance(message, ErrorMessage):
        raise server_error(message)
    if not isinstance(message, SessionReady):
        raise address.strangeness()
    return message


def _keep_alive(socket: ClientConnection) -> None:
    raw = socket.transport.get_extra_info("socket")
    with suppress(OSError):  # a platform may know only some of the options
        raw.setsockopt(sockets.SOL_SOCKET, sockets.SO_KEEPALIVE, 1)
        for name, value in KEEPALIVE_S.items():
            if hasattr(sockets, name):
                raw.setsockopt(sockets.IPPROTO_TCP, getattr(sockets, name), value)


def server_error(message: ErrorMessage) -> ServerError:
    """The exception for an error of the server."""
    retry = None if message.retry_after_ms is None else message.retry_after_ms / 1000
    return ServerError(
        message.code, message.message, how_to_fix=message.how_to_fix, retry_after_s=retry
    )
