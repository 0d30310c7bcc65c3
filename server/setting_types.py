"""Kinds of values that settings have beside pydantic's own."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, SecretStr


def _split_commas(value: Any) -> Any:
    """Turn ``"a, b"`` into ``["a", "b"]``; other values pass."""
    if isinstance(value, str):
        return [item for item in (part.strip() for part in value.split(",")) if item]
    return value


def _check_origins(origins: tuple[str, ...]) -> tuple[str, ...]:
    for origin in origins:
        parts = urlsplit(origin)
        if origin != "*" and (not parts.scheme or not parts.netloc or parts.path or parts.query):
            raise ValueError(
                f"{origin!r} is not an origin; write it as https://example.org, without a path"
            )
    return origins


def _check_address(address: str) -> str:
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        raise ValueError("write an IP address, such as 203.0.113.7") from None


def _split_ports(value: Any) -> Any:
    """Turn ``"50000-50100"`` into ``(50000, 50100)``; other values pass."""
    if not isinstance(value, str):
        return value
    first, _, last = value.partition("-")
    ports = tuple(int(p) if p.strip().isdecimal() else 0 for p in (first, last or first))
    if not 1024 <= ports[0] <= ports[1] <= 65535:
        raise ValueError("write the first and the last port, from 1024 on, such as 50000-50100")
    return ports


def _expand_home(path: Path) -> Path:
    return path.expanduser()


def _check_aliases(pairs: tuple[str, ...]) -> tuple[str, ...]:
    for pair in pairs:
        name, equals, voice = pair.partition("=")
        if not (name.strip() and equals and voice.strip()):
            raise ValueError(f"{pair!r} is not NAME=VOICE, such as alloy=voice-abc")
    return pairs


CommaList = Annotated[tuple[str, ...], BeforeValidator(_split_commas)]
"""Strings; in the environment separated by commas."""
Origins = Annotated[CommaList, AfterValidator(_check_origins)]
Aliases = Annotated[CommaList, AfterValidator(_check_aliases)]
IpAddress = Annotated[str, AfterValidator(_check_address)]
PortRange = Annotated[tuple[int, int], BeforeValidator(_split_ports)]
"""First and last port; in the environment ``first-last``."""
Secrets = Annotated[tuple[SecretStr, ...], BeforeValidator(_split_commas)]
FolderPath = Annotated[Path, AfterValidator(_expand_home)]
FilePath = Annotated[Path, AfterValidator(_expand_home)]
