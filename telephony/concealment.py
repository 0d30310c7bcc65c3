"""Sound for the gaps of a stream: the last pitch period goes on and fades away."""

from __future__ import annotations

from typing import Final

import numpy as np

from cosyvoice_stream.types import Samples

_HISTORY_MS: Final = 40
_LAG_MS: Final = (2.5, 15.0)
"""Pitch periods of 400 Hz to 67 Hz."""
_HOLD_MS: Final = 20
"""Full level for so long, then a straight line down to silence."""
_FADE_MS: Final = 40
_JOIN_MS: Final = 4
"""Overlap with what comes after the gap."""


class Concealer:
    """Fills the gaps of one stream.

    Args:
        sample_rate: In hertz.
    """

    def __init__(self, sample_rate: int) -> None:
        self._rate = sample_rate
        self._shortest, self._longest = (round(ms * sample_rate / 1000) for ms in _LAG_MS)
        self.reset()

    def reset(self) -> None:
        """Forget what was heard."""
        self._history: Samples = np.zeros(self._samples(_HISTORY_MS), np.float32)
        self._cycle: Samples | None = None
        self._filled = 0

    def hear(self, samples: Samples) -> Samples:
        """Pass on what came, shape (N,); after a gap its beginning is blended with the filling."""
        if self._cycle is not None and len(samples):
            overlap = min(self._samples(_JOIN_MS), len(samples))
            rising = np.arange(1, overlap + 1, dtype=np.float32) / np.float32(overlap + 1)
            blended = samples.copy()
            blended[:overlap] = samples[:overlap] * rising + self._fill(overlap) * (1 - rising)
            samples = blended
        self._cycle = None
        self._filled = 0
        keep = len(self._history)
        self._history = np.concatenate([self._history, samples])[-keep:]
        return samples

    def conceal(self, count: int) -> Samples:
        """Make `count` samples for a gap; silence once it has lasted 60 ms."""
        if self._cycle is None:
            self._cycle = self._history[-self._lag() :]
        filling = self._fill(count)
        self._filled += count
        return filling

    def _samples(self, milliseconds: int) -> int:
        return self._rate * milliseconds // 1000

    def _fill(self, count: int) -> Samples:
        assert self._cycle is not None
        places = np.arange(self._filled, self._filled + count)
        past_hold = (places - self._samples(_HOLD_MS)) / self._samples(_FADE_MS)
        gain = np.clip(1.0 - past_hold, 0.0, 1.0).astype(np.float32)
        filling: Samples = self._cycle[places % len(self._cycle)] * gain
        return filling

    def _lag(self) -> int:
        """Period at which the end of what was heard resembles itself most."""
        history = self._history
        size = len(history) - self._longest
        tail = history[-size:]
        best, best_score = self._longest, 0.0
        for lag in range(self._shortest, self._longest + 1):
            earlier = history[len(history) - size - lag : len(history) - lag]
            energy = float(np.dot(earlier, earlier))
            if energy <= 0.0:
                continue
            score = float(np.dot(tail, earlier)) / energy**0.5
            if score > best_score:
                best, best_score = lag, score
        return best
