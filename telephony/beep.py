"""The tone after which a caller may speak, as frames of a session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from cosyvoice_stream.server.wire import AudioHeader
from cosyvoice_stream.streaming import pcm
from cosyvoice_stream.telephony.line import LineFormat, pcm_to_s16le
from cosyvoice_stream.types import Samples

NOBODY: Final = 0
"""Number of an utterance that no session has."""
_TONE_HZ: Final = 1000.0
_LENGTH_S: Final = 0.3
_FADE_S: Final = 0.01
_LEVEL: Final = 0.25


def beep_frames(form: LineFormat) -> Iterator[bytes]:
    """A third of a second of 1 kHz, faded in and out, as `LineAudio.put` takes it."""
    times = np.arange(round(_LENGTH_S * form.sample_rate)) / form.sample_rate
    fade = np.clip(np.minimum(times, _LENGTH_S - times) / _FADE_S, 0, 1)
    tone: Samples = (_LEVEL * fade * np.sin(2 * np.pi * _TONE_HZ * times)).astype(np.float32)
    samples, step = pcm.to_int16(tone), form.frame_samples
    for start in range(0, len(samples), step):
        header = AudioHeader(NOBODY, start, last=start + step >= len(samples))
        yield header.pack() + pcm_to_s16le(samples[start : start + step])
