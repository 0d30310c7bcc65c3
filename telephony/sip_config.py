"""How a SIP user agent runs: addresses, limits, who may call."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cosyvoice_stream.errors import ConfigError
from cosyvoice_stream.telephony.sdp_answer import DEFAULT_CODECS, DEFAULT_PTIME_MS

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

PRIVATE_NETWORKS: Final = (
    "127.0.0.0/8",
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "169.254.0.0/16",
    "::1/128",
    "fc00::/7",
    "fe80::/10",
)
"""Who may call where nothing else is said: this machine and its own network."""


@dataclass(frozen=True, slots=True)
class Account:
    """A subscription at a registrar or a trunk."""

    uri: str
    """Address of record, such as ``sip:bot@example.org``."""
    username: str
    """For its digest."""
    password: str = field(repr=False)
    registrar: str = ""
    """URI of whoever takes the registration and our calls, such as
    ``sip:pbx.example.org:5060;transport=tcp``; empty: the host of `uri`."""
    expires_s: int = 300
    register: bool = True
    """Register at all; a trunk that knows our address needs only the digest of calls."""


@dataclass(frozen=True, slots=True)
class SipConfig:
    """One user agent."""

    host: str = "127.0.0.1"
    """Address to listen on, for SIP and RTP."""
    port: int = 5060
    """For UDP and TCP; 0 takes a free one."""
    tls_port: int | None = None
    """For TLS; None: no TLS."""
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    """Our certificate, for `tls_port`."""
    client_tls: ssl.SSLContext | None = field(default=None, repr=False)
    """For TLS connections of ours; None trusts the system's authorities."""
    advertised_host: str | None = None
    """Address that the other end is told, behind NAT; None: the one it is reached from."""
    user: str = "cosyvoice"
    """User part of our URIs where no account says another."""
    rtp_ports: tuple[int, int] = (16_384, 32_767)
    """First and last UDP port for RTP; calls take pairs of them."""
    codecs: tuple[str, ...] = DEFAULT_CODECS
    ptime_ms: int = DEFAULT_PTIME_MS
    allow: tuple[Network, ...] = tuple(ipaddress.ip_network(item) for item in PRIVATE_NETWORKS)
    """Who may send us SIP."""
    max_calls: int = 100
    """Calls at the same time, both ways; more are answered 486."""
    max_calls_per_host: int | None = None
    """Of these, from one address; None: no limit of its own."""
    max_call_s: float = 3600.0
    """A longer call is hung up."""
    ring_s: float = 120.0
    """A call that nobody has answered for so long is given up."""
    silence_s: float = 60.0
    """A call in which no RTP came for so long, and which is not on hold, is hung up."""
    goodbye_s: float = 2.0
    """For the answers to our BYEs when the user agent stops."""
    account: Account | None = None

    def admits(self, host: str) -> bool:
        """Whether this address may send us SIP."""
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self.allow)


def parse_networks(items: Sequence[str]) -> tuple[Network, ...]:
    """Read an allow list: addresses, networks such as ``192.0.2.0/24``, or ``*`` for everybody.

    Raises:
        ConfigError: One of them is neither.
    """
    networks: list[Network] = []
    for item in items:
        if item == "*":
            networks += [ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0")]
            continue
        try:
            networks.append(ipaddress.ip_network(item, strict=False))
        except ValueError:
            raise ConfigError(
                f"{item!r} is no network",
                how_to_fix="write addresses or networks such as 192.0.2.0/24, or *",
            ) from None
    return tuple(networks)


def parse_ports(text: str) -> tuple[int, int]:
    """Read a range of ports such as ``16384-32767``.

    Raises:
        ConfigError: It is none, or too small for one call.
    """
    first, _, last = text.partition("-")
    try:
        low, high = int(first), int(last)
    except ValueError:
        low, high = 0, 0
    if not 1024 <= low < high <= 65_535 or high - (low + low % 2) < 1:
        raise ConfigError(
            f"{text!r} is no range of RTP ports",
            how_to_fix="write two ports from 1024 to 65535 such as 16384-32767",
        )
    return low, high


def server_tls(certificate: Path, key: Path) -> ssl.SSLContext:
    """Load our certificate.

    Raises:
        ConfigError: It cannot be read, or key and certificate do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or "unreadable"
        raise ConfigError(
            f"the TLS certificate of the SIP endpoint cannot be used: {reason}",
            how_to_fix="give a PEM certificate and its unencrypted PEM key",
        ) from error
    return context
