"""How far a mouth is open while an utterance is heard, 50 times a second, from the sound itself.

::

    samples   ├─── 20 ms ───┼─── 20 ms ───┼─── 20 ms ───┤
    values    0             v1            v2            v3      each from the 20 ms before it

So a value is known no later than the sound that it belongs to. Pure; any cutting gives the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from cosyvoice_stream.types import Samples, VisemeMark

STEP_MS: Final = 20
_QUIET_DB: Final = -60.0
"""At and below it the mouth is closed."""
_RANGE_DB: Final = 30.0
"""Below the loudest sound so far, down to a closed mouth."""
_FULL_DB: Final = 6.0
"""Below the loudest sound so far the mouth is as open as it gets."""
_FIRST_LOUDEST_DB: Final = -30.0


class MouthTrack:
    """Samples in, values from 0 (closed) to 1 (open) out.

    Args:
        sample_rate: In hertz.
    """

    def __init__(self, sample_rate: int) -> None:
        self._step = sample_rate * STEP_MS // 1000
        self._unread: Samples = np.zeros(0, np.float32)
        self._shapes: list[VisemeMark] = []
        self._loudest_db = _FIRST_LOUDEST_DB
        self._given = 0
        """Values so far; the next one is for this many steps after the start."""

    @property
    def given(self) -> int:
        """Values that were given out; the next one belongs to this many steps after the start."""
        return self._given

    def push(
        self, samples: Samples, shapes: Iterable[VisemeMark] = (), *, final: bool = False
    ) -> list[float]:
        """Append samples, shape (N,).

        Args:
            samples: Of the utterance, in order.
            shapes: Visemes that the engine has announced, each once and no later than its sound;
                a mouth that they close is closed.
            final: No sound follows; the mouth ends closed.

        Returns:
            The values for all steps that have come, the first one for the start of the utterance.
        """
        self._shapes += shapes
        self._unread = np.concatenate([self._unread, samples])
        whole = len(self._unread) // self._step * self._step
        ready, self._unread = self._unread[:whole], self._unread[whole:]
        values = [] if self._given or not len(samples) else [0.0]
        self._given += len(values)
        for block in ready.reshape(-1, self._step):
            values.append(self._value(block))
            self._given += 1
        if final and self._given:
            values += [0.0] * (2 if len(self._unread) else 1)
            self._given += 2 if len(self._unread) else 1
        return values

    def _value(self, block: Samples) -> float:
        power = float(np.mean(np.square(block, dtype=np.float64)))
        level_db = 10 * np.log10(power) if power > 0 else -np.inf
        if level_db <= _QUIET_DB:
            return 0.0
        self._loudest_db = max(self._loudest_db, level_db)
        above = level_db - (self._loudest_db - _RANGE_DB)
        loud = min(max(above / (_RANGE_DB - _FULL_DB), 0.0), 1.0)
        return round(float(loud * self._shape_at(self._given * self._step)), 3)

    def _shape_at(self, sample: int) -> float:
        """How open the engine wants the mouth; 1 where it says nothing."""
        self._shapes = [shape for shape in self._shapes if shape.end_sample > sample - self._step]
        for shape in self._shapes:
            if shape.start_sample <= sample < shape.end_sample:
                return shape.mouth_open
        return 1.0
