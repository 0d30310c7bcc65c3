"""RTCP of RFC 3550, section 6: what a call reports every few seconds, and its good-bye."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from cosyvoice_stream.telephony.rtp import RtpPacket, Unwrapper, timestamp_distance

INTERVAL_S: Final = 5.0
_NTP_EPOCH_S: Final = 2_208_988_800
_SENDER, _RECEIVER, _DESCRIPTION, _GOODBYE = 200, 201, 202, 203
_CNAME: Final = 1
_MOST_LOST: Final = 0x7F_FFFF


@dataclass(frozen=True, slots=True)
class ReportBlock:
    """How the other end's packets arrive."""

    ssrc: int
    fraction_lost: int
    """Since the last report, in 1/256."""
    lost: int
    """Since the start."""
    highest_sequence: int
    """32 bits: rounds of the sequence number above it."""
    jitter: int
    """In ticks."""

    def serialize(self) -> bytes:
        """Write the block, without a time of the last sender report."""
        lost = min(max(self.lost, -_MOST_LOST), _MOST_LOST) & 0xFF_FFFF
        return struct.pack(
            "!IIIIII",
            self.ssrc,
            self.fraction_lost << 24 | lost,
            self.highest_sequence & 0xFFFF_FFFF,
            self.jitter & 0xFFFF_FFFF,
            0,
            0,
        )


class Reception:
    """Counts the packets of one source (RFC 3550, appendix A.3 and A.8).

    Args:
        ssrc: Of the source.
        clock_hz: Ticks per second of its timestamps.
    """

    def __init__(self, ssrc: int, clock_hz: int) -> None:
        self.ssrc = ssrc
        self.received = 0
        self._clock_hz = clock_hz
        self._unwrapper = Unwrapper(16)
        self._first: int | None = None
        self._highest = 0
        self._jitter = 0.0
        self._transit: int | None = None
        self._reported = (0, 0)

    @property
    def expected(self) -> int:
        """Packets that were sent, as far as their numbers tell."""
        return 0 if self._first is None else self._highest - self._first + 1

    @property
    def lost(self) -> int:
        """Packets that did not come; negative where some came twice."""
        return self.expected - self.received

    @property
    def jitter_ms(self) -> float:
        """Mean deviation of the travelling time."""
        return self._jitter * 1000 / self._clock_hz

    def add(self, packet: RtpPacket, now: float, *, timed: bool = True) -> None:
        """Count a packet.

        Args:
            packet: Of this source.
            now: In seconds, on any clock that never goes back.
            timed: Its timestamp tells when it was sent; that of a telephone event does not.
        """
        sequence = self._unwrapper.unwrap(packet.sequence)
        self._highest = sequence if self._first is None else max(self._highest, sequence)
        self._first = sequence if self._first is None else min(self._first, sequence)
        self.received += 1
        if not timed:
            return
        transit = (int(now * self._clock_hz) - packet.timestamp) & 0xFFFF_FFFF
        if self._transit is not None:
            step = abs(timestamp_distance(transit, self._transit))
            self._jitter += (step - self._jitter) / 16
        self._transit = transit

    def report(self) -> ReportBlock:
        """Make the next report."""
        expected, received = self.expected, self.received
        new, got = expected - self._reported[0], received - self._reported[1]
        self._reported = expected, received
        fraction = min(max(0, (new - got) * 256 // new), 255) if new > 0 else 0
        return ReportBlock(self.ssrc, fraction, self.lost, self._highest, int(self._jitter))


def ntp_time(unix_s: float) -> int:
    """Seconds since 1900 in 32.32 bits."""
    return int((unix_s + _NTP_EPOCH_S) * (1 << 32)) & 0xFFFF_FFFF_FFFF_FFFF


def sender_report(
    ssrc: int,
    *,
    unix_s: float,
    timestamp: int,
    packets: int,
    payload_bytes: int,
    cname: str,
    block: ReportBlock | None,
) -> bytes:
    """Write a compound packet of a sender report and our name.

    Args:
        ssrc: Ours.
        unix_s: The wall clock.
        timestamp: Of our RTP clock at that time.
        packets: Sent so far.
        payload_bytes: Sent so far, without headers.
        cname: At most 255 bytes.
        block: How the other end is received, if anything came.
    """
    head = struct.pack(
        "!IQIII",
        ssrc,
        ntp_time(unix_s),
        timestamp & 0xFFFF_FFFF,
        packets & 0xFFFF_FFFF,
        payload_bytes & 0xFFFF_FFFF,
    )
    body = head + (block.serialize() if block is not None else b"")
    return _packet(_SENDER, int(block is not None), body) + _description(ssrc, cname)


def goodbye(ssrc: int, cname: str) -> bytes:
    """Write a compound packet that ends our stream."""
    empty = _packet(_RECEIVER, 0, struct.pack("!I", ssrc))
    return empty + _description(ssrc, cname) + _packet(_GOODBYE, 1, struct.pack("!I", ssrc))


def _description(ssrc: int, cname: str) -> bytes:
    name = cname.encode()[:255]
    items = struct.pack("!IBB", ssrc, _CNAME, len(name)) + name
    return _packet(_DESCRIPTION, 1, items + bytes(4 - len(items) % 4))


def _packet(kind: int, count: int, body: bytes) -> bytes:
    return struct.pack("!BBH", 2 << 6 | count, kind, len(body) // 4) + body
