"""Tells Home Assistant on the local network of the Wyoming port, by multicast DNS."""

from __future__ import annotations

import asyncio
import socket
from importlib import import_module
from typing import Any, Final

from cosyvoice_stream.errors import ConfigError
from cosyvoice_stream.server.environment import PREFIX

SERVICE: Final = "_wyoming._tcp.local."
_WILDCARDS: Final = ("0.0.0.0", "::", "")


class Announcement:
    """Is made between `start` and `stop`, where the port can be reached and nowhere else.

    A host on a loopback address is therefore announced to this machine only. The addresses are of
    IPv4.

    Args:
        host: Address or name that the port listens on; a wildcard stands for all interfaces.

    Attributes:
        name: Under which the service was announced; another one where the first was taken.
    """

    def __init__(self, host: str) -> None:
        self.name = f"cosyvoice-stream {socket.gethostname().partition('.')[0]}"[:60]
        self._host = host
        self._zeroconf: Any = None

    async def start(self, port: int) -> None:
        """Claim a name and announce the port; takes about a second.

        Raises:
            ConfigError: zeroconf is not installed, or the network cannot be announced to.
        """
        try:
            zeroconf = await asyncio.to_thread(import_module, "zeroconf.asyncio")
            ifaddr = import_module("ifaddr")
        except ImportError:
            raise ConfigError(
                f"{PREFIX}WYOMING_ANNOUNCE is set, and zeroconf is not installed",
                how_to_fix="pip install 'cosyvoice-stream[wyoming]'",
            ) from None
        try:
            addresses = await self._addresses(ifaddr)
            self._zeroconf = zeroconf.AsyncZeroconf(interfaces=addresses)
            info = zeroconf.AsyncServiceInfo(
                SERVICE,
                f"{self.name}.{SERVICE}",
                addresses=[socket.inet_aton(address) for address in addresses],
                port=port,
            )
            announced = await self._zeroconf.async_register_service(info, allow_name_change=True)
            await announced
        except OSError as error:
            await self.stop()
            raise ConfigError(
                f"port {port} cannot be announced by multicast DNS on {self._host}",
                how_to_fix=f"set {PREFIX}WYOMING_HOST to an IPv4 address of a network interface, "
                f"or {PREFIX}WYOMING_ANNOUNCE to false",
            ) from error
        self.name = info.name.removesuffix("." + SERVICE)

    async def stop(self) -> None:
        """Take the announcement back. Safe to call twice, and before `start`."""
        if self._zeroconf is not None:
            made, self._zeroconf = self._zeroconf, None
            await made.async_close()

    async def _addresses(self, ifaddr: Any) -> list[str]:
        """Return the IPv4 addresses that the port listens on.

        Raises:
            OSError: There are none.
        """
        if self._host in _WILDCARDS:
            found = [ip.ip for each in ifaddr.get_adapters() for ip in each.ips if ip.is_IPv4]
            found = [address for address in found if not address.startswith("127.")]
        else:
            loop = asyncio.get_running_loop()
            resolved = await loop.getaddrinfo(self._host, None, family=socket.AF_INET)
            found = [entry[4][0] for entry in resolved]
        if not found:
            raise OSError("no interface has an IPv4 address")
        return list(dict.fromkeys(found))
