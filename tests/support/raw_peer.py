"""A WebSocket client that does only what it is told: it reads nothing by itself."""

import asyncio
import json
import socket

from websockets.client import ClientProtocol
from websockets.uri import parse_uri

PATIENCE_S = 20.0


class RawPeer:
    """Use as an async context manager; the handshake is done on entry."""

    def __init__(self, url: str, *, receive_buffer_bytes: int = 4096) -> None:
        self._uri = parse_uri(url)
        self._protocol = ClientProtocol(self._uri)
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self._socket.setblocking(False)
        self._loop = asyncio.get_running_loop()

    async def __aenter__(self):
        await self._loop.sock_connect(self._socket, (self._uri.host, self._uri.port))
        self._protocol.send_request(self._protocol.connect())
        await self._flush()
        while self._protocol.handshake_exc is None and self._protocol.state.name == "CONNECTING":
            await self._read()
        assert self._protocol.handshake_exc is None
        return self

    async def __aexit__(self, *_) -> None:
        self._socket.close()

    async def send(self, **message) -> None:
        self._protocol.send_text(json.dumps(message).encode())
        await self._flush()

    async def send_bytes(self, data: bytes) -> None:
        """Bytes as they are, past all framing."""
        await self._loop.sock_sendall(self._socket, data)

    async def read_to_the_end(self) -> int:
        """Read until the connection is over; return the number of bytes."""
        count = 0
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    data = await self._loop.sock_recv(self._socket, 65_536)
                except ConnectionError:
                    return count
                if not data:
                    return count
                count += len(data)

    async def _flush(self) -> None:
        await self._loop.sock_sendall(self._socket, b"".join(self._protocol.data_to_send()))

    async def _read(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            self._protocol.receive_data(await self._loop.sock_recv(self._socket, 4096))
        self._protocol.events_received()
