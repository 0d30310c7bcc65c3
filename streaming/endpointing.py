"""From verdicts on frames to stretches of speech: where the speaker began and stopped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cosyvoice_stream.streaming.vad import IsSpeech, VadFrame, VoiceActivity
from cosyvoice_stream.types import Samples


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of speech between two silences."""

    start_sample: int
    """First sample of its first speech frame."""
    end_sample: int
    """Sample after its last speech frame."""
    speech_samples: int
    """Samples in it that the detector took for speech."""

    @property
    def samples(self) -> int:
        """Length, short pauses included."""
        return self.end_sample - self.start_sample


class Endpointer:
    """Frames in, finished segments out.

    A segment begins with the first speech frame of the run that turned activity on, and ends with
    its last speech frame; it is given out when activity turns off::

        detector  . . S . S S S S . S S S . . . . .
        active    . . . . . . # # # # # # # # # . .
        segment           [                ]

    Args:
        min_samples: Segments with less detected speech are dropped.
    """

    def __init__(self, *, min_samples: int = 0) -> None:
        self._min_samples = min_samples
        self._start: int | None = None
        self._active = False
        self.reset()

    @property
    def speaking(self) -> bool:
        """Whether a segment is open."""
        return self._active

    def push(self, frames: Iterable[VadFrame]) -> list[Segment]:
        """Take frames in order; return the segments that they end."""
        ended: list[Segment] = []
        for frame in frames:
            if frame.speech:
                if self._start is None:
                    self._start, self._speech = frame.start_sample, 0
                self._end = frame.end_sample
                self._speech += frame.end_sample - frame.start_sample
            elif not frame.active and not self._active:
                self._start = None  # too short a run to count
            if self._active and not frame.active:
                ended += self._finish()
            self._active = frame.active
        return ended

    def flush(self) -> list[Segment]:
        """End the open segment, if there is one."""
        ended = self._finish() if self._active else []
        self._active, self._start = False, None
        return ended

    def reset(self) -> None:
        """Forget everything."""
        self._active = False
        self._start = None
        self._end = 0
        self._speech = 0

    def _finish(self) -> list[Segment]:
        start, self._start = self._start, None
        if start is None or self._speech < self._min_samples:
            return []
        return [Segment(start, self._end, self._speech)]


def find_segments(
    samples: Samples,
    sample_rate: int,
    is_speech: IsSpeech,
    *,
    frame_ms: int = 20,
    start_ms: int = 60,
    stop_ms: int = 160,
) -> list[Segment]:
    """Find the stretches of speech in a whole recording; see `VoiceActivity` for the arguments."""
    activity = VoiceActivity(
        is_speech, sample_rate, frame_ms=frame_ms, start_ms=start_ms, stop_ms=stop_ms
    )
    endpointer = Endpointer()
    segments = endpointer.push(activity.push(samples) + activity.flush())
    return segments + endpointer.flush()
