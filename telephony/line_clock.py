"""When the frames of a phone line are due: one clock for the whole call, no catching up in bursts.

A frame is sent for every `frame_ms` of the call, speech or silence. Frame n is heard from
``start + n · frame`` on, so that late wake-ups never add up; being ahead of that by a few frames,
the *lead*, is what covers them::

    heard     |0|1|2|3|4|5|6|…             real time
    sent      |0|1|2|3|4|5|6|7|8|9|        lead = 3 … `lead_frames` ahead
                          ▲
                         now

After a stall the missed frames follow in pairs. What a stall longer than lead and slack has missed
is given up: the far end was silent for that long, and to send it all would make everything that
follows late for the rest of the call.
"""

from __future__ import annotations

import math
from typing import Final

MAX_BURST_FRAMES: Final = 2
"""Frames that are sent at one time."""
_CATCH_UP: Final = 0.25
"""Of a frame, between two bursts."""
_EPSILON: Final = 1e-6
"""Of a frame: a timer that fires at the deadline by the numbers may be a rounding error early."""


class LineClock:
    """Tells how many frames are due, and how many have been heard.

    Args:
        frame_ms: Length of a frame.
        slack_ms: Lateness beyond the lead that is still caught up.

    Attributes:
        sent: Frames that were sent.
        skipped: Frames that were given up after long stalls.
    """

    def __init__(self, frame_ms: int = 20, *, slack_ms: int = 60) -> None:
        if frame_ms < 1:
            raise ValueError("a frame lasts at least a millisecond")
        self.frame_s = frame_ms / 1000
        self._slack_frames = slack_ms // frame_ms
        self._start: float | None = None
        self.sent = 0
        self.skipped = 0

    def due(self, now: float, lead_frames: int) -> int:
        """How many frames to send at once; 0 when it is too early for one.

        Args:
            now: In seconds, on any clock that never goes back.
            lead_frames: How far ahead of the listener to be, at least 1.
        """
        if self._start is None:
            self._start = now
        behind = self._elapsed(now) + lead_frames - self.sent
        lost = behind - lead_frames - self._slack_frames
        if lost > 0:
            self._start += lost * self.frame_s
            self.skipped += lost
            behind -= lost
        return min(max(behind, 0), MAX_BURST_FRAMES)

    def next_at(self, now: float, lead_frames: int) -> float:
        """When to ask `due` again."""
        if self._start is None:
            return now
        deadline = self._start + (self.sent - lead_frames + 1) * self.frame_s
        return max(deadline, now + self.frame_s * _CATCH_UP if deadline <= now else now)

    def add_sent(self) -> int:
        """Count a frame that is being sent.

        Returns:
            Its slot: the number of frames before it, those that were given up included. At a
            fixed frame length this is the time of the call, for timestamps.
        """
        self.sent += 1
        return self.sent - 1 + self.skipped

    def heard(self, now: float) -> int:
        """How many of the sent frames have been heard to their end, as far as can be known."""
        return min(max(self._elapsed(now), 0), self.sent)

    def heard_at(self, frame: int) -> float:
        """When the frame with this index, counted by `sent`, will have been heard to its end.

        Unless a stall comes before. 0 before the first frame.
        """
        return 0.0 if self._start is None else self._start + (frame + 1) * self.frame_s

    def lead_s(self, now: float) -> float:
        """Audio that was sent and has not been heard."""
        if self._start is None:
            return 0.0
        return max(0.0, self._start + self.sent * self.frame_s - now)

    def cleared(self, now: float) -> None:
        """The far end has dropped all that it had not played; it plays the next frame at once."""
        if self._start is not None and self.lead_s(now) > 0:
            self._start = now - self.sent * self.frame_s

    def _elapsed(self, now: float) -> int:
        if self._start is None:
            return 0
        return math.floor((now - self._start) / self.frame_s + _EPSILON)
