"""The Wyoming protocol on a TCP port of its own, in the event loop of the HTTP server."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from cosyvoice_stream.errors import ConfigError, PeerGone, VoiceStreamError
from cosyvoice_stream.server.environment import PREFIX
from cosyvoice_stream.server.error_map import error_json
from cosyvoice_stream.server.error_shapes import sentence
from cosyvoice_stream.server.services import Services
from cosyvoice_stream.server.transport import PeerLost
from cosyvoice_stream.server.vendor_socket import TranslatingTransport
from cosyvoice_stream.server.wire import MAX_MESSAGE_BYTES
from cosyvoice_stream.server.wyoming_announcement import Announcement
from cosyvoice_stream.server.wyoming_codec import (
    MAX_LINE_BYTES,
    WyomingCodec,
    pack_event,
    wyoming_info,
)

_HIGH_WATER_BYTES: Final = 32 * 1024
_PAYLOAD_BYTES: Final = 64 * 1024
"""Of a payload that nobody asked for, read at a time."""


class WyomingLink:
    """`Transport` over a TCP connection; a frame that is received is one event as JSON."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        writer.transport.set_write_buffer_limits(_HIGH_WATER_BYTES)

    async def receive(self) -> str | bytes:
        """Wait for an event. Raises `PeerGone`, also for what is none: there is no way back."""
        try:
            line = await self._reader.readline()
            if not line:
                raise PeerGone("the peer closed the connection")
            event = json.loads(line)
            data = event.get("data") or {}
            if length := _length(event, "data_length"):
                data = {**data, **json.loads(await self._reader.readexactly(length))}
            await self._skip(_length(event, "payload_length"))
            return json.dumps({"type": event.get("type"), "data": data})
        except (OSError, asyncio.IncompleteReadError) as error:
            raise PeerLost("the connection broke") from error
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            await self.send(pack_event("error", {"text": "this is no event", "code": "invalid"}))
            self._writer.close()
            raise PeerGone("the peer does not speak the protocol") from error

    async def send(self, frame: str | bytes) -> None:
        """Hand an event over. Raises `PeerGone`."""
        try:
            self._writer.write(frame.encode() if isinstance(frame, str) else frame)
            await self._writer.drain()
        except OSError as error:
            raise PeerLost("the connection broke") from error

    async def close(self, code: int, reason: str) -> None:
        """Close behind what was written; the protocol has no words for it."""
        self._writer.close()

    def abort(self) -> None:
        """Drop the connection at once."""
        self._writer.transport.abort()

    def unsent_bytes(self) -> int:
        """What waits in the write buffer."""
        return self._writer.transport.get_write_buffer_size()

    async def _skip(self, length: int) -> None:
        while length:
            length -= len(await self._reader.readexactly(min(length, _PAYLOAD_BYTES)))


def _length(event: dict[str, Any], field: str) -> int:
    length = event.get(field) or 0
    if not isinstance(length, int) or not 0 <= length <= MAX_MESSAGE_BYTES:
        raise ValueError(f"{field} is wrong")
    return length


class WyomingService:
    """Listens between `start` and `stop`.

    Args:
        services: Of the application.
        host: Address to listen on.
        port: To listen on; 0 takes a free one.
        announcement: Tells the network of the port.

    Attributes:
        port: The port that it listens on.
        announcement: As given.
    """

    def __init__(
        self, services: Services, host: str, port: int, announcement: Announcement | None = None
    ) -> None:
        self.port = port
        self._host = host
        self._services = services
        self.announcement = announcement
        self._server: asyncio.Server | None = None
        self._peers: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen, and announce it where that is wanted.

        Raises:
            ConfigError: The port cannot be had or not be announced.
        """
        try:
            self._server = await asyncio.start_server(
                self._accept, self._host, self.port, limit=MAX_LINE_BYTES
            )
        except OSError:
            raise ConfigError(
                f"port {self.port} on {self._host} cannot be listened on",
                how_to_fix=f"set {PREFIX}WYOMING_PORT to a free one",
            ) from None
        self.port = self._server.sockets[0].getsockname()[1]
        if self.announcement is not None:
            await self.announcement.start(self.port)

    async def stop(self) -> None:
        """Drop who is still there and stop listening. Safe to call twice."""
        if self.announcement is not None:
            await self.announcement.stop()
        if self._server is not None:
            server, self._server = self._server, None
            server.close()
            for peer in tuple(self._peers):
                peer.cancel()
            await asyncio.gather(*self._peers, return_exceptions=True)
            await server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = asyncio.create_task(self._serve(reader, writer), name="wyoming peer")
        self._peers.add(peer)
        peer.add_done_callback(self._peers.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        services, link = self._services, WyomingLink(reader, writer)
        try:
            services.sessions.check_room()
            codec = WyomingCodec(await self._info())
            await services.sessions.serve(TranslatingTransport(link, codec), raw_framing=False)
        except VoiceStreamError as error:
            said = error_json(error)
            writer.write(pack_event("error", {"text": sentence(said), "code": said["code"]}))
        finally:
            writer.close()

    async def _info(self) -> dict[str, Any]:
        info = self._services.engine.info
        voices = [(voice.voice_id, voice.name) for voice in await self._services.voices.list()]
        return wyoming_info(info.name, info.description, list(info.languages), voices)
