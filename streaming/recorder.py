"""Collects a microphone recording and tells the speaker, while it runs, how it goes."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from cosyvoice_stream.streaming.resample import Resampler
from cosyvoice_stream.streaming.vad import RATES_HZ, IsSpeech, VadFrame, VoiceActivity
from cosyvoice_stream.types import Samples

ENOUGH_SPEECH_MS: Final = 3_000
"""Speech after which a recording will do; `reference.MIN_SPEECH_S` and some reserve."""
LONG_MS: Final = 30_000
"""Length after which more does not make the voice better: ten seconds are used."""
QUIET_SPEECH_DBFS: Final = -38.0
"""Level of speech below which the speaker should come closer."""
CLIPPED: Final = 0.99
"""Magnitude of a sample that has very likely been cut off."""
LEVEL_FLOOR_DBFS: Final = -96.0
"""Reported for silence: the level of the last bit of 16."""

_CLIPPED_SAMPLES = 3
_CLIPPED_BLOCKS = 5
_PATIENCE_MS = 1_500
"""Sound that is not recognised as speech before the speaker is asked to be louder."""
_SILENT_DBFS = -60.0
_VAD_RATE_HZ = 16_000
_SMOOTHING = 0.2


class Hint(StrEnum):
    """What the speaker should do; the values are part of the protocol."""

    SPEAK = "speak"
    """Nothing is heard yet."""
    SPEAK_LOUDER = "speak_louder"
    TOO_LOUD = "too_loud"
    MORE_SPEECH = "more_speech"
    ENOUGH = "enough"
    TOO_LONG = "too_long"
    """Stop: more is not used, or not even kept."""


@dataclass(frozen=True, slots=True)
class RecordingProgress:
    """How the recording stands."""

    captured_ms: int
    """Length of the recording."""
    speech_ms: int
    """How much of it is speech."""
    level_dbfs: float
    """Root mean square of the last stretch, -96 for silence."""
    hint: Hint


class Recorder:
    """Samples in, progress out; holds the recording until it is taken.

    It judges whole stretches of `progress_ms`, so that neither the progress nor the recording
    depends on how the samples were cut on their way. Samples beyond `max_seconds` are dropped.

    Args:
        sample_rate: Of the pushed samples, in hertz.
        is_speech: The detector of `VoiceActivity`.
        max_seconds: Longest kept recording.
        progress_ms: Audio between two reports.
    """

    def __init__(
        self,
        sample_rate: int,
        is_speech: IsSpeech,
        *,
        max_seconds: float = 60.0,
        progress_ms: int = 200,
    ) -> None:
        self.sample_rate = sample_rate
        self._is_speech = is_speech
        self._max_samples = int(max_seconds * sample_rate)
        self._block_samples = max(1, sample_rate * progress_ms // 1000)
        self._parts: list[Samples] = []
        self._speech_power: float | None = None
        self.reset()

    @property
    def captured_samples(self) -> int:
        """Samples kept so far."""
        return self._kept

    @property
    def captured_ms(self) -> int:
        """Length so far."""
        return self._kept * 1000 // self.sample_rate

    @property
    def full(self) -> bool:
        """Whether further samples are dropped."""
        return self._kept >= self._max_samples

    def push(self, samples: Samples) -> list[RecordingProgress]:
        """Take samples of any number; return one report per completed stretch."""
        samples = samples[: self._max_samples - self._kept]
        reports: list[RecordingProgress] = []
        while len(samples):
            missing = self._block_samples - self._unjudged
            piece, samples = samples[:missing], samples[missing:]
            self._parts.append(np.array(piece, np.float32))
            self._kept += len(piece)
            self._unjudged += len(piece)
            if self._unjudged == self._block_samples or self.full:
                reports.append(self._report())
        return reports

    def flush(self) -> list[RecordingProgress]:
        """Report the unfinished stretch, if there is one."""
        return [self._report()] if self._unjudged else []

    def samples(self) -> Samples:
        """Return the whole recording."""
        if len(self._parts) > 1:
            self._parts = [np.concatenate(self._parts)]
        return self._parts[0] if self._parts else np.zeros(0, np.float32)

    def reset(self) -> None:
        """Forget the recording."""
        self._parts = []
        self._kept = 0
        self._unjudged = 0
        self._speech_samples = 0
        self._speech_power = None
        self._unheard_ms = 0
        self._clipped: deque[bool] = deque(maxlen=_CLIPPED_BLOCKS)
        self._vad_rate = self.sample_rate if self.sample_rate in RATES_HZ else _VAD_RATE_HZ
        self._to_vad = Resampler(self.sample_rate, self._vad_rate)
        self._activity = VoiceActivity(self._is_speech, self._vad_rate)

    def _report(self) -> RecordingProgress:
        block = self._take_block()
        power = float(np.mean(np.square(block, dtype=np.float64)))
        level_dbfs = max(LEVEL_FLOOR_DBFS, 10 * math.log10(power)) if power else LEVEL_FLOOR_DBFS
        self._clipped.append(int(np.count_nonzero(np.abs(block) >= CLIPPED)) >= _CLIPPED_SAMPLES)
        speech = [frame for frame in self._judge(block) if frame.speech and frame.active]
        if not speech and level_dbfs > _SILENT_DBFS:
            self._unheard_ms += len(block) * 1000 // self.sample_rate
        if speech:
            self._speech_samples += sum(frame.end_sample - frame.start_sample for frame in speech)
            if self._speech_power is None:
                self._speech_power = power
            self._speech_power += _SMOOTHING * (power - self._speech_power)
        speech_ms = self._speech_samples * 1000 // self._vad_rate
        return RecordingProgress(
            self.captured_ms, speech_ms, round(level_dbfs, 1), self._hint(speech_ms)
        )

    def _take_block(self) -> Samples:
        """Return the stretch that has not been judged; it is at the end of the last parts."""
        count, first = 0, len(self._parts)
        while count < self._unjudged:
            first -= 1
            count += len(self._parts[first])
        block = np.concatenate(self._parts[first:])
        self._parts[first:] = [block]
        self._unjudged = 0
        return block

    def _judge(self, block: Samples) -> list[VadFrame]:
        pieces = self._to_vad.push(block)
        return [frame for piece in pieces for frame in self._activity.push(piece)]

    def _hint(self, speech_ms: int) -> Hint:
        if self.full or self.captured_ms > LONG_MS:
            return Hint.TOO_LONG
        if any(self._clipped):
            return Hint.TOO_LOUD
        if self._speech_power is None:
            return Hint.SPEAK if self._unheard_ms < _PATIENCE_MS else Hint.SPEAK_LOUDER
        if self._speech_power < 10 ** (QUIET_SPEECH_DBFS / 10):
            return Hint.SPEAK_LOUDER
        return Hint.ENOUGH if speech_ms >= ENOUGH_SPEECH_MS else Hint.MORE_SPEECH
