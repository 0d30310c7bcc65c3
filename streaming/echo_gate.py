"""Keeps a loudspeaker's own sound, picked up by the microphone, from being taken for a speaker."""

from __future__ import annotations

import itertools
import math
from collections import deque
from typing import Final

import numpy as np

from cosyvoice_stream.streaming.pcm import FULL_SCALE, level_dbfs
from cosyvoice_stream.streaming.vad import IsSpeech
from cosyvoice_stream.types import Samples

MARGIN_DB: Final = 6.0
"""By which a speaker has to be louder than the echo."""
ECHO_TAIL_MS: Final = 300
"""A loudspeaker is heard so long after it was given the sound: buffers, air, room."""
_QUIET_DBFS: Final = -55.0
_RISE_DB_PER_S: Final = 2.0
_FALL: Final = 0.2
_STEADY_DB: Final = 3.0
_FIRST_COUPLING_DB: Final = 0.0
"""Before anything is known: the microphone hears the loudspeaker as loud as it was sent."""


class EchoGate:
    """A detector that asks another one only about frames louder than the echo can be.

    The coupling from loudspeaker to microphone is learned: quickly down, slowly up, so that a
    speaker who talks over the loudspeaker does not teach it that echo is loud.

    Args:
        is_speech: The detector behind the gate.
        sample_rate: Of both signals, in hertz.
        frame_samples: Samples of every frame that will be judged.
    """

    def __init__(self, is_speech: IsSpeech, sample_rate: int, frame_samples: int) -> None:
        self._is_speech = is_speech
        self._frame_samples = frame_samples
        frames_per_s = sample_rate / frame_samples
        self._rise_db = _RISE_DB_PER_S / frames_per_s
        self._tail = max(1, math.ceil(ECHO_TAIL_MS / 1000 * frames_per_s))
        self._played: deque[float] = deque(maxlen=2 * self._tail)
        self._heard: deque[float] = deque(maxlen=2 * self._tail)
        self._reference: Samples = np.zeros(0, np.float32)
        self._coupling_db = _FIRST_COUPLING_DB

    def listen(self, reference: Samples) -> None:
        """Take what the loudspeaker plays; before the microphone samples of the same time."""
        self._reference = np.concatenate([self._reference, reference])

    def __call__(self, frame: bytes, sample_rate: int) -> bool:
        """Judge the next frame; see `IsSpeech`."""
        size = self._frame_samples
        played, self._reference = self._reference[:size], self._reference[size:]
        samples = np.frombuffer(frame, "<i2").astype(np.float32) / np.float32(FULL_SCALE)
        heard_db = level_dbfs(samples)
        self._played.append(level_dbfs(played))
        self._heard.append(heard_db)
        played_db = max(itertools.islice(reversed(self._played), self._tail))
        if played_db < _QUIET_DBFS:
            return self._is_speech(frame, sample_rate)
        echo_db = played_db + self._coupling_db
        self._learn()
        return heard_db > echo_db + MARGIN_DB and self._is_speech(frame, sample_rate)

    def _learn(self) -> None:
        """Compare the loudest of both signals, once the echo of the loudest must have arrived."""
        if len(self._played) < 2 * self._tail:
            return
        loudest_db = max(self._played)
        if max(itertools.islice(self._played, self._tail)) < loudest_db - _STEADY_DB:
            return
        ratio_db = max(self._heard) - loudest_db
        if ratio_db < self._coupling_db:
            fallen = self._coupling_db + _FALL * (ratio_db - self._coupling_db)
            self._coupling_db = max(fallen, _QUIET_DBFS)
        else:
            self._coupling_db = min(self._coupling_db + self._rise_db, ratio_db)
