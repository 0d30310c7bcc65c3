"""Jitter buffer: packets in as the network brings them, an unbroken stream of frames out.

::

    sent      1  2  3  4  5  6              every tick of the sender's clock comes out exactly once,
    arrived   1     3 2     6 5             in order, as what was sent or as a gap to conceal
    out          1  2  3  -  5  6           `-` because 4 never came

What is late beyond the delay is dropped. The delay follows the jitter of the last seconds, so that
a quiet network costs little and a rough one loses little.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cosyvoice_stream.telephony.rtp import RtpPacket, Unwrapper

MAX_HELD: Final = 256
"""Packets that are kept; more within the delay mean a flood."""
_WINDOW: Final = 200
"""Packets whose travelling time is remembered: 4 s at 20 ms."""
_IMPLAUSIBLE_S: Final = 1.0
"""A packet so far from where the clock expects it belongs to a clock that was set anew."""
_LATE_RUN: Final = 5
"""So many late packets in a row mean that the way has become longer, not that it wavers."""
_MOST_FILL_S: Final = 1.0
"""Gaps that are filled at once when nobody has asked for so long; what is older is skipped."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The next piece of the stream."""

    payload: bytes | None
    """None: nothing came in time, or the sender was silent."""
    ticks: int
    """Length on the sender's clock."""


@dataclass(slots=True)
class JitterCounts:
    """What happened to the packets since the start."""

    played: int = 0
    late: int = 0
    duplicate: int = 0
    overflow: int = 0
    gaps: int = 0
    """Frames without a payload."""
    restarts: int = 0
    """How often the timestamps began anew."""


class JitterBuffer:
    """Orders the packets of one source.

    Args:
        clock_hz: Ticks per second of the timestamps.
        ticks_of: Length of a payload in ticks.
        least_ms: Shortest delay.
        most_ms: Longest delay; what would need more is late.
    """

    def __init__(
        self,
        clock_hz: int,
        ticks_of: Callable[[bytes], int],
        *,
        least_ms: float = 40.0,
        most_ms: float = 200.0,
    ) -> None:
        self.clock_hz = clock_hz
        self.counts = JitterCounts()
        self._ticks_of = ticks_of
        self._least_s = least_ms / 1000
        self._most_s = most_ms / 1000
        self.reset()

    @property
    def delay_ms(self) -> float:
        """How long a packet of shortest travelling time is kept."""
        return self._delay_s() * 1000

    @property
    def next_due(self) -> float | None:
        """When `due` has the next frame; None before the first packet."""
        return self._due_at(self._next) if self._transits_s else None

    def reset(self) -> None:
        """Forget the source; the next packet begins another."""
        self._unwrapper = Unwrapper(32)
        self._transits_s: deque[float] = deque(maxlen=_WINDOW)
        self._held: list[tuple[int, int, bytes]] = []
        self._next = 0  # tick
        self._step = self.clock_hz // 50
        self._begun = False
        self._late_run = 0
        self._leftover: list[Frame] = []

    def push(self, packet: RtpPacket, now: float) -> None:
        """Take a packet.

        Args:
            packet: With a payload of the codec.
            now: In seconds, on any clock that never goes back.
        """
        ticks = self._ticks_of(packet.payload)
        if ticks < 1:
            return
        tick = self._unwrapper.unwrap(packet.timestamp)
        transit_s = now - tick / self.clock_hz
        if not self._transits_s:
            self._next = tick
        elif transit_s < min(self._transits_s) - _IMPLAUSIBLE_S:
            self._restart(tick)
        elif tick < self._next and self._begun:
            self._late_run += 1
            if self._late_run < _LATE_RUN and not packet.marker:
                self.counts.late += 1
                self._transits_s.append(transit_s)
                return
            self._restart(tick)
        self._late_run = 0
        self._transits_s.append(transit_s)
        self._hold(tick, ticks, packet.payload)

    def due(self, now: float) -> list[Frame]:
        """Take the frames whose time has come, gaps included.

        Args:
            now: In seconds, on the clock of `push`.
        """
        frames, self._leftover = self._leftover, []
        while self._transits_s and self._due_at(self._next) <= now:
            self._begun = True
            self._skip(now)
            frames.append(self._take())
        return frames

    def _hold(self, tick: int, ticks: int, payload: bytes) -> None:
        place = bisect_left(self._held, tick, key=lambda held: held[0])
        if place < len(self._held) and self._held[place][0] == tick:
            self.counts.duplicate += 1
        elif len(self._held) >= MAX_HELD:
            self.counts.overflow += 1
        else:
            insort(self._held, (tick, ticks, payload), key=lambda held: held[0])
            if not self._begun:
                self._next = min(self._next, tick)

    def _take(self) -> Frame:
        """The frame that begins at `_next`."""
        while self._held and self._held[0][0] < self._next:  # overlaps what was filled
            self._held.pop(0)
            self.counts.late += 1
        if self._held and self._held[0][0] == self._next:
            _, ticks, payload = self._held.pop(0)
            self.counts.played += 1
            self._step = ticks
            self._next += ticks
            return Frame(payload, ticks)
        gap = min(self._step, self._held[0][0] - self._next) if self._held else self._step
        self.counts.gaps += 1
        self._next += gap
        return Frame(None, gap)

    def _skip(self, now: float) -> None:
        """Leave out most of a time in which nobody asked and nothing came."""
        if self._held and self._held[0][0] <= self._next:
            return
        behind_s = now - self._due_at(self._next)
        if behind_s > _MOST_FILL_S:
            wanted = self._next + int((behind_s - _MOST_FILL_S) * self.clock_hz)
            self._next = min(wanted, self._held[0][0]) if self._held else wanted

    def _restart(self, tick: int) -> None:
        """Follow a clock that was set anew; what is held of the old one comes out at once."""
        self.counts.restarts += 1
        self.counts.played += len(self._held)
        self._leftover += [Frame(payload, ticks) for _, ticks, payload in self._held]
        del self._leftover[:-MAX_HELD]
        self._transits_s.clear()
        self._held.clear()
        self._next = tick
        self._begun = False

    def _delay_s(self) -> float:
        if not self._transits_s:
            return self._least_s
        spread_s = max(self._transits_s) - min(self._transits_s)
        return min(max(spread_s, self._least_s), self._most_s)

    def _due_at(self, tick: int) -> float:
        return min(self._transits_s) + tick / self.clock_hz + self._delay_s()
