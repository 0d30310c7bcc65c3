"""Session descriptions of RFC 8866: text ↔ fields, as far as an audio call needs them."""

from __future__ import annotations

import ipaddress
import itertools
from dataclasses import dataclass
from enum import Enum
from typing import Final

from cosyvoice_stream.errors import InvalidMessage

MAX_CHARS: Final = 16_384
MAX_MEDIA: Final = 16
MAX_FORMATS: Final = 64
_MAX_LINE: Final = 1024


class Direction(Enum):
    """Which way audio flows, seen from whoever wrote it."""

    SENDRECV = "sendrecv"
    SENDONLY = "sendonly"
    RECVONLY = "recvonly"
    INACTIVE = "inactive"

    @property
    def sends(self) -> bool:
        """Whether the writer sends."""
        return self in (Direction.SENDRECV, Direction.SENDONLY)

    @property
    def receives(self) -> bool:
        """Whether the writer listens."""
        return self in (Direction.SENDRECV, Direction.RECVONLY)

    @property
    def reversed(self) -> Direction:
        """The same, seen from the other end."""
        return direction(sends=self.receives, receives=self.sends)


def direction(*, sends: bool, receives: bool) -> Direction:
    """The direction of somebody who sends, listens, both or neither."""
    if sends:
        return Direction.SENDRECV if receives else Direction.SENDONLY
    return Direction.RECVONLY if receives else Direction.INACTIVE


@dataclass(frozen=True, slots=True)
class Format:
    """A payload type of a media line."""

    payload_type: int
    name: str
    """Of the encoding; empty where nothing says it."""
    clock_hz: int
    channels: int = 1
    parameters: str = ""
    """What `fmtp` says."""

    def matches(self, name: str, clock_hz: int) -> bool:
        """Whether this is the named encoding at that clock rate."""
        return self.name.lower() == name.lower() and self.clock_hz == clock_hz


STATIC_FORMATS: Final = {
    0: Format(0, "PCMU", 8000),
    8: Format(8, "PCMA", 8000),
    9: Format(9, "G722", 8000),
    10: Format(10, "L16", 44_100, 2),
    11: Format(11, "L16", 44_100),
    13: Format(13, "CN", 8000),
}
"""Payload types that need no `rtpmap` (RFC 3551), of encodings that may matter here."""


@dataclass(frozen=True, slots=True)
class Media:
    """One ``m=`` line and what belongs to it."""

    kind: str
    """``"audio"``, ``"video"`` and so on."""
    port: int
    """0 where it is refused or switched off."""
    protocol: str = "RTP/AVP"
    formats: tuple[Format, ...] = ()
    other_formats: tuple[str, ...] = ()
    """Formats of a line that is not RTP, as they stand."""
    host: str = ""
    """Address of its own ``c=`` line or of the session's."""
    direction: Direction = Direction.SENDRECV
    ptime_ms: int | None = None
    maxptime_ms: int | None = None
    rtcp_mux: bool = False
    rtcp_port: int | None = None

    @property
    def on_hold(self) -> bool:
        """Whether the writer wants to hear nothing."""
        return not self.direction.receives or self.host in ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class Description:
    """A whole session description."""

    host: str
    """Address of the writer's ``o=`` and ``c=`` lines."""
    media: tuple[Media, ...]
    session_id: int = 0
    version: int = 0
    """Grows whenever a later description differs."""

    @property
    def audio(self) -> Media | None:
        """The first audio line that is switched on and is plain RTP."""
        for media in self.media:
            if media.kind == "audio" and media.port and media.protocol in ("RTP/AVP", "RTP/AVPF"):
                return media
        return None

    @classmethod
    def parse(cls, text: str) -> Description:
        """Read a description.

        Raises:
            InvalidMessage: It is no session description, too long, or a value in it is impossible.
        """
        if len(text) > MAX_CHARS:
            raise InvalidMessage(f"a session description has at most {MAX_CHARS} characters")
        lines = [_split(line) for line in text.splitlines() if line.strip()]
        if not lines or lines[0] != ("v", "0"):
            raise InvalidMessage("a session description begins with v=0")
        starts = [place for place, (kind, _) in enumerate(lines) if kind == "m"]
        if len(starts) > MAX_MEDIA:
            raise InvalidMessage(f"a session description has at most {MAX_MEDIA} media lines")
        head = lines[: starts[0]] if starts else lines
        session = _Attributes.read(head, "", Direction.SENDRECV)
        sections = itertools.pairwise([*starts, len(lines)])
        media = tuple(_media(lines[first:last], session) for first, last in sections)
        session_id, version = _origin(dict(head).get("o", ""))
        return cls(session.host, media, session_id, version)

    def serialize(self) -> str:
        """Write it, with the line ends of the standard."""
        lines = [
            "v=0",
            f"o=- {self.session_id} {self.version} {_address(self.host)}",
            "s=-",
            f"c={_address(self.host)}",
            "t=0 0",
        ]
        for media in self.media:
            lines += _media_lines(media, self.host)
        return "".join(line + "\r\n" for line in lines)


@dataclass(slots=True)
class _Attributes:
    """What the lines of a section say, `rtpmap` and `fmtp` by payload type."""

    host: str
    direction: Direction
    ptime_ms: int | None = None
    maxptime_ms: int | None = None
    rtcp_mux: bool = False
    rtcp_port: int | None = None
    maps: dict[str, str] | None = None
    parameters: dict[str, str] | None = None

    @classmethod
    def read(cls, lines: list[tuple[str, str]], host: str, preset: Direction) -> _Attributes:
        found = cls(host, preset, maps={}, parameters={})
        assert found.maps is not None
        assert found.parameters is not None
        for kind, value in lines:
            if kind == "c":
                found.host = _connection(value)
            if kind != "a":
                continue
            name, _, rest = value.partition(":")
            match name.strip().lower():
                case "rtpmap" | "fmtp" as which:
                    number, _, meaning = rest.strip().partition(" ")
                    table = found.maps if which == "rtpmap" else found.parameters
                    table.setdefault(number, meaning.strip())
                case "ptime":
                    found.ptime_ms = _milliseconds(rest)
                case "maxptime":
                    found.maxptime_ms = _milliseconds(rest)
                case "rtcp-mux":
                    found.rtcp_mux = True
                case "rtcp":
                    found.rtcp_port = _number(rest.split()[0] if rest.split() else "", 65_535)
                case "sendrecv" | "sendonly" | "recvonly" | "inactive" as way:
                    found.direction = Direction(way)
        return found


def _split(line: str) -> tuple[str, str]:
    if len(line) > _MAX_LINE:
        raise InvalidMessage(f"a line of a session description has at most {_MAX_LINE} characters")
    if len(line) < 2 or line[1] != "=":
        raise InvalidMessage("a line of a session description has the form x=value")
    return line[0], line[2:].strip()


def _media(lines: list[tuple[str, str]], session: _Attributes) -> Media:
    words = lines[0][1].split()
    if len(words) < 4:
        raise InvalidMessage("an m= line has a kind, a port, a protocol and formats")
    kind, port, protocol, *names = words
    if len(names) > MAX_FORMATS:
        raise InvalidMessage(f"an m= line has at most {MAX_FORMATS} formats")
    found = _Attributes.read(lines[1:], session.host, session.direction)
    formats: tuple[Format, ...] = ()
    if protocol.startswith(("RTP/", "UDP/TLS/RTP/")):
        formats = tuple(_format(name, found) for name in names)
    return Media(
        kind=kind,
        port=_number(port.partition("/")[0], 65_535),
        protocol=protocol,
        formats=formats,
        other_formats=() if formats else tuple(names),
        host=found.host,
        direction=found.direction,
        ptime_ms=found.ptime_ms or session.ptime_ms,
        maxptime_ms=found.maxptime_ms or session.maxptime_ms,
        rtcp_mux=found.rtcp_mux,
        rtcp_port=found.rtcp_port,
    )


def _format(name: str, found: _Attributes) -> Format:
    number = _number(name, 127)
    assert found.maps is not None
    assert found.parameters is not None
    parameters = found.parameters.get(name, "")
    mapped = found.maps.get(name)
    if mapped is None:
        known = STATIC_FORMATS.get(number)
        if known is None:
            return Format(number, "", 0, parameters=parameters)
        return Format(number, known.name, known.clock_hz, known.channels, parameters)
    encoding, _, rest = mapped.partition("/")
    clock, _, channels = rest.partition("/")
    return Format(
        number,
        encoding.strip(),
        _number(clock or "0", 1_000_000),
        _number(channels or "1", 255),
        parameters,
    )


def _media_lines(media: Media, session_host: str) -> list[str]:
    names = [str(found.payload_type) for found in media.formats] or list(media.other_formats)
    lines = [f"m={media.kind} {media.port} {media.protocol} {' '.join(names)}"]
    if not media.port:
        return lines
    if media.host and media.host != session_host:
        lines.append(f"c={_address(media.host)}")
    for found in media.formats:
        if found.name:
            channels = f"/{found.channels}" if found.channels > 1 else ""
            lines.append(f"a=rtpmap:{found.payload_type} {found.name}/{found.clock_hz}{channels}")
        if found.parameters:
            lines.append(f"a=fmtp:{found.payload_type} {found.parameters}")
    for name, milliseconds in (("ptime", media.ptime_ms), ("maxptime", media.maxptime_ms)):
        if milliseconds:
            lines.append(f"a={name}:{milliseconds}")
    if media.rtcp_port is not None:
        lines.append(f"a=rtcp:{media.rtcp_port}")
    if media.rtcp_mux:
        lines.append("a=rtcp-mux")
    return [*lines, f"a={media.direction.value}"]


def _origin(value: str) -> tuple[int, int]:
    """Session id and version; what is no number counts as 0, because nothing depends on it."""
    words = [*value.split(), "", "", ""]
    session_id, version = (
        int(word) if word.isascii() and word.isdecimal() and len(word) <= 20 else 0
        for word in words[1:3]
    )
    return session_id, version


def _connection(value: str) -> str:
    words = value.split()
    if len(words) != 3 or words[0] != "IN" or words[1] not in ("IP4", "IP6"):
        raise InvalidMessage("a c= line has the form IN IP4 address or IN IP6 address")
    return words[2].partition("/")[0]


def _address(host: str) -> str:
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        version = 4
    return f"IN IP{version} {host}"


def _number(text: str, most: int) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdecimal() and len(text) <= 9) or int(text) > most:
        raise InvalidMessage(f"a session description has a number outside 0 to {most}")
    return int(text)


def _milliseconds(text: str) -> int | None:
    """A whole number of milliseconds; senders of anything else are given our default."""
    text = text.strip().partition(".")[0]
    usable = text.isascii() and text.isdecimal() and len(text) <= 5
    return int(text) or None if usable else None
