"""What a caller says, turn by turn: audio and the verdicts of the detector in, whole turns out."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np

from cosyvoice_stream.telephony.line import Pcm

RATE_HZ: Final = 16_000
"""Of the audio that is pushed and of turns."""
_BEFORE: Final = RATE_HZ * 3 // 10
"""Samples that a turn has before the detector heard speech: the beginning of a soft consonant."""
_BEHIND: Final = RATE_HZ // 5
"""Samples behind the end of the speech."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Speech of the caller between two silences."""

    samples: Pcm
    """16-bit mono at `RATE_HZ`, shape (N,)."""
    start_ms: float
    """Since the caller is listened to."""
    end_ms: float

    @property
    def length_ms(self) -> float:
        """Of the speech."""
        return self.end_ms - self.start_ms

    def __repr__(self) -> str:
        return f"Turn({self.length_ms:.0f} ms)"


class TurnRecorder:
    """Keeps the latest audio and cuts turns out of it.

    Args:
        max_s: Longest turn; of longer ones the beginning is lost.
    """

    def __init__(self, max_s: float = 30.0) -> None:
        self._most = round(max_s * RATE_HZ)
        self._pieces: deque[Pcm] = deque()
        self._kept = 0
        self.heard = 0
        """Samples that were pushed."""
        self._start: int | None = None

    @property
    def speaking(self) -> bool:
        """Whether a turn is under way."""
        return self._start is not None

    def push(self, samples: Pcm) -> None:
        """Append audio."""
        self._pieces.append(samples)
        self._kept += len(samples)
        self.heard += len(samples)
        while self._kept - len(self._pieces[0]) >= self._most:
            self._kept -= len(self._pieces.popleft())

    def begin(self, at_ms: float) -> None:
        """Speech is going on since `at_ms`."""
        self._start = round(at_ms * RATE_HZ / 1000)

    def end(self, at_ms: float) -> Turn | None:
        """Speech ended at `at_ms`; None where none was going on."""
        if self._start is None:
            return None
        start, self._start = self._start, None
        stop = round(at_ms * RATE_HZ / 1000)
        oldest = self.heard - self._kept
        kept = np.concatenate([*self._pieces, np.zeros(0, np.int16)])
        cut = kept[max(0, start - _BEFORE - oldest) : max(0, stop + _BEHIND - oldest)]
        return Turn(cut, start * 1000 / RATE_HZ, at_ms)
