"""Offer and answer of RFC 3264: what two ends of an audio call agree on."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from cosyvoice_stream.errors import ConfigError, UnsupportedFormat
from cosyvoice_stream.telephony.sdp import (
    Description,
    Direction,
    Format,
    Media,
    direction,
)

PTIMES_MS: Final = (10, 20, 30, 40, 60)
"""Packet lengths that are sent, where the codec has them."""
DEFAULT_PTIME_MS: Final = 20
_DTMF: Final = "telephone-event"
_DTMF_KEYS: Final = "0-16"


@dataclass(frozen=True, slots=True)
class CodecKind:
    """A codec of calls."""

    name: str
    """As a setting writes it."""
    encoding: str
    """As a session description writes it."""
    clock_hz: int
    """Of the timestamps; G.722 counts 8000 although it carries 16 kHz (RFC 3551, section 4.5.2)."""
    sample_rate: int
    channels: int = 1
    """As a session description says; Opus always says 2."""
    payload_type: int = 96
    """Proposed in an offer."""
    parameters: str = ""

    def is_in(self, found: Format) -> bool:
        """Whether a payload type of the other end is this codec."""
        return found.matches(self.encoding, self.clock_hz) and found.channels == self.channels


CODECS: Final = {
    kind.name: kind
    for kind in (
        CodecKind("pcma", "PCMA", 8000, 8000, payload_type=8),
        CodecKind("pcmu", "PCMU", 8000, 8000, payload_type=0),
        CodecKind("g722", "G722", 8000, 16_000, payload_type=9),
        CodecKind(
            "opus",
            "opus",
            48_000,
            48_000,
            channels=2,
            payload_type=107,
            parameters="useinbandfec=1;usedtx=0;stereo=0;sprop-stereo=0",
        ),
        CodecKind("l16-8k", "L16", 8000, 8000, payload_type=97),
        CodecKind("l16-16k", "L16", 16_000, 16_000, payload_type=98),
        CodecKind("l16-24k", "L16", 24_000, 24_000, payload_type=99),
    )
}
"""By name."""
DEFAULT_CODECS: Final = ("opus", "g722", "pcma", "pcmu", "l16-16k")
_OFFERED_DTMF: Final = {8000: 101, 48_000: 102, 16_000: 103, 24_000: 104}


@dataclass(frozen=True, slots=True)
class Local:
    """What this end is and can."""

    host: str
    """Address that the other end shall send to."""
    port: int
    """UDP port of its RTP; RTCP has the next."""
    codecs: tuple[str, ...] = DEFAULT_CODECS
    """Names of `CODECS`, the most wanted first."""
    direction: Direction = Direction.SENDRECV
    ptime_ms: int = DEFAULT_PTIME_MS
    session_id: int = 0
    version: int = 0


@dataclass(frozen=True, slots=True)
class Agreed:
    """What both ends do until one of them asks for something else."""

    codec: CodecKind
    payload_type: int
    """Of the codec's packets, sent and received."""
    dtmf_payload_type: int | None
    """None: the other end has no telephone events."""
    dtmf_clock_hz: int
    ptime_ms: int
    """Length of the packets that are sent."""
    host: str
    """Where packets go, until they turn out to come from elsewhere."""
    port: int
    rtcp_port: int
    direction: Direction
    """Of this end."""

    @property
    def held(self) -> bool:
        """Whether the other end wants to hear nothing."""
        return not self.direction.sends


def check_codecs(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names as `CODECS` has them.

    Raises:
        ConfigError: There is no such codec, or none at all.
    """
    found = tuple(dict.fromkeys(name.strip().lower() for name in names if name.strip()))
    unknown = [name for name in found if name not in CODECS]
    if unknown or not found:
        raise ConfigError(
            f"the codec {unknown[0]!r} is not available" if unknown else "no codec is named",
            how_to_fix=f"name some of {', '.join(CODECS)}",
        )
    return found


def make_offer(local: Local) -> Description:
    """Offer every codec, with telephone events at each of their clock rates."""
    kinds = [CODECS[name] for name in local.codecs]
    formats = [_format(kind, kind.payload_type) for kind in kinds]
    clocks = dict.fromkeys(kind.clock_hz for kind in kinds)
    formats += [Format(_OFFERED_DTMF[clock], _DTMF, clock, 1, _DTMF_KEYS) for clock in clocks]
    media = Media(
        "audio",
        local.port,
        formats=tuple(formats),
        host=local.host,
        direction=local.direction,
        ptime_ms=local.ptime_ms,
    )
    return Description(local.host, (media,), local.session_id, local.version)


def make_answer(offer: Description, local: Local) -> tuple[Description, Agreed]:
    """Answer an offer with the first of its codecs that is ours too.

    Raises:
        UnsupportedFormat: No audio line, or none of its codecs; the call cannot be taken.
    """
    theirs = offer.audio
    if theirs is None:
        raise UnsupportedFormat("the offer has no plain RTP audio", how_to_fix="offer RTP/AVP")
    found = _first_common(theirs, local)
    if found is None:
        raise UnsupportedFormat(
            "the offer has none of our codecs", how_to_fix=f"offer one of {', '.join(local.codecs)}"
        )
    kind, chosen = found
    dtmf = _dtmf(theirs, kind)
    way = _answered_direction(theirs, local.direction)
    ptime_ms = _ptime(theirs, kind, local.ptime_ms)
    formats = [_format(kind, chosen.payload_type)]
    formats += [replace(dtmf, parameters=_DTMF_KEYS)] if dtmf is not None else []
    ours = Media(
        "audio",
        local.port,
        theirs.protocol,
        tuple(formats),
        host=local.host,
        direction=way,
        ptime_ms=ptime_ms,
    )
    media = tuple(ours if line is theirs else _refused(line) for line in offer.media)
    answer = Description(local.host, media, local.session_id, local.version)
    return answer, _agreed(kind, chosen.payload_type, dtmf, ptime_ms, theirs, way)


def read_answer(answer: Description, local: Local) -> Agreed:
    """Take what the other end chose of our offer.

    Raises:
        UnsupportedFormat: It refused the audio, or chose something that was not offered.
    """
    theirs = answer.audio
    found = None if theirs is None else _first_common(theirs, local)
    if theirs is None or found is None:
        raise UnsupportedFormat("the answer has no audio that was offered")
    kind, chosen = found
    way = _answered_direction(theirs, local.direction)
    ptime_ms = _ptime(theirs, kind, local.ptime_ms)
    return _agreed(kind, chosen.payload_type, _dtmf(theirs, kind), ptime_ms, theirs, way)


def _agreed(
    kind: CodecKind,
    payload_type: int,
    dtmf: Format | None,
    ptime_ms: int,
    theirs: Media,
    way: Direction,
) -> Agreed:
    return Agreed(
        codec=kind,
        payload_type=payload_type,
        dtmf_payload_type=dtmf.payload_type if dtmf is not None else None,
        dtmf_clock_hz=dtmf.clock_hz if dtmf is not None else kind.clock_hz,
        ptime_ms=ptime_ms,
        host=_host(theirs.host),
        port=theirs.port,
        rtcp_port=theirs.rtcp_port or min(theirs.port + 1, 65_535),
        direction=way,
    )


def _host(host: str) -> str:
    """The address, or nothing where packets can not be sent to it.

    A name would have to be looked up while a call waits, and a multicast address would make a
    loudspeaker of us.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return ""
    return "" if address.is_multicast or address.is_unspecified else host


def _first_common(theirs: Media, local: Local) -> tuple[CodecKind, Format] | None:
    for found in theirs.formats:
        for name in local.codecs:
            if CODECS[name].is_in(found):
                return CODECS[name], found
    return None


def _dtmf(theirs: Media, kind: CodecKind) -> Format | None:
    """Telephone events at the codec's clock rate, else at any."""
    events = [found for found in theirs.formats if found.name.lower() == _DTMF and found.clock_hz]
    same = [found for found in events if found.clock_hz == kind.clock_hz]
    usable = same or events
    return usable[0] if usable else None


def _answered_direction(theirs: Media, wanted: Direction) -> Direction:
    return direction(
        sends=wanted.sends and not theirs.on_hold,
        receives=wanted.receives and theirs.direction.sends,
    )


def _ptime(theirs: Media, kind: CodecKind, preferred_ms: int) -> int:
    """Length of our packets: what the other end asks for, within its and our limits."""
    most = min(theirs.maxptime_ms or PTIMES_MS[-1], PTIMES_MS[-1])
    asked = min(theirs.ptime_ms or preferred_ms, most)
    possible = [ptime for ptime in PTIMES_MS if _fits(kind, ptime)]
    return max((ptime for ptime in possible if ptime <= asked), default=possible[0])


def _fits(kind: CodecKind, ptime_ms: int) -> bool:
    """Whether packets of this length can be made.

    Opus has none of 30 ms, FFmpeg makes G.722 in steps of 20 ms, and uncompressed samples have to
    fit into an Ethernet frame.
    """
    if kind.encoding == "opus":
        return ptime_ms != 30
    if kind.encoding == "G722":
        return ptime_ms % 20 == 0
    return kind.encoding != "L16" or 2 * kind.sample_rate * ptime_ms // 1000 <= 1400


def _format(kind: CodecKind, payload_type: int) -> Format:
    return Format(payload_type, kind.encoding, kind.clock_hz, kind.channels, kind.parameters)


def _refused(line: Media) -> Media:
    return Media(line.kind, 0, line.protocol, line.formats[:1], line.other_formats[:1])
