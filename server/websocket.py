"""The WebSocket transport: a Starlette endpoint, and what uvicorn has to do for it.

The application keeps its `Sessions` in ``app.state.sessions``; who may connect has been decided by
the middleware in front.
"""

from __future__ import annotations

import contextlib
import socket
from asyncio.transports import BaseTransport
from collections.abc import Callable
from typing import Any, Final, cast

from starlette.datastructures import QueryParams
from starlette.responses import JSONResponse
from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from cosyvoice_stream.errors import InvalidMessage, InvalidState, PeerGone, VoiceStreamError
from cosyvoice_stream.server.access import caller_key
from cosyvoice_stream.server.error_map import error_json, http_status
from cosyvoice_stream.server.error_shapes import shaped
from cosyvoice_stream.server.sessions import Sessions
from cosyvoice_stream.server.transport import PeerLost
from cosyvoice_stream.server.wire import PROTOCOL

ABORT: Final = "cosyvoice_stream.abort"
UNSENT_BYTES: Final = "cosyvoice_stream.unsent_bytes"
SAID_GOODBYE: Final = "cosyvoice_stream.said_goodbye"

_POLICY: Final = 1008
_MAX_DIGITS: Final = 18
_HIGH_WATER_BYTES: Final = 32 * 1024
_LOW_WATER_BYTES: Final = 8 * 1024
"""Of the user-space write buffer. Low enough that a peer that plays a 24 kbit/s stream in real time
drains from high to low within seconds, well before it would be called stalled."""
_UNSENT_IN_KERNEL_BYTES: Final = 32 * 1024
"""TCP_NOTSENT_LOWAT: beyond it the socket counts as full, so that the answer to a cancel does not
stand behind seconds of audio in the kernel."""


class StreamWebSocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol with small buffers and a way to drop a peer.

    Pass it as ``ws=`` to `uvicorn.Config`. The scope's extensions get ``cosyvoice_stream.abort``,
    ``….unsent_bytes`` and ``….said_goodbye``, all without arguments.
    """

    def connection_made(self, transport: BaseTransport) -> None:
        """Bound the buffers of the connection."""
        super().connection_made(transport)
        self.transport.set_write_buffer_limits(_HIGH_WATER_BYTES, _LOW_WATER_BYTES)
        connection = transport.get_extra_info("socket")
        option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
        if connection is not None and option is not None:
            with contextlib.suppress(OSError):  # not a TCP socket
                connection.setsockopt(socket.IPPROTO_TCP, option, _UNSENT_IN_KERNEL_BYTES)

    def handle_connect(self, event: Request) -> None:
        """Put our extensions into the scope before the application sees it."""
        super().handle_connect(event)
        if self.response.status_code == 101:
            # Typed as a mapping to mappings, which the ASGI specification does not ask for.
            extensions = cast("dict[str, Any]", self.scope["extensions"])
            extensions[ABORT] = self.transport.abort
            extensions[UNSENT_BYTES] = self.transport.get_write_buffer_size
            # uvicorn has the same code for a connection that broke and a close without a code.
            extensions[SAID_GOODBYE] = lambda: self.conn.close_rcvd is not None


class WebSocketTransport:
    """`Transport` over a Starlette WebSocket that has been accepted."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket
        extensions = websocket.scope.get("extensions") or {}
        self._abort: Callable[[], None] = extensions.get(ABORT, _nothing)
        self._unsent: Callable[[], int] = extensions.get(UNSENT_BYTES, _zero)
        self._said_goodbye: Callable[[], bool] = extensions.get(SAID_GOODBYE, _yes_it_did)

    async def receive(self) -> str | bytes:
        """Wait for a frame."""
        message = await self._websocket.receive()
        if message["type"] != "websocket.receive":
            if not self._said_goodbye():
                raise PeerLost("the connection broke")
            raise PeerGone("the peer closed the connection")
        text = message.get("text")
        frame: str | bytes = message["bytes"] if text is None else text
        return frame

    async def send(self, frame: str | bytes) -> None:
        """Hand a frame over; uvicorn waits first until its write buffer has room."""
        try:
            if isinstance(frame, str):
                await self._websocket.send_text(frame)
            else:
                await self._websocket.send_bytes(frame)
        except (WebSocketDisconnect, RuntimeError) as error:
            # Starlette raises RuntimeError for a send after the close of either side.
            raise PeerGone("the peer closed the connection") from error

    async def close(self, code: int, reason: str) -> None:
        """Say good-bye."""
        try:
            await self._websocket.close(code, reason)
        except (WebSocketDisconnect, RuntimeError) as error:
            raise PeerGone("the peer closed the connection") from error

    def abort(self) -> None:
        """Drop the connection at once."""
        self._abort()

    def unsent_bytes(self) -> int:
        """What waits in the write buffer."""
        return self._unsent()


async def deny(websocket: WebSocket, error: VoiceStreamError) -> None:
    """Refuse a handshake, in the shape that clients of its path expect."""
    path = websocket.scope["path"]
    status, body = shaped(path, http_status(error), error_json(error), error)
    await websocket.send_denial_response(JSONResponse(body, status))


async def websocket_endpoint(websocket: WebSocket) -> None:
    """``/v1/stream``: agree on the subprotocol and the framing, then run or resume a session."""
    sessions: Sessions = websocket.app.state.sessions
    query = websocket.query_params
    try:
        subprotocol = _subprotocol(websocket.scope.get("subprotocols") or [])
        raw_framing = _raw_framing(query.get("framing"))
        key = caller_key(websocket.scope)
        token = query.get("resume")
        if token is None:
            resumable = _yes(query, "resumable")
            sessions.check_room(key)
        else:
            received = _count(query, "received")
            known = sessions.find(token, received, key)
    except VoiceStreamError as error:
        await deny(websocket, error)
        return
    await websocket.accept(subprotocol)
    link = WebSocketTransport(websocket)
    if token is None:
        await sessions.serve(link, raw_framing=raw_framing, key=key, resumable=resumable)
        return
    try:
        await known.resume(link, received)
    except InvalidState as error:
        # It ended between the look and the handshake.
        with contextlib.suppress(PeerGone):
            await link.close(_POLICY, str(error))


def _yes(query: QueryParams, name: str) -> bool:
    value = query.get(name, "0")
    if value not in ("0", "1"):
        raise InvalidMessage(f"{name} is neither 0 nor 1", how_to_fix=f"use {name}=1")
    return value == "1"


def _count(query: QueryParams, name: str) -> int:
    value = query.get(name, "")
    if not (value.isdecimal() and value.isascii() and len(value) <= _MAX_DIGITS):
        raise InvalidMessage(
            f"{name} is not a number of frames", how_to_fix=f"use {name}= and what has been got"
        )
    return int(value)


def _subprotocol(offered: list[str]) -> str | None:
    if not offered:
        return None
    if PROTOCOL not in offered:
        raise InvalidMessage(
            "none of the offered WebSocket subprotocols is spoken here",
            how_to_fix=f"offer {PROTOCOL}, or none",
        )
    return PROTOCOL


def _raw_framing(framing: str | None) -> bool:
    if framing not in (None, "raw"):
        raise InvalidMessage("unknown framing", how_to_fix="use framing=raw, or leave it out")
    return framing == "raw"


def _nothing() -> None:
    """For servers whose connections cannot be dropped: the end of the endpoint closes them."""


def _zero() -> int:
    return 0


def _yes_it_did() -> bool:
    return True
