"""Speech or not, frame by frame, with hysteresis.

The detector itself is injected: anything that tells of one frame of 16-bit audio whether it is
speech. WebRTC's takes frames of 10, 20 or 30 ms at 8, 16, 32 or 48 kHz, and so does this stage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from cosyvoice_stream.errors import UnsupportedFormat
from cosyvoice_stream.types import Samples

IsSpeech: TypeAlias = Callable[[bytes, int], bool]
"""Frame of little-endian 16-bit samples, rate in hertz → whether it is speech."""

FRAME_MS: Final = (10, 20, 30)
RATES_HZ: Final = (8_000, 16_000, 32_000, 48_000)


@dataclass(frozen=True, slots=True)
class VadFrame:
    """The verdict on one frame."""

    start_sample: int
    """First sample of the frame, counted from the first one pushed."""
    end_sample: int
    """Sample after the frame."""
    speech: bool
    """What the detector said of this frame alone."""
    active: bool
    """Whether speech is going on, with hysteresis; turns on `start_ms` after it began."""


class VoiceActivity:
    """Samples in, one verdict per frame out.

    Speech is on after `start_ms` of speech frames in a row and off after `stop_ms` of others in a
    row, so that a click does not start it and a stop consonant does not end it::

        detector  . . S . S S S S . S S S . . . . .
        active    . . . . . . # # # # # # # # # . .       start_ms = 3 frames, stop_ms = 4 frames

    Args:
        is_speech: The detector.
        sample_rate: Of the pushed samples, one of `RATES_HZ`.
        frame_ms: One of `FRAME_MS`.
        start_ms: Speech that turns it on.
        stop_ms: Silence that turns it off.

    Raises:
        UnsupportedFormat: `sample_rate` or `frame_ms` is not one that detectors take.
    """

    def __init__(
        self,
        is_speech: IsSpeech,
        sample_rate: int,
        *,
        frame_ms: int = 20,
        start_ms: int = 60,
        stop_ms: int = 160,
    ) -> None:
        if sample_rate not in RATES_HZ or frame_ms not in FRAME_MS:
            raise UnsupportedFormat(
                f"frames of {frame_ms} ms at {sample_rate} Hz cannot be judged",
                how_to_fix="use 10, 20 or 30 ms at 8, 16, 32 or 48 kHz",
            )
        self._is_speech = is_speech
        self.sample_rate = sample_rate
        self.frame_samples = sample_rate * frame_ms // 1000
        self._start_frames = max(1, -(-start_ms // frame_ms))
        self._stop_frames = max(1, -(-stop_ms // frame_ms))
        self._unread: Samples = np.zeros(0, np.float32)
        self.reset()

    def push(self, samples: Samples) -> list[VadFrame]:
        """Take samples of any number; return the frames that they complete."""
        unread = np.concatenate([self._unread, samples]) if len(self._unread) else samples
        size = self.frame_samples
        whole = len(unread) // size
        frames = [self._judge(unread[i * size : (i + 1) * size], size) for i in range(whole)]
        self._unread = unread[whole * size :].copy()
        return frames

    def flush(self) -> list[VadFrame]:
        """Judge the unfinished frame at the end, filled up with silence."""
        if not len(self._unread):
            return []
        count = len(self._unread)
        padded = np.zeros(self.frame_samples, np.float32)
        padded[:count] = self._unread
        self._unread = self._unread[:0]
        return [self._judge(padded, count)]

    def reset(self) -> None:
        """Forget everything; the next sample is number 0."""
        self._unread = np.zeros(0, np.float32)
        self._position = 0
        self._active = False
        self._run = 0

    def _judge(self, frame: Samples, count: int) -> VadFrame:
        pcm = (np.clip(frame, -1.0, 1.0) * np.float32(32767.0)).astype("<i2").tobytes()
        speech = bool(self._is_speech(pcm, self.sample_rate))
        self._run = self._run + 1 if speech is not self._active else 0
        if self._run >= (self._stop_frames if self._active else self._start_frames):
            self._active, self._run = not self._active, 0
        start = self._position
        self._position += count
        return VadFrame(start, self._position, speech, self._active)
