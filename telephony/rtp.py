"""RTP packets of RFC 3550: bytes ↔ fields, and arithmetic on counters that wrap around."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from cosyvoice_stream.errors import InvalidMessage

HEADER_BYTES: Final = 12
MAX_PACKET_BYTES: Final = 8192
"""60 ms of 16-bit samples at 48 kHz and a header fit; no codec of a call needs more."""
MAX_CSRCS: Final = 15
_VERSION: Final = 2
_RTCP_TYPES: Final = range(192, 224)
"""Second bytes that mean RTCP where both share a port (RFC 5761, section 4)."""


def add_sequence(sequence: int, steps: int = 1) -> int:
    """The sequence number `steps` after this one."""
    return (sequence + steps) & 0xFFFF


def add_ticks(timestamp: int, ticks: int) -> int:
    """The timestamp `ticks` after this one."""
    return (timestamp + ticks) & 0xFFFF_FFFF


def sequence_distance(new: int, old: int) -> int:
    """Steps from `old` to `new` by the shorter way round, -32768 to 32767."""
    return ((new - old + 0x8000) & 0xFFFF) - 0x8000


def timestamp_distance(new: int, old: int) -> int:
    """Ticks from `old` to `new` by the shorter way round, -2^31 to 2^31 - 1."""
    return ((new - old + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000


class Unwrapper:
    """Counts on where a counter of `bits` bits wraps around.

    Args:
        bits: 16 for sequence numbers, 32 for timestamps.
    """

    def __init__(self, bits: int) -> None:
        self._size = 1 << bits
        self._last: int | None = None

    def unwrap(self, value: int) -> int:
        """Give the number that `value` stands for: the one nearest to the last."""
        if self._last is None:
            self._last = value
            return value
        half = self._size // 2
        self._last += (value - self._last + half) % self._size - half
        return self._last

    def reset(self) -> None:
        """Start again with the next value."""
        self._last = None


def is_rtcp(data: bytes) -> bool:
    """Whether a datagram on a shared port is RTCP and not RTP."""
    return len(data) >= 2 and data[1] in _RTCP_TYPES


@dataclass(frozen=True, slots=True)
class RtpPacket:
    """One packet. What a wire cannot carry is refused by `serialize`."""

    payload_type: int
    """0 to 127."""
    sequence: int
    """16 bits."""
    timestamp: int
    """32 bits, in ticks of the payload's clock."""
    ssrc: int
    """32 bits: whose stream this is."""
    payload: bytes
    marker: bool = False
    """The first packet after a silence."""
    csrcs: tuple[int, ...] = ()
    """Who contributed to a mix, at most 15."""
    extension: tuple[int, bytes] | None = None
    """Profile and words of a header extension (a multiple of four bytes)."""
    padding_bytes: int = 0
    """Bytes after the payload, the last of which counts them; 0 to 255."""

    @classmethod
    def parse(cls, data: bytes) -> RtpPacket:
        """Read one datagram.

        Raises:
            InvalidMessage: It is too short or too long, has another version, or a length in it
                does not fit.
        """
        if len(data) < HEADER_BYTES:
            raise InvalidMessage("an RTP packet has at least 12 bytes")
        if len(data) > MAX_PACKET_BYTES:
            raise InvalidMessage(f"an RTP packet has at most {MAX_PACKET_BYTES} bytes")
        first, second, sequence, timestamp, ssrc = struct.unpack_from("!BBHII", data)
        if first >> 6 != _VERSION:
            raise InvalidMessage("the RTP version is not 2")
        csrcs, start = _parse_csrcs(data, first & 0x0F)
        extension = None
        if first & 0x10:
            extension, start = _parse_extension(data, start)
        padding = _parse_padding(data, start) if first & 0x20 else 0
        return cls(
            payload_type=second & 0x7F,
            sequence=sequence,
            timestamp=timestamp,
            ssrc=ssrc,
            payload=data[start : len(data) - padding],
            marker=bool(second & 0x80),
            csrcs=csrcs,
            extension=extension,
            padding_bytes=padding,
        )

    def serialize(self) -> bytes:
        """Write the datagram.

        Raises:
            ValueError: A field does not fit into its bits.
        """
        if len(self.csrcs) > MAX_CSRCS:
            raise ValueError("an RTP packet names at most 15 contributors")
        if not 0 <= self.payload_type <= 0x7F:
            raise ValueError("a payload type has 7 bits")
        first = _VERSION << 6 | len(self.csrcs)
        first |= 0x10 if self.extension is not None else 0
        first |= 0x20 if self.padding_bytes else 0
        second = self.payload_type | (0x80 if self.marker else 0)
        try:
            fixed = struct.pack("!BBHII", first, second, self.sequence, self.timestamp, self.ssrc)
            csrcs = struct.pack(f"!{len(self.csrcs)}I", *self.csrcs)
            padding = self._padding()
        except (struct.error, ValueError) as error:
            raise ValueError("a field of the RTP packet does not fit into its bits") from error
        return fixed + csrcs + self._extension() + self.payload + padding

    def _padding(self) -> bytes:
        if not self.padding_bytes:
            return b""
        return bytes(self.padding_bytes - 1) + bytes([self.padding_bytes])

    def _extension(self) -> bytes:
        if self.extension is None:
            return b""
        profile, words = self.extension
        if len(words) % 4 or len(words) > 4 * 0xFFFF or not 0 <= profile <= 0xFFFF:
            raise ValueError("a header extension has whole words of four bytes")
        return struct.pack("!HH", profile, len(words) // 4) + words


def _parse_csrcs(data: bytes, count: int) -> tuple[tuple[int, ...], int]:
    """Contributors, and where they end."""
    end = HEADER_BYTES + 4 * count
    if end > len(data):
        raise InvalidMessage("the RTP packet ends among its contributors")
    return struct.unpack_from(f"!{count}I", data, HEADER_BYTES), end


def _parse_extension(data: bytes, start: int) -> tuple[tuple[int, bytes], int]:
    """The header extension, and where it ends."""
    if start + 4 > len(data):
        raise InvalidMessage("the RTP packet ends in its header extension")
    profile, words = struct.unpack_from("!HH", data, start)
    end = start + 4 + 4 * words
    if end > len(data):
        raise InvalidMessage("the RTP packet ends in its header extension")
    return (profile, data[start + 4 : end]), end


def _parse_padding(data: bytes, start: int) -> int:
    """How many bytes at the end are padding."""
    padding = data[-1] if len(data) > start else 0
    if not 1 <= padding <= len(data) - start:
        raise InvalidMessage("the padding of the RTP packet is longer than its payload")
    return padding
