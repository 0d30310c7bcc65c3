"""Deadlines of frames that leave one by one, on one line, so that no rounding of sleeps adds up."""

from __future__ import annotations

from typing import Final

_GIVE_UP_S: Final = 0.5
"""Further behind than this, the missing frames are not made up for: a burst of so many would only
fill the listener's jitter buffer, which then plays everything too late."""


class FrameClock:
    """Says when the next frame is due.

    ::

        start ──┬──────┬──────┬──────┬──►  frame n leaves at start + n · frame_s
                0      1      2      3

    Args:
        frame_s: Length of a frame in seconds.
    """

    def __init__(self, frame_s: float) -> None:
        self._frame_s = frame_s
        self._start: float | None = None
        self._count = 0
        self.late_s = 0.0
        """How far the last frame was behind its deadline when it was asked for."""
        self.restarts = 0
        """How often the line began anew, because this side stood still for too long."""

    def next(self, now: float) -> float:
        """Count the next frame.

        Args:
            now: In seconds, on any clock that never goes back.

        Returns:
            Seconds to wait before it leaves; 0 where it is late.
        """
        if self._start is None:
            self._start = now
        wait_s = self._start + self._count * self._frame_s - now
        if -wait_s > _GIVE_UP_S:
            self._start, self._count, wait_s = now, 0, 0.0
            self.restarts += 1
        self._count += 1
        self.late_s = max(0.0, -wait_s)
        return max(0.0, wait_s)
