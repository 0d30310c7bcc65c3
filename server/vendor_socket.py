"""Other protocols over our session: a codec without I/O translates, a transport moves the frames.

::

    peer ──► link ──► codec.from_peer ──► to_session ──► Session
    peer ◄── link ◄── to_peer ◄── codec.from_session ◄── Session

A codec knows two protocols and nothing else: the queue, the order, cancelling, limits, keys and
what happens to a peer that does not read are the session's.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections import deque
from typing import Any

from starlette.websockets import WebSocket

from cosyvoice_stream.errors import VoiceStreamError
from cosyvoice_stream.server.access import caller_key
from cosyvoice_stream.server.services import services_of
from cosyvoice_stream.server.transport import Closed, Transport
from cosyvoice_stream.server.websocket import WebSocketTransport, deny
from cosyvoice_stream.server.wire import AudioHeader, ServerMessage, parse_server_message


class Codec(ABC):
    """Translates one connection.

    Attributes:
        to_session: Messages of our protocol, from the peer.
        to_peer: Frames of the peer's protocol.
        farewell: Close code and reason, once the connection ends behind `to_peer`.
    """

    def __init__(self) -> None:
        self.to_session: deque[str] = deque()
        self.to_peer: deque[str | bytes] = deque()
        self.farewell: tuple[int, str] | None = None

    @property
    def patience_s(self) -> float | None:
        """How long the peer may say nothing, from its last frame on; None for ever."""
        return None

    @abstractmethod
    def from_peer(self, frame: str | bytes) -> None:
        """Take a frame of the peer. Whatever is wrong with it becomes an answer."""

    @abstractmethod
    def on_message(self, message: ServerMessage) -> None:
        """Take a message of the session."""

    @abstractmethod
    def on_audio(self, header: AudioHeader, data: bytes) -> None:
        """Take a frame of audio of the session."""

    def timed_out(self) -> None:
        """The peer has said nothing for `patience_s`."""
        raise NotImplementedError

    def from_session(self, frame: str | bytes) -> None:
        """Take a frame of the session."""
        if isinstance(frame, bytes):
            self.on_audio(AudioHeader.unpack(frame), frame[AudioHeader.SIZE :])
        elif (message := parse_server_message(frame)) is not None:
            self.on_message(message)

    def ask(self, kind: str, **fields: Any) -> None:
        """Send a message to the session."""
        self.to_session.append(json.dumps({"type": kind, **fields}))

    def tell(self, **fields: Any) -> None:
        """Send a message to the peer."""
        self.to_peer.append(json.dumps(fields, separators=(",", ":"), ensure_ascii=False))

    def part(self, code: int, reason: str) -> None:
        """Close the connection behind what was told."""
        self.farewell = self.farewell or (code, reason)


class TranslatingTransport:
    """`Transport` of a session whose peer speaks another protocol.

    Args:
        link: Moves the frames of the peer.
        codec: Translates them.
    """

    def __init__(self, link: Transport, codec: Codec) -> None:
        self._link = link
        self._codec = codec
        self._sending = asyncio.Lock()

    async def receive(self) -> str | bytes:
        """Wait for a message of our protocol. Raises `Closed` when the codec has ended it all."""
        codec = self._codec
        while not codec.to_session:
            try:
                async with asyncio.timeout(codec.patience_s):
                    frame = await self._link.receive()
            except TimeoutError:
                codec.timed_out()
            else:
                codec.from_peer(frame)
            await self._pass_on()
        return codec.to_session.popleft()

    async def send(self, frame: str | bytes) -> None:
        """Translate a frame of the session and hand it over."""
        self._codec.from_session(frame)
        await self._pass_on()

    async def close(self, code: int, reason: str) -> None:
        """Say good-bye."""
        await self._link.close(code, reason)

    def abort(self) -> None:
        """Drop the connection at once."""
        self._link.abort()

    def unsent_bytes(self) -> int:
        """What the network has not taken."""
        return self._link.unsent_bytes()

    async def _pass_on(self) -> None:
        codec = self._codec
        async with self._sending:
            while codec.to_peer:
                await self._link.send(codec.to_peer.popleft())
            if codec.farewell is not None:
                await self._link.close(*codec.farewell)
                raise Closed


async def serve_codec(websocket: WebSocket, codec: Codec) -> None:
    """Accept a WebSocket and run a session over it; deny it where there is no room."""
    services = services_of(websocket)
    key = caller_key(websocket.scope)
    try:
        services.sessions.check_room(key)
    except VoiceStreamError as error:
        await deny(websocket, error)
        return
    await websocket.accept()
    link = WebSocketTransport(websocket)
    await services.sessions.serve(TranslatingTransport(link, codec), raw_framing=False, key=key)
