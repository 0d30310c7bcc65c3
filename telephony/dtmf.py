"""Keys pressed on a telephone, as RTP events of RFC 4733.

::

    ptime       |  |  |  |  |  |  |  |
    packets     s  s  s  s  E  E  E       one timestamp, growing duration, marker on the first
"""

from __future__ import annotations

import re
import struct
from collections import deque
from dataclasses import dataclass
from typing import Final

from cosyvoice_stream.errors import InvalidMessage, LimitExceeded
from cosyvoice_stream.telephony.rtp import RtpPacket, timestamp_distance

SYMBOLS: Final = "0123456789*#ABCD"
"""Index is the event code."""
FINAL_PACKETS: Final = 3
"""How often the end of a key is sent, because a lost end would leave it pressed."""
MAX_DURATION: Final = 0xFFFF
"""Ticks that one event can last; longer ones go on under another timestamp."""
MAX_WAITING: Final = 64
"""Keys that may wait to be sent."""
_VOLUME: Final = 10
"""Power of the tone in -dBm0."""
_SIGNAL: Final = re.compile(r"^\s*(?:Signal\s*=\s*)?([0-9*#A-D])\s*(?:\r?\n|$)", re.I)
_DURATION: Final = re.compile(r"^\s*Duration\s*=\s*(\d{1,5})", re.I | re.M)
_INFO_MS: Final = 160.0
"""Length of a key whose INFO does not say it."""
_MOST_INFO: Final = 200
"""Characters of an INFO that are looked at."""
_SILENT_S: Final = 0.2
"""A key of which nothing came for so long has been released."""


@dataclass(frozen=True, slots=True)
class ToneEvent:
    """Payload of one packet."""

    code: int
    """0 to 15 for keys; there are others, up to 255."""
    duration: int
    """So far, in ticks."""
    end: bool = False
    volume: int = _VOLUME
    """0 to 63, in -dBm0."""

    @classmethod
    def parse(cls, data: bytes) -> ToneEvent:
        """Read a payload.

        Raises:
            InvalidMessage: It has not four bytes.
        """
        if len(data) != 4:
            raise InvalidMessage("a telephone event has 4 bytes")
        code, flags, duration = struct.unpack("!BBH", data)
        return cls(code, duration, bool(flags & 0x80), flags & 0x3F)

    def serialize(self) -> bytes:
        """Write the payload."""
        return struct.pack(
            "!BBH", self.code, (0x80 if self.end else 0) | self.volume, self.duration
        )


@dataclass(frozen=True, slots=True)
class Key:
    """A key that was pressed and released."""

    symbol: str
    """One of `SYMBOLS`."""
    duration_ms: float

    def __repr__(self) -> str:
        return "Key(…)"  # what callers type, PINs among it, stays out of logs


def key_of_info(body: str) -> Key | None:
    """Read the key of a SIP INFO, `application/dtmf-relay` or `application/dtmf`.

    Args:
        body: Such as ``Signal=5`` and ``Duration=160`` on two lines, or just ``5``.
    """
    found = _SIGNAL.search(body[:_MOST_INFO])
    if found is None:
        return None
    duration = _DURATION.search(body[:_MOST_INFO])
    length = float(duration.group(1)) if duration is not None else _INFO_MS
    return Key(found.group(1).upper(), length)


@dataclass(slots=True)
class _Pressed:
    code: int
    timestamp: int
    duration: int
    before: int
    seen_at: float


class KeyReceiver:
    """Packets in, each key once, whatever was lost, repeated or overtaken.

    A key counts when its end arrives, when the next one begins, or when nothing of it has come for
    0.2 s.

    Args:
        clock_hz: Ticks per second of the events' timestamps.
    """

    def __init__(self, clock_hz: int) -> None:
        self.clock_hz = clock_hz
        self._pressed: _Pressed | None = None
        self._last: int | None = None

    def push(self, packet: RtpPacket, now: float) -> list[Key]:
        """Take a packet of the event payload type.

        Args:
            packet: Its timestamp names the event.
            now: In seconds, on any clock that never goes back.

        Raises:
            InvalidMessage: The payload is no event.
        """
        event = ToneEvent.parse(packet.payload)
        if event.code >= len(SYMBOLS) or self._is_over(packet.timestamp):
            return []
        keys = []
        held = self._pressed
        if held is None or held.timestamp != packet.timestamp:
            if held is not None and self._continues(held, event, packet):
                held.before += timestamp_distance(packet.timestamp, held.timestamp)
                self._last = held.timestamp
                held.timestamp, held.duration = packet.timestamp, 0
            else:
                keys = self._release()
                held = _Pressed(event.code, packet.timestamp, 0, 0, now)
                self._pressed = held
        held.duration = max(held.duration, event.duration)
        held.seen_at = now
        return keys + (self._release() if event.end else [])

    def poll(self, now: float) -> list[Key]:
        """Take a key whose end was lost."""
        held = self._pressed
        return self._release() if held is not None and now - held.seen_at >= _SILENT_S else []

    def reset(self) -> None:
        """The stream has another source."""
        self._pressed = None
        self._last = None

    def _is_over(self, timestamp: int) -> bool:
        """Whether this event was counted, or is older than one that was."""
        return self._last is not None and timestamp_distance(timestamp, self._last) <= 0

    @staticmethod
    def _continues(held: _Pressed, event: ToneEvent, packet: RtpPacket) -> bool:
        """Whether a long key goes on under another timestamp (RFC 4733, section 2.5.1.3)."""
        beyond = timestamp_distance(packet.timestamp, held.timestamp)
        return event.code == held.code and not packet.marker and beyond >= MAX_DURATION

    def _release(self) -> list[Key]:
        held, self._pressed = self._pressed, None
        if held is None:
            return []
        self._last = held.timestamp
        milliseconds = (held.before + held.duration) * 1000 / self.clock_hz
        return [Key(SYMBOLS[held.code], milliseconds)]


@dataclass(frozen=True, slots=True)
class EventPacket:
    """What goes out instead of audio."""

    payload: bytes
    timestamp: int
    marker: bool


class KeySender:
    """Keys in, one packet every ptime out, instead of the audio packet.

    Args:
        clock_hz: Ticks per second of the timestamps.
        ptime_ms: Milliseconds between two calls of `next`.
        key_ms: How long each key is pressed; at most 8 s at 8 kHz.
        pause_ms: Between two keys.

    Raises:
        ValueError: A key would not fit into one event.
    """

    def __init__(
        self, clock_hz: int, ptime_ms: int = 20, *, key_ms: int = 160, pause_ms: int = 80
    ) -> None:
        self._step = clock_hz * ptime_ms // 1000
        self._length = max(1, round(key_ms / ptime_ms))
        self._pause = max(1, round(pause_ms / ptime_ms))
        if self._length * self._step > MAX_DURATION:
            raise ValueError("the key is longer than one event can say")
        self._waiting: deque[int] = deque()
        self._count = 0
        self._start = 0
        self._rest = 0

    @property
    def busy(self) -> bool:
        """Whether a key is being sent or waits."""
        return bool(self._waiting)

    def press(self, symbols: str) -> None:
        """Append keys.

        Raises:
            InvalidMessage: There is no such key.
            LimitExceeded: Too many wait.
        """
        codes = [SYMBOLS.find(symbol) for symbol in symbols.upper()]
        if -1 in codes:
            raise InvalidMessage("a telephone has the keys 0 to 9, *, # and A to D")
        if len(self._waiting) + len(codes) > MAX_WAITING:
            raise LimitExceeded("keys that wait to be sent", MAX_WAITING)
        self._waiting.extend(codes)

    def next(self, timestamp: int) -> EventPacket | None:
        """Take the packet of this ptime; None: there is room for audio.

        Args:
            timestamp: What an audio packet would have now.
        """
        if self._rest:
            self._rest -= 1
            return None
        if not self._waiting:
            return None
        self._count += 1
        if self._count == 1:
            self._start = timestamp
        duration = min(self._count, self._length) * self._step
        event = ToneEvent(self._waiting[0], duration, end=self._count >= self._length)
        packet = EventPacket(event.serialize(), self._start, self._count == 1)
        if self._count == self._length + FINAL_PACKETS - 1:
            self._waiting.popleft()
            self._count, self._rest = 0, self._pause
        return packet
