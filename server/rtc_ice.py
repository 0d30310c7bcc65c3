"""Where calls are reached: addresses, UDP ports, STUN and TURN servers.

aiortc binds every interface at ports that the kernel chooses. This gathers candidates under the
server's own rules instead: the address that the server listens on, ports out of a range that a
firewall or a container publishes, and the public address in the place of the private one.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
import random
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import aioice.ice
from aioice.candidate import Candidate, candidate_foundation, candidate_priority
from aioice.stun import TransactionError
from aiortc import RTCIceServer

from cosyvoice_stream.errors import ConfigError, EngineBusy

logger = logging.getLogger(__name__)

_RECEIVE_BUFFER_BYTES: Final = 256 * 1024
_CREDENTIALS_S: Final = 24 * 3600
"""How long credentials that are made from a shared secret are good."""
_RETRY_S: Final = 5.0
_STUN_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class IceServer:
    """A STUN or TURN server."""

    url: str
    """Without credentials, as browsers take it."""
    username: str = ""
    credential: str = field(default="", repr=False)

    @property
    def is_turn(self) -> bool:
        """Whether it relays."""
        return self.url.startswith("turn")


def parse_ice_server(text: str) -> IceServer:
    """Read ``stun:host:port``, ``turn:host?transport=udp`` or ``turn://user:password@host``.

    Raises:
        ConfigError: It is none of these.
    """
    scheme, _, rest = text.strip().partition(":")
    parts = urlsplit("//" + rest.removeprefix("//"))
    if scheme not in ("stun", "stuns", "turn", "turns") or not parts.hostname or parts.path:
        raise ConfigError(
            "webrtc_ice_servers has an entry that is no STUN or TURN server",
            how_to_fix="write stun:host:3478, or turn://user:password@host:3478?transport=udp",
        )
    host = parts.netloc.rpartition("@")[2]
    query = f"?{parts.query}" if parts.query else ""
    return IceServer(
        f"{scheme}:{host}{query}", unquote(parts.username or ""), unquote(parts.password or "")
    )


def with_credentials(
    servers: Sequence[IceServer], secret: str | None, now: float | None = None
) -> list[IceServer]:
    """Give TURN servers without a password one that ends by itself.

    coturn calls it ``use-auth-secret``: the name is the end of its time, the password its HMAC.

    Args:
        servers: Of the settings.
        secret: Shared with the TURN server; without it the servers stay as they are.
        now: Unix time.
    """
    if secret is None:
        return list(servers)
    until = int((time.time() if now is None else now) + _CREDENTIALS_S)
    name = f"{until}:cosyvoice-stream"
    digest = hmac.new(secret.encode(), name.encode(), hashlib.sha1).digest()
    password = base64.b64encode(digest).decode()
    return [
        IceServer(server.url, name, password) if server.is_turn and not server.username else server
        for server in servers
    ]


def browser_json(servers: Sequence[IceServer]) -> list[dict[str, str]]:
    """``iceServers`` of a browser's ``RTCPeerConnection``."""
    return [
        {"urls": server.url}
        | (
            {"username": server.username, "credential": server.credential}
            if server.username
            else {}
        )
        for server in servers
    ]


def link_header(servers: Sequence[IceServer]) -> str:
    """The same as the value of a ``Link`` header (RFC 9725 section 4.6)."""
    return ", ".join(
        f'<{server.url}>; rel="ice-server"'
        + (
            f'; username="{server.username}"; credential="{server.credential}"'
            '; credential-type="password"'
            if server.username
            else ""
        )
        for server in servers
    )


def aiortc_servers(servers: Sequence[IceServer]) -> list[RTCIceServer]:
    """The same for aiortc."""
    return [
        RTCIceServer(server.url, server.username or None, server.credential or None)
        for server in servers
    ]


@dataclass(frozen=True, slots=True)
class Reach:
    """Where the UDP sockets of calls are."""

    host: str | None = None
    """Address to bind; None binds every interface."""
    ports: tuple[int, int] = (0, 0)
    """First and last UDP port; zeros leave the choice to the kernel."""
    public_address: str | None = None
    """What peers are told instead of the bound address."""

    async def gather(
        self, connection: aioice.ice.Connection, component: int, addresses: list[str]
    ) -> list[Candidate]:
        """Take the place of aioice's ``Connection.get_component_candidates``.

        Raises:
            EngineBusy: All ports are taken.
        """
        wanted = addresses if self.host is None else [self.host]
        protocols = [p for a in wanted if (p := await self._open(connection, component, a))]
        if not protocols:
            raise EngineBusy(_RETRY_S, "all UDP ports for calls are taken")
        connection._protocols += protocols
        candidates = [protocol.local_candidate for protocol in protocols]
        if connection.stun_server is not None:
            asked = [
                _ask(protocol, connection.stun_server)
                for protocol in protocols
                if "." in protocol.local_candidate.host
            ]
            candidates += [seen for seen in await asyncio.gather(*asked) if seen is not None]
        # Without addresses this is the rest: a relay, where there is a TURN server.
        relayed = await type(connection).get_component_candidates(connection, component, [])
        return candidates + relayed

    async def _open(
        self, connection: aioice.ice.Connection, component: int, address: str
    ) -> aioice.ice.StunProtocol | None:
        bound = self._bind(address)
        if bound is None:
            return None
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_datagram_endpoint(
            lambda: aioice.ice.StunProtocol(connection), sock=bound
        )
        shown = self.public_address or address
        protocol.local_candidate = Candidate(
            foundation=candidate_foundation("host", "udp", shown),
            component=component,
            transport="udp",
            priority=candidate_priority(component, "host"),
            host=shown,
            port=protocol.transport.get_extra_info("sockname")[1],
            type="host",
        )
        return protocol

    def _bind(self, address: str) -> socket.socket | None:
        """A socket at a free port, or None."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        first, last = self.ports
        begin = random.randint(first, last)
        count = last - first + 1
        for step in range(count):
            bound = socket.socket(family, socket.SOCK_DGRAM)
            try:
                bound.bind((address, first + (begin - first + step) % count))
            except OSError as error:
                bound.close()
                logger.debug("cannot bind a UDP port of %s: %s", address, error.strerror)
            else:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
                bound.setblocking(False)
                return bound
        return None


async def _ask(protocol: aioice.ice.StunProtocol, stun_server: tuple[str, int]) -> Candidate | None:
    """How a STUN server sees a socket; None where it does not answer."""
    try:
        async with asyncio.timeout(_STUN_S):
            candidate, _ = await aioice.ice.server_reflexive_candidate(protocol, stun_server)
    except (TimeoutError, OSError, TransactionError):
        return None
    return candidate


def apply_reach(reach: Reach, connection: aioice.ice.Connection) -> None:
    """Let a connection gather its candidates under these rules; call it before it does."""
    loose: Any = connection

    async def gather(component: int, addresses: list[str], timeout: int = 5) -> list[Candidate]:
        return await reach.gather(connection, component, addresses)

    # aioice has no setting for any of this, and aiortc none for the class that it makes.
    loose.get_component_candidates = gather
