"""The sockets of a SIP user agent: UDP, TCP and TLS; bytes in, bytes out."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

from cosyvoice_stream.errors import ConfigError, InvalidMessage
from cosyvoice_stream.telephony.sip_framing import PONG, StreamFramer
from cosyvoice_stream.telephony.sip_messages import Flow, Transport

logger = logging.getLogger(__name__)

Receiver = Callable[[bytes, Flow], None]

MAX_CONNECTIONS: Final = 1000
MAX_UNSENT_BYTES: Final = 256 * 1024
"""A connection whose peer reads less is dropped."""
IDLE_S: Final = 600.0
"""A connection on which nothing came for so long is closed; keep-alives count."""
_CONNECT_S: Final = 5.0
_PORT_TRIES: Final = 16
_MAX_WAITING: Final = 32
"""Messages for a connection that is being made."""


class _Udp(asyncio.DatagramProtocol):
    def __init__(self, receive: Receiver) -> None:
        self._receive = receive

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        if data.strip(b"\r\n\0"):  # anything else is a keep-alive
            self._receive(data, Flow("UDP", address[0], address[1]))

    def error_received(self, error: Exception) -> None:
        logger.debug("x UDP: %s", type(error).__name__)


class _Stream(asyncio.Protocol):
    """One TCP or TLS connection, ours or theirs."""

    def __init__(self, sockets: SipSockets, transport: Transport) -> None:
        self._sockets = sockets
        self._name = transport
        self._framer = StreamFramer()
        self._idle: asyncio.TimerHandle | None = None
        self.transport: asyncio.Transport | None = None
        self.flow: Flow | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        peer = transport.get_extra_info("peername")
        if peer is None or not self._sockets.admit(peer[0]):
            transport.abort()
            return
        self.transport = transport
        self.flow = Flow(self._name, peer[0], peer[1])
        self._sockets.opened(self.flow, self)
        self._stay()

    def data_received(self, data: bytes) -> None:
        if self.flow is None:
            return
        self._stay()
        try:
            messages = self._framer.push(data)
        except InvalidMessage as error:
            logger.debug("x %s: %s", self._name, error)
            self.abort()
            return
        for _ in range(self._framer.pings):
            self.write(PONG)
        self._framer.pings = 0
        for message in messages:
            self._sockets.receive(message, self.flow)

    def connection_lost(self, error: Exception | None) -> None:
        if self._idle is not None:
            self._idle.cancel()
        if self.flow is not None:
            self._sockets.closed(self)

    def write(self, data: bytes) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        self.transport.write(data)
        if self.transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            self.abort()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def _stay(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(IDLE_S, self.abort)


class SipSockets:
    """Listens and connects.

    Args:
        receive: Gets every datagram or message, with where it came from.
        admit: Whether an address may connect at all.
        unreachable: Is told where no connection could be made to.
        client_tls: For TLS connections of ours; without it the system's authorities are trusted.
    """

    def __init__(
        self,
        receive: Receiver,
        admit: Callable[[str], bool],
        unreachable: Callable[[Flow], None],
        *,
        client_tls: ssl.SSLContext | None = None,
    ) -> None:
        self.receive = receive
        self._admit = admit
        self._unreachable = unreachable
        self._client_tls = client_tls
        self._udp: asyncio.DatagramTransport | None = None
        self._servers: list[asyncio.Server] = []
        self._streams: dict[Flow, _Stream] = {}
        self._waiting: dict[Flow, list[bytes]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def open_udp(self, host: str, port: int) -> int:
        """Listen on a UDP port; 0 takes a free one.

        Returns:
            The port.

        Raises:
            ConfigError: It cannot be had.
        """
        loop = asyncio.get_running_loop()
        try:
            transport, _ = await loop.create_datagram_endpoint(
                lambda: _Udp(self.receive), local_addr=(host, port)
            )
        except OSError as error:
            raise _not_bound("UDP", host, port, error) from error
        self._udp = transport
        return int(transport.get_extra_info("sockname")[1])

    async def open_both(self, host: str, port: int) -> int:
        """Listen under one number over UDP and TCP; 0 takes one that is free in both.

        See `open_udp`.
        """
        tries = _PORT_TRIES if port == 0 else 1
        while True:
            tries -= 1
            number = await self.open_udp(host, port)
            try:
                return await self.open_tcp(host, number)
            except ConfigError:
                if not tries:
                    raise
                assert self._udp is not None
                self._udp.abort()

    async def open_tcp(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen on a TCP port, with TLS if a context is given; see `open_udp`."""
        name: Transport = "TCP" if tls is None else "TLS"
        try:
            server = await asyncio.get_running_loop().create_server(
                lambda: _Stream(self, name), host, port, ssl=tls
            )
        except OSError as error:
            raise _not_bound(name, host, port, error) from error
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def send(self, data: bytes, flow: Flow) -> None:
        """Send a message; a connection is made where there is none. Never waits."""
        if flow.transport == "UDP":
            if self._udp is not None and not self._udp.is_closing():
                self._udp.sendto(data, (flow.host, flow.port))
            return
        stream = self._streams.get(flow)
        if stream is not None:
            stream.write(data)
        elif flow in self._waiting:
            if len(self._waiting[flow]) < _MAX_WAITING:
                self._waiting[flow].append(data)
        elif len(self._streams) + len(self._waiting) < MAX_CONNECTIONS:
            self._waiting[flow] = [data]
            task = asyncio.get_running_loop().create_task(self._connect(flow), name="sip connect")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def has_connection(self, flow: Flow) -> bool:
        """Whether a message to there needs no new connection."""
        return flow.transport == "UDP" or flow in self._streams

    async def close(self) -> None:
        """Close everything."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._udp is not None:
            self._udp.close()
        for server in self._servers:
            server.close()
        for stream in list(self._streams.values()):
            if stream.transport is not None:
                stream.transport.close()
        for server in self._servers:
            await server.wait_closed()

    def admit(self, host: str) -> bool:
        """Whether another connection of this address is taken."""
        return len(self._streams) < MAX_CONNECTIONS and self._admit(host)

    def opened(self, flow: Flow, stream: _Stream) -> None:
        """A connection stands."""
        self._streams[flow] = stream

    def closed(self, stream: _Stream) -> None:
        """A connection is gone."""
        for known in [key for key, value in self._streams.items() if value is stream]:
            del self._streams[known]

    async def _connect(self, flow: Flow) -> None:
        assert flow.transport != "UDP"
        try:
            async with asyncio.timeout(_CONNECT_S):
                if flow.transport == "TLS" and self._client_tls is None:
                    self._client_tls = await asyncio.to_thread(ssl.create_default_context)
                tls = self._client_tls if flow.transport == "TLS" else None
                _, stream = await asyncio.get_running_loop().create_connection(
                    lambda: _Stream(self, flow.transport), flow.host, flow.port, ssl=tls
                )
        except (OSError, TimeoutError) as error:
            logger.warning("no SIP connection to %s: %s", flow, type(error).__name__)
            self._waiting.pop(flow, None)
            self._unreachable(flow)
            return
        self._streams.setdefault(flow, stream)  # by the name that was asked for
        for data in self._waiting.pop(flow, []):
            stream.write(data)


def _not_bound(name: str, host: str, port: int, error: OSError) -> ConfigError:
    return ConfigError(
        f"SIP over {name} cannot listen on {host} port {port}: {error.strerror or error}",
        how_to_fix="choose another address or port, or stop the program that has this one",
    )


async def resolve(flow: Flow) -> Flow:
    """Look the host of a UDP flow up; a connection is made by name, for its certificate.

    Raises:
        ConfigError: It has no address.
    """
    if flow.transport != "UDP":
        return flow
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            flow.host, flow.port, type=socket.SOCK_DGRAM
        )
    except OSError:
        raise ConfigError(
            "a SIP host has no address", how_to_fix="write an address instead of the name"
        ) from None
    address = min(found, key=lambda item: item[0] != socket.AF_INET)[4]
    return Flow(flow.transport, str(address[0]), flow.port)
